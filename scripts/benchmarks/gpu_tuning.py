#!/usr/bin/env python3
"""Measure the effect of a knob of cifar10-94 on the last 10,000 training images: the test set is not used to choose.

    PYTHON scripts/benchmarks/gpu_tuning.py DIR --runs 20 [--seconds 240] filter_rate=0.2,0.3 [batch=1536+epochs=8.9]

Knobs are those of race.KNOBS, batch, and epochs (of the remaining images). Each value is tried alone, or together with
those that + joins to it; all ways, and the unchanged recipe, are trained alternately with the same seeds. Prints the
accuracies of each seed, and at the end, or when it is cut short, means with their standard errors and how far they are
from the unchanged recipe's, seed by seed. PYTHON has PyTorch and sees a GPU; on a CPU it takes hours, or minutes a
training with --bfloat16, if the CPU has instructions for it (AMX).
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import time
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "containers"))

import cut
import torch

from trainer import certainty, data, race
from trainer.frameworks.pytorch.race import Race, put
from trainer.workloads import cifar10_94 as workload

UNCHANGED = "as it is"


class Way(NamedTuple):
    knobs: race.Knobs
    batch: int
    epochs: float


AS_IT_IS = Way(race.KNOBS, workload.BATCH, workload.STEPS * workload.BATCH / 50_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="the folder with CIFAR-10")
    parser.add_argument("knobs", nargs="*", metavar="KNOB=VALUE,VALUE or KNOB=VALUE+KNOB=VALUE")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=inf, help="after this no further seed begins")
    parser.add_argument("--bfloat16", action="store_true", help="on a CPU: not in float32")
    asked = parser.parse_intermixed_args()  # parse_args() of most Pythons refuses knobs that follow an option
    until = time.monotonic() + asked.seconds
    cut.by_term()
    train, held = race.split(data.training(asked.folder))
    found: dict[str, list[float]] = {}
    trained = {}
    for name, way in ways(asked.knobs).items():
        found[name], trained[name] = [], partial(accuracy, made(way, train, asked.bfloat16), held)
    try:
        for seed in range(asked.runs):
            if time.monotonic() > until:
                break
            accuracies = {name: once(seed) for name, once in trained.items()}
            for name, one in accuracies.items():
                found[name].append(one)
            print(f"seed {seed}: {'; '.join(f'{name} {one:.4f}' for name, one in accuracies.items())}", flush=True)
    finally:  # what was cut short has whole seeds: the same for all knobs
        if found[UNCHANGED]:
            tell(found)


def tell(found: dict[str, list[float]]) -> None:
    print(f"| knob | mean accuracy of {race.HELD_BACK} held back | standard error | more than as it is | trainings |")
    print("|---|---|---|---|---|")
    for name, accuracies in found.items():
        more = [one - other for one, other in zip(accuracies, found[UNCHANGED], strict=True)]
        mean, error = summed(accuracies)
        beside = "" if name == UNCHANGED else "{} ({})".format(*summed(more))
        print(f"| {name} | {mean} | {error} | {beside} | {len(accuracies)} |")


def summed(values: list[float]) -> tuple[str, str]:
    """Return the mean and its standard error."""
    mean, deviation = certainty.spread(values)
    return f"{mean:.4f}", "n/a" if deviation is None else f"{deviation / len(values) ** 0.5:.4f}"


def ways(words: list[str]) -> dict[str, Way]:
    """Parse KNOB=VALUE,VALUE and KNOB=VALUE+KNOB=VALUE; values that are tuples each need a word of their own, as
    "sides=((24, 0.5), (32, 1.0))"."""
    found = {UNCHANGED: AS_IT_IS}
    for word in words:
        parts = [part.partition("=") for part in re.split(r"\+(?=[a-z_]+=)", word)]
        for name, _, _ in parts:
            if not hasattr(AS_IT_IS, name) and not hasattr(race.KNOBS, name):
                sys.exit(f"no such knob: {name}; choose from {', '.join([*race.Knobs._fields, 'batch', 'epochs'])}")
        values = [ast.literal_eval(text) for _, _, text in parts]
        if len(parts) > 1:
            found[word] = changed(dict(zip([name for name, _, _ in parts], values, strict=True)))
            continue
        (name, _, _), value = parts[0], values[0]
        several = isinstance(value, tuple) and not isinstance(getattr(race.KNOBS, name, None), tuple)
        found |= {f"{name}={one}": changed({name: one}) for one in (value if several else (value,))}
    return found


def changed(values: dict[str, Any]) -> Way:
    outer = {name: values.pop(name) for name in ("batch", "epochs") if name in values}
    return AS_IT_IS._replace(knobs=race.KNOBS._replace(**values), **outer)


def made(way: Way, train: tuple[Any, Any], is_bfloat16: bool) -> Race:
    on = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    kind = torch.float16 if on.type == "cuda" else torch.bfloat16 if is_bfloat16 else torch.float32
    steps = round(way.epochs * len(train[0]) / way.batch)
    one = Race(on, kind, way.knobs, steps, way.batch, *train, is_compiled=on.type == "cuda")
    one.prepare(put(train[0][:2000], on))
    return one


def accuracy(one: Race, held: tuple[Any, Any], seed: int) -> float:
    one.train(seed)
    guesses = one.predict(put(held[0], one.on)).cpu().numpy()
    return float((guesses == held[1]).mean())


if __name__ == "__main__":
    main()
