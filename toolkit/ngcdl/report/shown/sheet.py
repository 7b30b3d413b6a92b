"""What a run logged, as CSV: a row for each event or reading, all of them, in file order.

    run, kind     step | eval | epoch (of the training), sample (of the machine), gpu (one card of the sample before)
    t, seconds    s since the epoch, and since the run's start
    step, loss, examples_per_second, seconds_per_batch, learning_rate, precision_at_1, accuracy
    host_cpu_percent (0..100), container_cpu_percent (100 = one core), memory_bytes
    gpu (its index), gpu_uuid, gpu_percent, memory_used_bytes, watts, celsius, sm_mhz, throttle_reasons (joined by +),
                  sm_active_percent, sm_occupancy_percent, tensor_active_percent, dram_bandwidth_percent
    gap           why something is missing in or before this sample
    dataset       what the run trained on: cifar10 | pictures | synthetic (made up)

An empty cell is unknown, not read in this sample, or not applicable. A text that a spreadsheet would interpret as a
formula is prefixed with '.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from typing import Any

from ngcdl.record import Run
from ngcdl.report.measured.lines import TOGETHER, Line, are_numbers, number

_TRAINING = ("step", "loss", "examples_per_second", "seconds_per_batch", "learning_rate", "precision_at_1", "accuracy")
_MACHINE = ("host_cpu_percent", "container_cpu_percent", "memory_bytes")
_CARD = ("gpu_percent", "memory_used_bytes", "watts", "celsius", "sm_mhz")
_ACTIVITY = ("sm_active_percent", "sm_occupancy_percent", "tensor_active_percent", "dram_bandwidth_percent")
COLUMNS = (
    "run", "kind", "t", "seconds", *_TRAINING, *_MACHINE, "gpu", "gpu_uuid", *_CARD, "throttle_reasons", "gap",
    "dataset", *_ACTIVITY,
)  # fmt: skip


def sheet(run: Run, events: Iterable[Line], samples: Iterable[Line], head: bool = True) -> Iterator[str]:
    """Yield the lines, each with its newline, several at once; with `head` the column names come first."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if head:
        writer.writerow(COLUMNS)
    for rows in chain(_training(run, events), _machine(run, samples)):
        writer.writerows(rows)
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    if rest := text.getvalue():
        yield rest


def _training(run: Run, events: Iterable[Line]) -> Iterator[Iterable[Sequence[object]]]:
    """Yield rows of cells. Those of many lines are made at once, a column at a time: it is twice as fast."""
    told = (event for event in events if event.get("event") in ("step", "eval", "epoch"))
    while lines := list(islice(told, TOGETHER)):
        times = _numbers([line.get("t") for line in lines])
        cells = {
            **{name: repeat(value) for name, value in _about(run).items()},
            "kind": [line["event"] for line in lines],
            "t": times,
            "seconds": [_since(run, t) for t in times],
            **{name: _numbers([line.get(name) for line in lines]) for name in _TRAINING},
        }
        yield zip(*(cells.get(name, repeat(None)) for name in COLUMNS), strict=False)


def _machine(run: Run, samples: Iterable[Line]) -> Iterator[Iterable[Sequence[object]]]:
    about = _about(run)
    for sample in samples:
        t = number(sample.get("t"))
        when = {**about, "t": t, "seconds": _since(run, t)}
        machine = {name: number(sample.get(name)) for name in _MACHINE}
        rows = [{**when, "kind": "sample", **machine, "gap": _inert(sample.get("gap"))}]
        cards = sample.get("gpus")
        cards = cards if isinstance(cards, list) else []
        rows += [{**when, "kind": "gpu", **_card(card)} for card in cards if isinstance(card, dict)]
        yield [[row.get(name) for name in COLUMNS] for row in rows]


def _about(run: Run) -> dict[str, object]:
    return {"run": _inert(run.id), "dataset": _inert(run.dataset)}


def _since(run: Run, t: float | None) -> float | None:
    return None if t is None else round(t - run.started, 6)


def _numbers(values: Sequence[Any]) -> Sequence[float | None]:
    """Return `values` with None in place of whatever is not a number."""
    return values if are_numbers(values) or values.count(None) == len(values) else [*map(number, values)]


def _card(card: Line) -> dict[str, object]:
    reasons = card.get("throttle_reasons")
    held = "+".join(str(one) for one in reasons) if isinstance(reasons, list) else None
    figures = {name: number(card.get(name)) for name in (*_CARD, *_ACTIVITY)}
    return {
        "gpu": number(card.get("index")),
        "gpu_uuid": _inert(card.get("uuid")),
        **figures,
        "throttle_reasons": _inert(held),
    }


def _inert(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    value = value.encode("utf-8", "replace").decode("utf-8")
    return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
