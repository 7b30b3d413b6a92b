"""Why measured runs can't be compared, each reason with the name of a field.

There are two kinds: a field differs that must be the same in all runs (unless it was varied on purpose), or something
happened to a run that spoils its figures.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any, Literal

from ngcdl.figures import NOT_AVAILABLE
from ngcdl.frozen import dataclass
from ngcdl.record import Run
from ngcdl.report.measured import lines, naming, throttling, tuned
from ngcdl.report.measured.case import is_command
from ngcdl.spec import Workload

# What is varied -> the fields that differ because of it. All others must be the same.
BECAUSE_OF: Mapping[str, frozenset[str]] = {
    **{
        one: frozenset({one})
        for one in ("device", "batch", "threads", "seed", "feed", "precision", "teacher", "gpus", "nodes")
    },
    "compile": frozenset({"compiled"}),
    "channels": frozenset({"channels_last"}),
    # another image brings another release of its framework, or another framework
    **dict.fromkeys(("image", "framework"), frozenset({"digest", "framework", "framework_version"})),
}
_PLAIN = {one.name: one.default for one in fields(Workload) if one.name not in ("name", "steps", "batch")}
# Parts of the spec that other fields cover better: a tag may move, a digest can't; the command follows from the
# workload; the cards that the run got matter, not those that were requested.
_DERIVED = frozenset(
    {"image", "command", "gpus", "replicas", "nodes", "workload", "tty", "stdin", "placement", "packages"}
)
# Parts of the placement on a cluster that may affect the speed: the others say who pays, and where files come from.
_OF_PLACE = frozenset({"nodes", "partition", "container", "cpus", "options", "patches"})
_DERIVED_OF_WORKLOAD = frozenset({"device", "data", "compile", "largest_batch", "autotune"})
# What is varied -> what may differ between the arms if it was not requested: a card computes in TF32 and the CPU in
# float32, and a framework lays out images as its device computes them fastest in that precision.
_LEFT: Mapping[str, tuple[str, ...]] = {
    "device": ("precision", "channels_last"),
    **dict.fromkeys(("precision", "image", "framework"), ("channels_last",)),
}
# For a command of the user's own, varying the device or the GPUs changes the cards that the run is given.
_OF_COMMAND: Mapping[str, frozenset[str]] = dict.fromkeys(("device", "gpus"), frozenset({"gpus", "gpu_way"}))
# Fields that framework and card choose by default -> the option that makes them the same in all runs.
_SAME_BY = {"precision": "--precision float32", "channels_last": "--channels-last"}
_NAMES = {"name": "workload"}
# Fields that may be None in some of the runs: an older trainer did not report them, or the run trains nothing.
_MAY_BE_UNKNOWN = frozenset({"precision", "channels_last", "hardware", "ngcdl"})
_CALLED = {"gpus": "GPUs", "gpu_way": "GPU access"}
_OF_START = ("framework", "framework_version", "parameters", "dataset_images", "dataset_sha256")
TOO_FEW_STEPS = "too few steps: none are left after the start-up"
# Why a card slows down in one round and not in the next: heat, supply. Its power limit is not among them, as a card
# under load runs at it in every round.
_SLOWDOWNS = tuple(reason.name for reason in throttling.REASONS if reason.is_damage)


@dataclass(frozen=True)
class MeasuredRun:
    """One run with what its trainer reported: `start` is the last start event, {} if there is none; `error` is the kind
    of the error that ended the run, None if there was none."""

    run: Run
    start: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None

    @classmethod
    def of(cls, run: Run, events: Iterable[lines.Line]) -> MeasuredRun:
        start, error = lines.last_attempt(events)
        return cls(run, start, lines.text(error.get("kind")))


@dataclass(frozen=True)
class Entry:
    """The run of `arm` in `round`. `device` is what the run was meant to compute on, None if that was left open."""

    arm: str
    round: int
    measured: MeasuredRun
    device: str | None = None

    @property
    def label(self) -> str:
        return f"{self.arm}, round {self.round}"

    @property
    def run(self) -> Run:
        return self.measured.run


@dataclass(frozen=True)
class Refusal:
    """`kind`: the runs "differ" in `field`, or are "unfinished" (`field` is "status"), or something "happened" to them.
    `values`: what was found, by the label of the run; if runs differ, also the value of the run they differ from.

    `why` is None if the record does not say why a run is unfinished. `runs` are the ids of the refused runs."""

    kind: Literal["differ", "unfinished", "happened"]
    field: str
    values: Mapping[str, Any]
    why: str | None
    runs: tuple[str, ...]

    @property
    def name(self) -> str:
        """The field, as a reader calls it."""
        return _CALLED.get(self.field, self.field.replace("_", " "))

    @property
    def text(self) -> str:
        return self.why or "it did not finish"

    def as_json(self) -> dict[str, Any]:
        return {"field": self.field, "values": self.values, "why": self.text, "runs": self.runs}


def written(value: object) -> str:
    """Write a value of a refusal, or of a condition: n/a, yes, none, a list's items, or what was set: LR=1."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        value = [f"{name}={written(one)}" for name, one in value.items()]
    if isinstance(value, (list, tuple)):
        return ", ".join(map(written, value)) or "none"
    return NOT_AVAILABLE if value is None else str(value)


def refusals(
    entries: Sequence[Entry], vary: str, *, is_weak: bool = False, by_duration: bool = False
) -> tuple[Refusal, ...]:
    """Return every reason to refuse a run. If something happened to a run, its other fields are not checked.

    `is_weak`: each replica has the same batch (weak scaling), so the global batch may differ. `by_duration`: the runs'
    durations are compared, not their speeds."""
    happened = [refusal for entry in entries for refusal in _happened(entry, by_duration)]
    spoilt = {run for refusal in happened for run in refusal.runs}
    whole = [entry for entry in entries if entry.run.id not in spoilt]
    free = BECAUSE_OF.get(vary, frozenset()) | ({"batch"} if is_weak else set())
    if all(is_command(entry.run) for entry in entries):
        free |= _OF_COMMAND.get(vary, frozenset())
    return (*_merged(happened), *_unequal(whole, vary, free))


# -- what must not have happened ------------------------------------------------------------------------------------


def _happened(entry: Entry, by_duration: bool) -> list[Refusal]:
    run, found = entry.run, []
    is_silent = run.device is None and is_command(run)  # most commands do not report their device

    def refuse(name: str, value: Any, why: str) -> None:
        found.append(Refusal("happened", name, {entry.label: value}, why, (run.id,)))

    if entry.measured.error == "no_gpu" or _fell_back(entry):
        refuse("device", run.device, "it was meant to compute on the GPU, but its framework saw none")
    elif run.status != "finished":
        found.append(Refusal("unfinished", "status", {entry.label: run.status}, run.reason or None, (run.id,)))
    elif entry.device == "cpu" and is_silent and run.gpus:
        refuse("device", "gpu", "it was to have no GPU, but one of its processes computed on one")
    elif entry.device and run.device != entry.device and not is_silent:
        refuse("device", run.device, f"it was meant to compute on the {entry.device.upper()}")
    elif by_duration:
        if run.seconds is None:
            refuse("seconds", None, "how long it took is not known")
    elif run.summary.examples_per_second is None:
        refuse("examples_per_second", None, _why_silent(entry))
    if run.device == "gpu" or is_silent:
        if run.summary.shared_gpu:
            refuse("shared_gpu", True, "other processes computed on its card at the same time")
        for reason, share in throttled(run).items():
            if share >= throttling.SHARE:
                refuse("throttled_share", {reason: round(share, 3)}, f"the clocks were held down ({reason})")
    return found


def _why_silent(entry: Entry) -> str:
    if entry.run.workload or entry.measured.start:
        return TOO_FEW_STEPS
    is_queued = is_command(entry.run) and entry.run.kind.is_cluster
    return "no speed was reported, and the time includes the queue's" if is_queued else "no speed was reported"


def _fell_back(entry: Entry) -> bool:
    """Return whether the run had a card, but computed on the CPU without being told to."""
    run = entry.run
    told = run.workload.get("device")
    return run.device == "cpu" and told != "cpu" and (entry.device == "gpu" or bool(run.gpus))


def throttled(run: Run) -> Mapping[str, float]:
    """Return the share (0..1) of each reason for which the run's cards slowed down; {} if none is known."""
    shares = run.summary.throttled_share or {}
    return {name: share for name in _SLOWDOWNS if (share := lines.number(shares.get(name)))}


def _merged(refused: Iterable[Refusal]) -> list[Refusal]:
    """Merge refusals for the same field and reason; of unfinished runs only those with the same status."""
    found: dict[tuple[str | None, ...], Refusal] = {}
    for one in refused:
        same = (one.field, one.why, *(str(value) for value in one.values.values() if one.kind == "unfinished"))
        old = found.get(same)
        found[same] = replace(old, values={**old.values, **one.values}, runs=old.runs + one.runs) if old else one
    return list(found.values())


# -- what must be the same ------------------------------------------------------------------------------------------


def _unequal(entries: Sequence[Entry], vary: str, free: frozenset[str]) -> list[Refusal]:
    asked = [in_full(entry.run.workload) for entry in entries]
    left = _LEFT.get(vary, ())  # an own command has no such options
    free |= {name for name in left if all(one.get(name, _PLAIN[name]) == _PLAIN[name] for one in asked)}
    by_run = {entry.run.id: _fields(entry.measured) for entry in entries}
    arms = [[entry for entry in entries if entry.arm == arm] for arm in dict.fromkeys(entry.arm for entry in entries)]
    found = []
    for name in dict.fromkeys(name for values in by_run.values() for name in values):
        for group in arms if name in free else [entries]:
            found += _odd(name, group, {entry.run.id: by_run[entry.run.id].get(name) for entry in group})
    return found


def _odd(name: str, group: Sequence[Entry], values: Mapping[str, Any]) -> list[Refusal]:
    """Refuse the runs that differ from the majority; in a tie, the first run's value counts."""
    if name in _MAY_BE_UNKNOWN:
        group = [entry for entry in group if values[entry.run.id] is not None]
        values = {entry.run.id: values[entry.run.id] for entry in group}
    spelt = {run: json.dumps(value, sort_keys=True, default=str) for run, value in values.items()}
    counted = Counter(spelt.values())
    if len(counted) < 2:
        return []
    usual = counted.most_common(1)[0][0]
    odd = tuple(run for run, text in spelt.items() if text != usual)
    model = next(entry for entry in group if spelt[entry.run.id] == usual)
    shown = {entry.label: values[entry.run.id] for entry in group if entry is model or entry.run.id in odd}
    same = f"; to make it the same in all: {_SAME_BY[name]}" if name in _SAME_BY else ""
    why = f"it must be the same in all runs, but is not that of {model.label}{same}"
    return [Refusal("differ", name, shown, why, odd)]


def _fields(measured: MeasuredRun) -> dict[str, Any]:
    run, spec, start = measured.run, measured.run.spec or {}, measured.start
    asked = run.workload
    machine = run.machine
    return {
        **{_NAMES.get(key, key): value for key, value in in_full(asked).items() if key not in _DERIVED_OF_WORKLOAD},
        # if no number was requested: as many as there are, or as --autotune chose
        **({"threads": asked.get("threads") or tuned.chosen(start).get("threads") or "all"} if asked else {}),
        "oneDNN": tuned.onednn(start),
        **naming.computed(run, start),
        "dataset": run.dataset,
        "digest": run.image.identity,
        "packages": list(run.packages or ()),
        **{name: start.get(name) for name in _OF_START},
        **{key: value for key, value in spec.items() if key not in _DERIVED},
        **{name: value for name, value in run.placement.items() if name in _OF_PLACE},
        "hardware": _kinds(run, start) if run.kind.is_cluster else None,  # elsewhere "gpus" names the cards
        "command": naming.typed(run),
        "engine": run.engine,
        "gpu_way": run.gpu_way,
        "device": run.device,
        "gpus": sorted(run.gpus) if run.gpus is not None else None,
        "machine": [machine.hostname, machine.cpu, machine.cores],
        "driver": machine.driver,
        "ngcdl": run.ngcdl if asked else None,  # ngcdl brings the trainer, but only watches a command
    }


def _kinds(run: Run, start: Mapping[str, Any]) -> list[str] | None:
    """Name the models of the cards, or of the processors, that a cluster provided; None if not reported."""
    cards = {gpu.name for gpu in run.summary.gpus if gpu.name}
    return sorted(cards or {*(lines.texts_in(start.get("devices")) or ())}) or None


def in_full(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the requested training; an option that did not exist when the record was written gets its default."""
    return {**_PLAIN, **asked} if asked else {}
