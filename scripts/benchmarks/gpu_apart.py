#!/usr/bin/env python3
"""Does PyTorch train on a GPU as on the CPU? The first losses of each network in float32, CUDA graphs among them.

    PYTHON scripts/benchmarks/gpu_apart.py [NAME...]

Told is by how much a loss differs at most; more than MOST is too much. All steps are on one batch, and without dropout,
for each device draws its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from math import inf, isnan
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "containers"))

from trainer import layers, workloads
from trainer.__main__ import imported, names

STEPS, BATCH = 8, 8
MOST = 0.01  # sums are added up in another order, which later steps multiply


def main() -> int | str:
    worst = 0.0
    for name in sys.argv[1:] or trained():
        found = apart(name, "gpu")
        print(f"{name}: {found:.1e}", flush=True)
        worst = largest((worst, found))
    return 0 if worst <= MOST else f"{worst:.1e} is more than {MOST}"


def trained() -> list[str]:
    """Give a training of each network that PyTorch has, but for those that are two, or have steps of their own."""
    found = {}
    for name in names(workloads):
        one = imported(name)
        if "pytorch" in one.FRAMEWORKS and not hasattr(one, "run") and one.RECIPE["loss"] not in (None, "distill"):
            found.setdefault(id(one.NETWORK), name)
    return list(found.values())


def apart(name: str, device: str) -> float:
    """Give the largest difference of a loss on the device from that on the CPU: of one above 1, as a part of it."""
    pairs = zip(losses(name, device), losses(name, "cpu"), strict=True)
    return largest(abs(ours - theirs) / max(theirs, 1.0) for ours, theirs in pairs)


def largest(values: Iterable[float]) -> float:
    """Give the largest; what is no number is larger than all."""
    return max(values, key=lambda value: inf if isnan(value) else value)


def losses(name: str, device: str) -> list[float]:
    from trainer.computing import Way
    from trainer.frameworks.pytorch import Network
    from trainer.recipe import Model

    workload = imported(name)
    model = Model(layers.without(workload.NETWORK, "dropout"), workload.RECIPE, workload.INPUT, BATCH)
    network = Network(model, device, way=Way("float32", False, None))
    network.load(model.first(0))
    source = workload.source(workload.load(None), BATCH, 0, 0.4)
    batches = network.batches(source, 0, STEPS, "constant")
    told = [float(network.train(batch, model.turn(step, 0))[0].detach()) for step, batch in enumerate(batches)]
    if network.device == "gpu" and not (network.stepper and network.stepper.replay):
        print(f"{name}: no CUDA graphs")
    return told


if __name__ == "__main__":
    sys.exit(main())
