"""`ngcdl workloads`: lists the bundled trainings, with their cost and the sources of their numbers."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import asdict

from ngcdl import console, trainings

HEAD = ("NAME", "PARAMETERS", "FORWARD MACS", "FLOP/EXAMPLE", "BATCH", "WHAT")
_FIGURES = range(1, 5)


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
        f"They train in {', '.join(frameworks)}. MACs are multiply-accumulates per example; FLOP/EXAMPLE is for a "
        f"whole training step ({forward}: the forward pass), 2 per MAC; both count only convolutions and matrix "
        "products. Sources: ngcdl workloads --json"
    )


def _row(one: trainings.Bundled, frameworks: Collection[str]) -> tuple[str, ...]:
    counts = (one.parameters, one.forward_macs, one.flops_per_example, one.batch)
    missing = [name for name in frameworks if name not in one.frameworks]
    without = f" (not in {', '.join(missing)})" if missing else ""
    return one.name, *(f"{count:,}" for count in counts), one.summary + without
