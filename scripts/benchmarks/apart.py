#!/usr/bin/env python3
"""How far the losses of a float32 training diverge in 20 steps, by replicas and by weights perturbed by 1e-7.

    PYTHON scripts/benchmarks/apart.py DIR

DIR has CIFAR-10, and PYTHON has PyTorch. Prints the largest difference of a loss from that of one unperturbed process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

CONTAINERS = str(Path(__file__).resolve().parents[2] / "containers")
sys.path.insert(0, CONTAINERS)

STEPS, BATCH = 20, 64


def main() -> int:
    for name in ("cifar10", "cifar10-keras"):
        found = {f"{many} replicas": _trained(name, many) for many in (1, 2, 3)}
        one = found.pop("1 replicas")
        found |= {f"touched by the draws of seed {seed}": _touched(name, seed) for seed in (1, 2, 3)}
        for what, losses in found.items():
            print(f"{name}, {what}: {np.abs(np.subtract(losses, one)).max():.1e}", flush=True)
    return 0


def _trained(name: str, replicas: int) -> list[float]:
    words = f"--framework pytorch --device cpu --threads 1 --log-frequency 1 --no-eval --no-dropout --batch {BATCH}"
    with tempfile.TemporaryDirectory() as folder:
        more = ["--steps", str(STEPS), "--data", sys.argv[1], "--replicas", str(replicas), "--out", folder]
        command = [sys.executable, "-m", "trainer", name, *words.split(), *more]
        paths = os.pathsep.join(filter(None, [CONTAINERS, os.environ.get("PYTHONPATH")]))
        subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, check=True, stdout=subprocess.DEVNULL)
        told = [json.loads(line) for line in Path(folder, "events.jsonl").read_text().splitlines()]
    return [event["loss"] for event in told if event["event"] == "step"]


def _touched(name: str, seed: int) -> list[float]:
    from trainer import __main__ as entry
    from trainer import data, layers
    from trainer.frameworks.pytorch import Network
    from trainer.recipe import Model

    workload: Any = entry.imported(name)
    model = Model(layers.without(workload.NETWORK, "dropout"), workload.RECIPE, workload.INPUT, BATCH)
    network, values, random = Network(model, "cpu", threads=1), model.first(0), np.random.RandomState(seed)
    for key in model.weights:
        values[key] = values[key] * (1 + 1e-7 * random.normal(size=values[key].shape)).astype(np.float32)
    network.load(values)
    batches = network.batches(workload.source(data.training(sys.argv[1]), BATCH, 0, 0.4), 0, STEPS)
    return [float(network.train(batch, model.turn(step, 0))[0]) for step, batch in enumerate(batches)]


if __name__ == "__main__":
    sys.exit(main() if len(sys.argv) == 2 else __doc__)
