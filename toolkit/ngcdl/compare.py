"""The same training with one thing varied: its arms prepared, its runs kept, and compared by their records.

All runs begin from one preparation; each is an ordinary recorded run (rounds.py). The comparison is the ids of its
runs, and lies beside theirs:

    $XDG_STATE_HOME/ngcdl/comparisons/<id>.json     written whole after each change, FORMAT 1
        format, id, vary, repeat, started, finished (null: nobody saw it reach its end), remarks [],
        arms [{name, device}], trials [{arm, round, run}] in the order of time,
        scaling (strong | weak: of machines and cards; null, or missing, elsewhere)
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from ngcdl import choice, meanwhile, prepare, store
from ngcdl.asked import Asked
from ngcdl.asked import Show as Preparing
from ngcdl.errors import NgcdlError, NoGpu, NoSuchComparison, RecordBroken, StateNotWritable
from ngcdl.prepare import Settled
from ngcdl.record import Run
from ngcdl.report.comparison import Arm, Comparison, comparison
from ngcdl.report.unlike import Measured
from ngcdl.settings import Settings
from ngcdl.spec import GpuRequest
from ngcdl.store import Store

FORMAT = 1
FOLDER = "comparisons"
KIND = "compare"  # of their ids, as runs have what they train
STOPPED = "it was stopped: not all of its runs were finished"


class Show(Preparing, meanwhile.Show, Protocol):
    """Where a preparation and a run tell what they do."""


@dataclass(frozen=True)
class Variant:
    """One arm as it is asked for. `device`: what its runs must compute on to count, None where any will do."""

    name: str
    asked: Asked
    device: str | None = None


@dataclass(frozen=True)
class Trial:
    arm: str
    round: int
    run: str


@dataclass(frozen=True)
class Kept:
    """A comparison as its file has it."""

    id: str
    vary: str
    repeat: int
    arms: tuple[tuple[str, str | None], ...]
    started: float
    finished: float | None = None
    remarks: tuple[str, ...] = ()
    trials: tuple[Trial, ...] = ()
    scaling: str | None = None

    def as_json(self) -> dict[str, Any]:
        arms = [{"name": name, "device": device} for name, device in self.arms]
        return {"format": FORMAT, **asdict(self), "arms": arms}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Kept:
        """Raises ValueError, KeyError or TypeError where it is none."""
        if data["format"] > FORMAT:
            raise ValueError(f"it has format {data['format']}, this ngcdl reads up to {FORMAT}: update ngcdl")
        return cls(
            id=str(data["id"]),
            vary=str(data["vary"]),
            repeat=int(data["repeat"]),
            arms=tuple((str(arm["name"]), arm["device"]) for arm in data["arms"]),
            started=float(data["started"]),
            finished=data["finished"],
            remarks=tuple(str(remark) for remark in data["remarks"]),
            trials=tuple(Trial(str(one["arm"]), int(one["round"]), str(one["run"])) for one in data["trials"]),
            scaling=data.get("scaling"),
        )


# -- before ---------------------------------------------------------------------------------------------------------


def settle(
    variants: Sequence[Variant], settings: Settings, shelf: Store, show: Show
) -> tuple[list[tuple[Variant, Settled]], tuple[str, ...]]:
    """Prepare all arms, and say what can't be measured here. Raises NgcdlError; then nothing was recorded.

    The engine, the cards and the data are chosen once, for the arm with the most cards, else the last one: of CPU and
    GPU that is the one that may not be possible. Where it isn't, it is left out with its reason.
    """
    hardest = max(reversed(variants), key=lambda variant: variant.asked.gpus.count or 0)
    # A GPU arm alone may find no GPU, which ends a run.
    asked = replace(hardest.asked, device=None) if hardest.device == "gpu" else hardest.asked
    first = prepare.settle(asked, settings, shelf, show)
    ready, remarks = [], []
    for variant in variants:
        if variant.device == "gpu" and first.picked.gpus.kind == "none":
            remarks.append(f"the GPU can't be measured here: {first.picked.way.why}")
            continue
        settled = _settled(variant, first, settings, shelf, show)
        if doubt := prepare.doubt(settled, shelf):
            show.say(f"WARNING: {variant.name}: {doubt}")
        ready.append((variant, settled))
    if not ready:
        is_demanded = hardest.asked.gpus.demanded
        typed, option = (str(hardest.asked.gpus), "--gpus") if is_demanded else ("gpu", "--device")
        raise NoGpu(typed, first.picked.way.why, option=option)
    return ready, tuple(remarks)


def _settled(variant: Variant, first: Settled, settings: Settings, shelf: Store, show: Show) -> Settled:
    asked = variant.asked
    if (asked.image, asked.gpus, asked.placement) == (first.asked.image, first.asked.gpus, first.asked.placement):
        return replace(first, asked=asked, picked=choice.heard(first.picked, asked.device))
    if asked.gpus == first.asked.gpus and first.picked.uuids:
        asked = replace(asked, gpus=GpuRequest("devices", devices=first.picked.uuids))  # the same cards for all
    return replace(prepare.settle(asked, settings, shelf, show, first.data), asked=asked)


# -- afterwards -----------------------------------------------------------------------------------------------------


def compared(kept: Kept, shelf: Store) -> Comparison:
    """Compare what the records of its runs say. A record that is gone or broken leaves a gap, and is said."""
    measured: dict[tuple[str, int], Measured] = {}
    remarks = list(kept.remarks)
    for trial in kept.trials:
        try:
            run = shelf.load(trial.run)
        except NgcdlError as error:
            remarks.append(f"{trial.arm}, round {trial.round}: {error.message}")
            continue
        measured[trial.arm, trial.round] = Measured.of(run, store.lines(shelf.folder(run.id) / store.EVENTS))
    remarks += _unfinished(kept, [one.run for one in measured.values()])
    rounds = range(1, max((trial.round for trial in kept.trials), default=0) + 1)
    arms = [Arm(name, tuple(measured.get((name, n)) for n in rounds), device) for name, device in kept.arms]
    return comparison(arms, kept.vary, remarks, kept.scaling)


def _unfinished(kept: Kept, runs: Sequence[Run]) -> Iterator[str]:
    """Say what is still to come, or never came, of a comparison that nobody saw reach its end."""
    planned, going = kept.repeat * len(kept.arms), sum(run.status == "running" for run in runs)
    if kept.finished is None and going:
        yield f"it goes on: {len(kept.trials) - going} of {planned} runs have ended"
    elif kept.finished is None and len(kept.trials) < planned:
        yield f"it did not reach its end: {len(kept.trials)} of {planned} runs were begun"


def _path(shelf: Store, name: str) -> Path:
    return shelf.root.with_name(FOLDER) / f"{name}.json"


def save(kept: Kept, shelf: Store) -> None:
    """Raises StateNotWritable."""
    path = _path(shelf, kept.id)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StateNotWritable(path.parent, error.strerror or str(error)) from error
    store.write_whole(path, json.dumps(kept.as_json(), indent=1, allow_nan=False) + "\n")


def stop(kept: Kept, shelf: Store) -> None:
    """Close a comparison, so that whoever sees its runs through begins no other. Raises StateNotWritable."""
    if kept.finished is None:
        save(replace(kept, finished=time.time(), remarks=(*kept.remarks, STOPPED)), shelf)


def is_named(name: str) -> bool:
    """Is it a comparison's id, or enough of one, and no run's?"""
    return KIND in name


def find(name: str, shelf: Store) -> str:
    """Give the id that `name` means: last, an id, or the beginning or end of just one. Raises NoSuchComparison."""
    folder = shelf.root.with_name(FOLDER)
    ids = sorted((path.stem for path in folder.glob("[!.]*.json")), key=store.age)
    found = ids[-1:] if name == "last" else [one for one in ids if one == name]
    found = found or [one for one in ids if name and (one.startswith(name) or one.endswith(name))]
    if len(found) != 1:
        raise NoSuchComparison(name, folder, ids)
    return found[0]


def load(name: str, shelf: Store) -> Kept:
    """Give the comparison that `name` means. Raises NoSuchComparison or RecordBroken."""
    path = _path(shelf, find(name, shelf))
    try:
        with store.opened(path) as file:
            return Kept.from_json(json.load(file))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RecordBroken(path, str(error)) from error
