"""The differences between two records: what was requested, what the runs ran on, and the figures with their change.

Each record is a single run, so no change has a spread. If the runs can't be compared, their speeds and results get no
change. What always differs (id, times, container, process ids, the run's folders), variables that ngcdl sets by
itself, and whether ngcdl was on a terminal, are left out. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

from ngcdl.frozen import dataclass
from ngcdl.record import GpuSummary, Run
from ngcdl.report.compared.unlike import in_full
from ngcdl.report.measured.case import is_command
from ngcdl.report.measured.lines import number
from ngcdl.report.measured.naming import PLANNED, place
from ngcdl.report.shown import tables
from ngcdl.report.shown.likeness import SIZES
from ngcdl.spec import USUAL_SAMPLE_SECONDS

_SPEEDS = frozenset({
    "examples_per_second", "seconds_per_batch", "examples_per_joule", "flops_per_second", "peak_share",
    "teacher_seconds_per_batch", "latency_p50_seconds", "latency_p95_seconds",
})  # fmt: skip
_RESULTS = frozenset({"seconds", "loss_first", "loss_last", "precision_at_1", "energy_joules"})
_JOULES_OF_CARD = re.compile(r"gpus\.[\d:/]+\.joules")
_SHARES = "throttled_share"
_EACH_ITS_OWN = frozenset({"id", "format", "started", "finished", "container", "owner", "engine_id", "findings"})
# Fields of the record that people know by other words, as on a report's page.
_CALLED: Mapping[str, str] = {
    "oom_killed": "out of memory", "engine_version": "engine's version", "gpu_way": "GPU access",
    "image.reference": "image", "dataset": "data", "dataset_note": "about the data", "device": "computed on",
    "gpus": "GPUs of the run", "packages": "packages added", "ngcdl": "ngcdl's version", "diagnosis.name": "failure",
    "diagnosis.text": "recognised", "machine.hostname": "machine", "machine.cpu": "processor",
    "machine.memory_bytes": "memory of the machine", "machine.driver": "NVIDIA driver",
    "machine.gpus": "GPUs of the machine", "spec.image": "image requested", "spec.gpus": "GPUs requested",
    "spec.packages": "packages requested", "spec.sample_seconds": "seconds between samples",
    "spec.cpu_limit": "CPU limit", "spec.workload.name": "training", "spec.workload.data": "data requested",
    "spec.workload.device": "device requested", "spec.workload.steps": "steps requested",
    **{f"spec.{name}": called for name, called in SIZES.items()},
}  # fmt: skip
_VARIABLE = "spec.environment."
_OF_CARD = re.compile(r"machine\.gpus\.(\d+)\.(.+)")
_PART = re.compile(r"(spec\.(workload|placement)|spec|machine|diagnosis)\.")
_PLANNED = frozenset(f"{_VARIABLE}{name}" for name in PLANNED)


@dataclass(frozen=True)
class Figure:
    """`change` is relative to `a`: 0.1 is a tenth more; None if a value is unknown, `a` is 0, or none may be given."""

    a: float | None
    b: float | None
    change: float | None


@dataclass(frozen=True)
class Difference:
    """`data`: what each run trained on, None unless at least one has SYNTHETIC data. `refused`: why speeds and results
    can't be compared."""

    a: str
    b: str
    differs: Mapping[str, tuple[Any, Any]]
    figures: Mapping[str, Figure]
    data: tuple[str, str] | None = None
    refused: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """{"a", "b", "data", "refused", "differs": {name: [a's, b's]}, "figures": {name: {"a", "b", "change"}}}"""
        it = asdict(self)
        return {name: it[name] for name in ("a", "b", "data", "refused", "differs", "figures")}


def difference(one: Run, other: Run, refused: Sequence[str] = ()) -> Difference:
    """Compare two records. Figures that neither has are left out; equal ones are kept, with change 0.

    `refused` are the reasons of likeness.py why the runs' speeds and results can't be compared."""
    cards = _cards(one.summary.gpus, other.summary.gpus)
    here, there = _flat(one, cards), _flat(other, cards)
    both = {name: (_at(here, name), _at(there, name)) for name in [*here, *there] if name not in _PLANNED}
    shown = {
        name.removeprefix("summary."): two
        for name, two in both.items()
        if name.startswith("summary.")
        and not name.endswith("index")  # not a figure: which card it is
        and any(number(one) is not None for one in two)
    }
    if all(is_command(run) and run.status == "finished" and not run.kind.is_cluster for run in (one, other)):
        shown = {"seconds": (one.seconds, other.seconds), **shown}
    # commands without steps have no known speed, and their energy gets its change in any case
    has_training = one.summary.steps is not None or other.summary.steps is not None
    apart = {name for name in shown if name in _SPEEDS or (has_training and _is_result(name))} if refused else set()
    return Difference(
        one.id,
        other.id,
        {name: two for name, two in both.items() if not name.startswith("summary.") and two[0] != two[1]},
        {name: _figure(*two, is_related=name not in apart) for name, two in shown.items()},
        (tables.data(one), tables.data(other)) if one.is_synthetic or other.is_synthetic else None,
        tuple(refused) if any(None not in shown[name] for name in apart) else (),
    )


def called(name: str) -> str:
    """Return what people call the field `name` of a record."""
    if name in _CALLED:
        return _CALLED[name]
    if name.startswith(_VARIABLE):
        return f"variable {name.removeprefix(_VARIABLE)}"
    card = _OF_CARD.fullmatch(name)
    lead, bare = (f"GPU {card[1]} of the machine: ", card[2]) if card else ("", _PART.sub("", name, count=1))
    return lead + bare.removesuffix("_bytes").replace("_", " ").replace(".", " ")


def _is_result(name: str) -> bool:
    return name in _RESULTS or _JOULES_OF_CARD.fullmatch(name) is not None


def _figure(here: Any, there: Any, *, is_related: bool) -> Figure:
    a, b = number(here), number(there)
    if not is_related:
        return Figure(a, b, None)
    return Figure(a, b, 0.0 if a == b else (b - a) / abs(a) if a and b is not None else None)


def _cards(one: Sequence[GpuSummary], other: Sequence[GpuSummary]) -> list[str]:
    """Name each pair of cards, in order, by their indexes: 3 if both have it, 3/1 if the other run's card has 1.

    If an index is unknown or not unique, as with several nodes, the cards' positions stand for all indexes."""
    places = [[place(gpu.index, gpu.card_index) for gpu in cards] for cards in (one, other)]
    if any(None in each or len({*each}) < len(each) for each in places):
        places = [[str(at) for at in range(len(each))] for each in places]
    return ["/".join(dict.fromkeys(filter(None, two))) for two in zip_longest(*places)]


def _flat(run: Run, cards: Sequence[str]) -> dict[str, Any]:
    record = {name: value for name, value in run.as_json().items() if name not in _EACH_ITS_OWN}
    if spec := run.spec:  # what an older ngcdl did not know was not asked for
        older = {"packages": [], "sample_seconds": USUAL_SAMPLE_SECONDS}
        record["spec"] = {**older, **spec, "workload": in_full(run.workload) or None}
    gpus = dict(zip(cards, record["summary"]["gpus"], strict=False))
    flat = dict(_leaves("", {**record, "summary": {**record["summary"], "gpus": gpus}}))
    if flat.pop("spec.tty", False):  # what is typed there is no input of the command, as a file or a pipe is
        flat["spec.stdin"] = False
    return flat


def _at(flat: Mapping[str, Any], name: str) -> Any:
    """Return the value of `name`. If shares are known, a reason that never held the clocks down has a share of 0."""
    shares = name.rpartition(".")[0]
    return flat.get(name, 0.0 if shares.endswith(_SHARES) and flat.get(shares) is not None else None)


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        if prefix.endswith(_SHARES):
            yield prefix, value
        for name, one in value.items():
            yield from _leaves(f"{prefix}.{name}" if prefix else str(name), one)
    elif isinstance(value, list | tuple) and any(isinstance(one, Mapping) for one in value):
        for at, one in enumerate(value):
            yield from _leaves(f"{prefix}.{at}", one)
    else:
        yield prefix, list(value) if isinstance(value, tuple) else value
