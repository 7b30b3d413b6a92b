"""`ngcdl workloads`: lists the bundled trainings, with their cost and the sources of their numbers."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import asdict

from ngcdl import console, trainings

HEAD = ("NAME", "PARAMETERS", "FORWARD MACS", "FLOP/EXAMPLE", "BATCH", "WHAT")
_FIGURES = range(1, 5)
_NAMES = {"pytorch": "PyTorch", "tf1": "TensorFlow 1", "tf2": "TensorFlow 2"}


def workloads(as_json: bool) -> None:
    """List what --train accepts: a table, and below it what its numbers mean."""
    found = [trainings.bundled(name) for name in trainings.names()]
    if as_json:
        console.result_json([asdict(one) for one in found])
        return
    frameworks = sorted({name for one in found for name in one.frameworks})
    forward = ", ".join(one.name for one in found if not one.trains)
    rows = [HEAD, *(_row(one, frameworks) for one in found)]
    for line in console.table(rows, console.columns(sys.stdout), _FIGURES):
        console.result(line)
    console.say(
        f"They train in {_named(frameworks)}. MACs are multiply-accumulates per example; FLOP/EXAMPLE is for a "
        f"whole training step ({forward}: the forward pass), 2 per MAC; both count only convolutions and matrix "
        "products. Sources: ngcdl workloads --json"
    )


def _row(one: trainings.Bundled, frameworks: Collection[str]) -> tuple[str, ...]:
    counts = (one.parameters, one.forward_macs, one.flops_per_example, one.batch)
    only = "" if set(one.frameworks) == set(frameworks) else f" ({_named(sorted(one.frameworks))} only)"
    return one.name, *(f"{count:,}" for count in counts), one.summary + only


def _named(frameworks: Sequence[str]) -> str:
    *others, last = (_NAMES.get(name, name) for name in frameworks)
    return f"{', '.join(others)} and {last}" if others else last
