"""What a run logged, as CSV: a row for each event or reading, all of them, in file order.

    run, kind     step | eval | epoch (of the training), sample (of the machine), gpu (one card of the sample before)
    t, seconds    s since the epoch, and since the run's start
    step, loss, examples_per_second, seconds_per_batch, learning_rate, precision_at_1, accuracy
    host_cpu_percent (0..100), container_cpu_percent (100 = one core), memory_bytes
    gpu (its index; of a MIG device that on its card), gpu_uuid
    gpu_percent, memory_used_bytes, watts, celsius, sm_mhz, throttle_reasons (joined by +),
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
from itertools import islice, repeat
from typing import Any

from ngcdl.record import ACTIVITY, Run
from ngcdl.report.measured.lines import TOGETHER, Line, are_numbers, lines_in, number

_TRAINING = ("step", "loss", "examples_per_second", "seconds_per_batch", "learning_rate", "precision_at_1", "accuracy")
_MACHINE = ("host_cpu_percent", "container_cpu_percent", "memory_bytes")
_CARD = ("gpu_percent", "memory_used_bytes", "watts", "celsius", "sm_mhz")
COLUMNS = (
    "run", "kind", "t", "seconds", *_TRAINING, *_MACHINE, "gpu", "gpu_uuid", *_CARD, "throttle_reasons", "gap",
    "dataset", *ACTIVITY,
)  # fmt: skip


def sheet(run: Run, events: Iterable[Line], samples: Iterable[Line], head: bool = True) -> Iterator[str]:
    """Yield the lines, each with its newline, several at once; with `head` the column names come first."""
    if head:
        yield _written([COLUMNS])
    yield from _training(run, events)
    yield from map(_written, _machine(run, samples))


def _written(rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _training(run: Run, events: Iterable[Line]) -> Iterator[str]:
    """Yield lines as _written would. A run may have a million steps: a column of many at once takes a third of the
    time, as few texts need a look for what is to be quoted."""
    constant = {name: repeat(_written([(value, "")])[:-2]) for name, value in _about(run).items()}  # without ,\n
    told = (event for event in events if event.get("event") in ("step", "eval", "epoch"))
    while lines := list(islice(told, TOGETHER)):
        times = [number(line.get("t")) for line in lines]
        cells = {
            **constant,
            "kind": [line["event"] for line in lines],
            "t": _texts(times),
            "seconds": _texts([_since(run, t) for t in times]),
            **{name: _texts([line.get(name) for line in lines]) for name in _TRAINING},
        }
        rows = zip(*(cells.get(name, repeat("")) for name in COLUMNS), strict=False)
        yield "".join(f"{','.join(row)}\n" for row in rows)


def _machine(run: Run, samples: Iterable[Line]) -> Iterator[Iterable[Sequence[object]]]:
    about = _about(run)
    for sample in samples:
        t = number(sample.get("t"))
        when = {**about, "t": t, "seconds": _since(run, t)}
        machine = {name: number(sample.get(name)) for name in _MACHINE}
        rows = [{**when, "kind": "sample", **machine, "gap": _inert(sample.get("gap"))}]
        rows += [{**when, "kind": "gpu", **_card(card)} for card in lines_in(sample.get("gpus"))]
        yield [[row.get(name) for name in COLUMNS] for row in rows]


def _about(run: Run) -> dict[str, object]:
    return {"run": _inert(run.id), "dataset": _inert(run.dataset)}


def _since(run: Run, t: float | None) -> float | None:
    return None if t is None else round(t - run.started, 6)


def _texts(values: Sequence[Any]) -> Sequence[str]:
    """Return the numbers of a column as texts, "" for whatever is none."""
    if values.count(None) == len(values):
        return [""] * len(values)
    if not are_numbers(values):
        return ["" if number(value) is None else str(value) for value in values]
    # orjson is ten times as fast as str, and the same but for the exponents of numbers that have one
    sizes = [*map(abs, values)]
    if max(sizes) < 1e16 and min(sizes) >= 1e-4:
        import orjson

        return orjson.dumps(values).decode()[1:-1].split(",")
    return [*map(str, values)]


def _card(card: Line) -> dict[str, object]:
    reasons = card.get("throttle_reasons")
    held = "+".join(str(one) for one in reasons) if isinstance(reasons, list) else None
    figures = {name: number(card.get(name)) for name in (*_CARD, *ACTIVITY)}
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
