#!/usr/bin/env python3
"""Measure the effect of a knob of cifar10-94 on the last 5,000 training images: the test set is not used to choose.

    PYTHON scripts/benchmarks/gpu_tuning.py DIR --runs 20 [--seconds 240] [--steps 225] filter_rate=0.2,0.3 [tail=10]

Each knob of race.KNOBS is varied alone; all values, and the unchanged recipe, are trained alternately with the same
seeds. Prints the accuracies of each seed, and at the end, or when it is cut short, means with their standard errors.
PYTHON has PyTorch and sees a GPU; on a CPU it takes hours.
"""

from __future__ import annotations

import argparse
import ast
import sys
import time
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "containers"))

import cut
import torch

from trainer import certainty, data, race
from trainer.frameworks.pytorch.race import Race, put
from trainer.workloads import cifar10_94 as workload


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="the folder with CIFAR-10")
    parser.add_argument("knobs", nargs="*", metavar="KNOB=VALUE,VALUE")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=inf, help="after this no further seed begins")
    parser.add_argument(
        "--steps", type=int, default=workload.STEPS * 45 // 50, help="default: nine epochs of the remaining images"
    )
    asked = parser.parse_intermixed_args()  # parse_args() of most Pythons refuses knobs that follow an option
    until = time.monotonic() + asked.seconds
    cut.by_term()
    train, held = race.split(data.training(asked.folder))
    ways = {"as it is": race.KNOBS} | {
        f"{name}={value}": race.KNOBS._replace(**{name: value}) for name, value in values(asked.knobs)
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    trained = {name: partial(accuracy, made(knobs, asked.steps, train), held) for name, knobs in ways.items()}
    try:
        for seed in range(asked.runs):
            if time.monotonic() > until:
                break
            accuracies = {name: once(seed) for name, once in trained.items()}
            for name, one in accuracies.items():
                found[name].append(one)
            print(f"seed {seed}: {'; '.join(f'{name} {one:.4f}' for name, one in accuracies.items())}", flush=True)
    finally:  # what was cut short has whole seeds: the same for all knobs
        if found["as it is"]:
            tell(found)


def tell(found: dict[str, list[float]]) -> None:
    print(f"| knob | mean accuracy of {race.HELD_BACK} held back | standard error | trainings |\n|---|---|---|---|")
    for name, accuracies in found.items():
        mean, deviation = certainty.spread(accuracies)
        error = "n/a" if deviation is None else f"{deviation / len(accuracies) ** 0.5:.4f}"
        print(f"| {name} | {mean:.4f} | {error} | {len(accuracies)} |")


def values(words: list[str]) -> list[tuple[str, Any]]:
    """Parse KNOB=VALUE,VALUE; values that are tuples each need their own argument: "sides=((24, 0.5), (32, 1.0))"."""
    found = []
    for word in words:
        name, _, text = word.partition("=")
        if name not in race.Knobs._fields:
            sys.exit(f"no such knob: {name}; choose from {', '.join(race.Knobs._fields)}")
        value = ast.literal_eval(text)
        several = isinstance(value, tuple) and not isinstance(getattr(race.KNOBS, name), tuple)
        found += [(name, one) for one in (value if several else (value,))]
    return found


def made(knobs: race.Knobs, steps: int, train: tuple[Any, Any]) -> Race:
    on = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    kind = torch.float16 if on.type == "cuda" else torch.float32
    one = Race(on, kind, knobs, steps, workload.BATCH, *train)
    one.prepare(put(train[0][:2000], on))
    return one


def accuracy(one: Race, held: tuple[Any, Any], seed: int) -> float:
    one.train(seed)
    guesses = one.predict(put(held[0], one.on)).cpu().numpy()
    return float((guesses == held[1]).mean())


if __name__ == "__main__":
    main()
