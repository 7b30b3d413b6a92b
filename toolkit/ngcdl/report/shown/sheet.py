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
from collections.abc import Iterable, Iterator, Mapping

from ngcdl.record import Run
from ngcdl.report.measured.lines import Line, number

_TRAINING = ("step", "loss", "examples_per_second", "seconds_per_batch", "learning_rate", "precision_at_1", "accuracy")
_MACHINE = ("host_cpu_percent", "container_cpu_percent", "memory_bytes")
_CARD = ("gpu_percent", "memory_used_bytes", "watts", "celsius", "sm_mhz")
_ACTIVITY = ("sm_active_percent", "sm_occupancy_percent", "tensor_active_percent", "dram_bandwidth_percent")
COLUMNS = (
    "run", "kind", "t", "seconds", *_TRAINING, *_MACHINE, "gpu", "gpu_uuid", *_CARD, "throttle_reasons", "gap",
    "dataset", *_ACTIVITY,
)  # fmt: skip


def sheet(run: Run, events: Iterable[Line], samples: Iterable[Line], head: bool = True) -> Iterator[str]:
    """Yield the lines, each with its newline; with `head` the column names come first."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    if head:
        writer.writeheader()
    about = {"run": _inert(run.id), "dataset": _inert(run.dataset)}
    for row in _rows(run, events, samples):
        writer.writerow({**about, **{name: value for name, value in row.items() if value is not None}})
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    if rest := text.getvalue():
        yield rest


def _rows(run: Run, events: Iterable[Line], samples: Iterable[Line]) -> Iterator[dict[str, object]]:
    for event in events:
        if event.get("event") in ("step", "eval", "epoch"):
            yield {"kind": event["event"], **_when(run, event), **{name: number(event.get(name)) for name in _TRAINING}}
    for sample in samples:
        when = _when(run, sample)
        machine = {name: number(sample.get(name)) for name in _MACHINE}
        yield {"kind": "sample", **when, **machine, "gap": _inert(sample.get("gap"))}
        cards = sample.get("gpus")
        for card in cards if isinstance(cards, list) else ():
            if isinstance(card, Mapping):
                yield {"kind": "gpu", **when, **_card(card)}


def _when(run: Run, line: Line) -> dict[str, object]:
    t = number(line.get("t"))
    return {"t": t, "seconds": None if t is None else round(t - run.started, 6)}


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
