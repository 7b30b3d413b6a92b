"""`ngcdl workloads`: lists the bundled trainings: what each is for, or what it costs."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import asdict

from ngcdl import console, trainings
from ngcdl.terminal_text import table

HEAD = ("NAME", "DATA", "WHAT IT IS, OR WHICH QUESTION IT ANSWERS")
COSTS = ("NAME", "PARAMETERS", "FORWARD MACS", "FLOP/EXAMPLE", "BATCH")


def in_order() -> list[trainings.Bundled]:
    """Return the trainings that --train accepts, in the order that their files give."""
    return sorted(map(trainings.bundled, trainings.names()), key=lambda one: (one.place is None, one.place, one.name))


def workloads(as_json: bool, with_costs: bool) -> None:
    """List what --train accepts: a table, and below it how to go on, or what the numbers mean."""
    if as_json:
        console.result_json([asdict(trainings.bundled(name)) for name in trainings.names()])
        return
    found = in_order()
    frameworks = sorted({name for one in found for name in one.frameworks})
    if with_costs:
        rows = [COSTS, *map(_cost, found)]
    else:
        rows = [HEAD, *((one.name, _data(one), _what(one, frameworks)) for one in found)]
    for line in table(rows, console.columns(sys.stdout), range(1, len(COSTS)) if with_costs else ()):
        console.result(line)
    console.say(_of_the_costs(found) if with_costs else _how_to_go_on(frameworks))


def _what(one: trainings.Bundled, frameworks: Collection[str]) -> str:
    only = "" if set(one.frameworks) == set(frameworks) else f" ({_named(sorted(one.frameworks))} only)"
    return (one.what or one.summary) + only


def _data(one: trainings.Bundled) -> str:
    """Name the data that the training uses unless --data says otherwise."""
    if one.data_folder == "cifar10":
        return "CIFAR-10"
    return "synthetic" if one.parameters else "none"


def _cost(one: trainings.Bundled) -> tuple[str, ...]:
    return one.name, *(f"{n:,}" for n in (one.parameters, one.forward_macs, one.flops_per_example, one.batch))


def _of_the_costs(found: Sequence[trainings.Bundled]) -> str:
    forward = ", ".join(one.name for one in found if not one.trains)
    return (
        "MACs are multiply-accumulates per example; FLOP/EXAMPLE is for a whole training step "
        f"({forward}: the forward pass), 2 per MAC; both count only convolutions and matrix products. "
        "Sources: ngcdl workloads --json"
    )


def _how_to_go_on(frameworks: Sequence[str]) -> str:
    return (
        f"they train in {_named(frameworks)}. What each costs, how to train one, and to ask its question:\n"
        "    ngcdl workloads --costs\n    ngcdl run --train cifar10\n    ngcdl compare --train resident"
    )


def _named(frameworks: Sequence[str]) -> str:
    *others, last = (trainings.WRITTEN.get(name, name) for name in frameworks)
    return f"{', '.join(others)} and {last}" if others else last
