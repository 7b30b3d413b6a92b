"""`ngcdl workloads`: the bundled trainings, with what they cost and where their numbers are from."""

from __future__ import annotations

from dataclasses import asdict

from ngcdl import console, plan

HEAD = ("NAME", "PARAMETERS", "FORWARD MACS", "FLOP/EXAMPLE", "BATCH", "FRAMEWORKS", "WHAT")


def workloads(as_json: bool) -> None:
    """List what --train takes: a table, and below it whose numbers these are."""
    found = [plan.bundled(name) for name in plan.workloads()]
    if as_json:
        console.result_json([asdict(one) for one in found])
        return
    rows = [HEAD, *(_row(one) for one in found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for name, *figures, frameworks, what in rows:
        right = [cell.rjust(width) for cell, width in zip(figures, widths[1:-2], strict=True)]
        console.result("  ".join([name.ljust(widths[0]), *right, frameworks.ljust(widths[-2]), what]))
    console.say(
        "MACs are multiply-accumulates of one example; FLOP/EXAMPLE is a whole training step's, 2 a MAC; both of "
        "convolutions and matrix products alone. Sources: ngcdl workloads --json"
    )


def _row(one: plan.Bundled) -> tuple[str, ...]:
    counts = (one.parameters, one.forward_macs, one.flops_per_example, one.batch)
    return one.name, *(f"{count:,}" for count in counts), ",".join(one.frameworks), one.summary
