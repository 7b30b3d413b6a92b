#!/usr/bin/env python3
"""Does PyTorch train on a GPU as on the CPU? The first losses of each network in float32, CUDA graphs among them.

    PYTHON scripts/benchmarks/gpu_apart.py [NAME...]

Told is by how much a loss differs at most, and by how much it does on the CPU with first weights slightly moved: some
networks make much of a rounding. More than MOST is too much: before the first step, and later where it is more than
TIMES that, too. All steps are on one batch, and without dropout, for each device draws its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from math import inf, isnan
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "containers"))

from trainer import layers, workloads
from trainer.__main__ import imported, names

STEPS, BATCH = 8, 8
MOST = 0.01  # sums are added up in another order, which later steps multiply
MOVED = 1e-6  # of each weight: a few roundings
TIMES = 10  # resnet-50 makes 0.05 of them, however few they are: of eight examples' statistics, and of kinks


def main() -> int | str:
    far = []
    for name in sys.argv[1:] or trained():
        theirs = losses(name, "cpu")
        found, shaken = (apart(ours, theirs) for ours in (losses(name, "gpu"), losses(name, "cpu", MOVED)))
        print(f"{name}: {largest(found):.1e}, and of other roundings {largest(shaken):.1e}", flush=True)
        far += [] if is_near(found, shaken) else [name]
    return f"too far from the CPU: {', '.join(far)}" if far else 0


def trained() -> list[str]:
    """Give a training of each network that PyTorch has, but for those that are two, or have steps of their own."""
    found = {}
    for name in names(workloads):
        one = imported(name)
        if "pytorch" in one.FRAMEWORKS and not hasattr(one, "run") and one.RECIPE["loss"] not in (None, "distill"):
            found.setdefault(id(one.NETWORK), name)
    return list(found.values())


def apart(losses: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Give how far each loss is from theirs: from one above 1, as a part of it."""
    return [abs(one - other) / max(other, 1.0) for one, other in zip(losses, theirs, strict=True)]


def is_near(found: Sequence[float], shaken: Sequence[float]) -> bool:
    return found[0] <= MOST and largest(found) <= max(MOST, TIMES * largest(shaken))


def largest(values: Iterable[float]) -> float:
    """Give the largest; what is no number is larger than all."""
    return max(values, key=lambda value: inf if isnan(value) else value)


def losses(name: str, device: str, moved: float = 0.0) -> list[float]:
    """moved: by how much of itself each of the first weights is another one, times what chance draws."""
    import numpy as np

    from trainer.computing import Way
    from trainer.frameworks.pytorch import Network
    from trainer.recipe import Model

    workload = imported(name)
    model = Model(layers.without(workload.NETWORK, "dropout"), workload.RECIPE, workload.INPUT, BATCH)
    network = Network(model, device, way=Way("float32", False, None))
    random = np.random.RandomState(0)
    changed = {one: (1 + moved * random.normal(size=array.shape)) * array for one, array in model.first(0).items()}
    network.load({one: array.astype(np.float32) for one, array in changed.items()})
    source = workload.source(workload.load(None), BATCH, 0, 0.4)
    batches = network.batches(source, 0, STEPS, "constant")
    told = [float(network.train(batch, model.turn(step, 0))[0].detach()) for step, batch in enumerate(batches)]
    if network.device == "gpu" and not (network.stepper and network.stepper.replay):
        print(f"{name}: no CUDA graphs")
    return told


if __name__ == "__main__":
    sys.exit(main())
