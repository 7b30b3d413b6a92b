#!/usr/bin/env python3
"""Does PyTorch train on a GPU as on the CPU? Compare the first losses of each network in float32, with CUDA graphs.

    PYTHON scripts/benchmarks/gpu_apart.py [NAME...]

Prints the largest difference of a loss, and as a reference the largest difference that slightly perturbed initial
weights make on the CPU: some networks amplify rounding errors. Before the first step a difference above MOST fails;
later it fails only if it also exceeds TIMES the reference. A network whose steps were not CUDA graphs fails too. All
steps use one batch, without dropout, because each device draws its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import inf, isnan
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "containers"))

from trainer import layers, workloads
from trainer.__main__ import imported, names

STEPS, BATCH = 8, 8
MOST = 0.01  # sums are added in another order, and later steps amplify the difference
MOVED = 1e-6  # relative change of each weight: a few roundings
TIMES = 10  # resnet-50 amplifies any roundings to 0.05: its statistics are of eight examples, its loss has kinks


def main() -> int | str:
    far, plain = [], []
    for name in sys.argv[1:] or trained():
        theirs, _ = losses(name, "cpu")
        ours, is_graph = losses(name, "gpu")
        found, shaken = apart(ours, theirs), apart(losses(name, "cpu", MOVED)[0], theirs)
        print(f"{name}: {largest(found):.1e}, and of other roundings {largest(shaken):.1e}", flush=True)
        far += [] if is_near(found, shaken) else [name]
        plain += [] if is_graph else [name]
    wrong = {"too far from the CPU": far, "no CUDA graphs": plain}
    return "\n".join(f"{what}: {', '.join(which)}" for what, which in wrong.items() if which) or 0


def trained() -> list[str]:
    """Return one training for each network that PyTorch has, but none that has two networks or steps of its own."""
    found = {}
    for name in names(workloads):
        one = imported(name)
        if "pytorch" in one.FRAMEWORKS and not hasattr(one, "run") and one.RECIPE["loss"] not in (None, "distill"):
            found.setdefault(id(one.NETWORK), name)
    # lstm last: if its step can't be captured, PyTorch's memory is in disorder after the attempt
    return sorted(found.values(), key=lambda name: name == "lstm")


def apart(losses: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return each loss's distance from theirs, relative where theirs is above 1."""
    return [abs(one - other) / max(other, 1.0) for one, other in zip(losses, theirs, strict=True)]


def is_near(found: Sequence[float], shaken: Sequence[float]) -> bool:
    return found[0] <= MOST and largest(found) <= max(MOST, TIMES * largest(shaken))


def largest(values: Iterable[float]) -> float:
    """Return the largest value; NaN counts as larger than all."""
    return max(values, key=lambda value: inf if isnan(value) else value)


@lru_cache(maxsize=1)  # the same for all three trainings of a network
def loaded(name: str) -> Any:
    return imported(name).load(None)


def losses(name: str, device: str, moved: float = 0.0) -> tuple[list[float], bool]:
    """Return the losses of the first steps, and whether the last steps were CUDA graphs. moved: relative perturbation
    of the initial weights, times N(0, 1)."""
    import numpy as np
    import torch

    from trainer.computing import Way
    from trainer.frameworks.pytorch import Network
    from trainer.recipe import Model

    if device == "gpu":
        torch.cuda.reset_peak_memory_stats()  # the peak decides whether two steps fit, and so whether to capture one
    workload = imported(name)
    model = Model(layers.without(workload.NETWORK, "dropout"), workload.RECIPE, workload.INPUT, BATCH)
    network = Network(model, device, way=Way("float32", False, None))
    first = model.first(0)
    if moved:
        random = np.random.RandomState(0)
        first = {one: (1 + moved * random.normal(size=array.shape)) * array for one, array in first.items()}
    network.load({one: array.astype(np.float32) for one, array in first.items()})
    source = workload.source(loaded(name), BATCH, 0, 0.4)
    batches = network.batches(source, 0, STEPS, "constant")
    told = [float(network.train(batch, model.turn(step, 0))[0].detach()) for step, batch in enumerate(batches)]
    return told, bool(network.stepper and network.stepper.replay)


if __name__ == "__main__":
    sys.exit(main())
