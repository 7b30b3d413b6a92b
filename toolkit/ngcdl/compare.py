"""The same training in turn, with one thing varied: its runs begun, seen through, kept, and compared.

Rounds are A B, B A, A B ...: what drifts on the machine meanwhile meets each arm early as often as late. All runs begin
from one preparation; each is an ordinary recorded run. The comparison is the ids of its runs, and lies beside theirs:

    $XDG_STATE_HOME/ngcdl/comparisons/<id>.json     written whole after each change, FORMAT 1
        format, id, vary, repeat, started, finished (null: it did not reach its end), remarks [],
        arms [{name, device}], trials [{arm, round, run}] in the order of time
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from ngcdl import choice, console, launch, prepare, store
from ngcdl.errors import NgcdlError, NoGpu, NoSuchComparison, RecordBroken, StateNotWritable
from ngcdl.interrupt import TIME_IS_UP, Interrupted
from ngcdl.prepare import Asked, Settled
from ngcdl.record import Run
from ngcdl.report.comparison import Arm, Comparison, comparison
from ngcdl.report.unlike import Measured
from ngcdl.settings import Settings
from ngcdl.spec import GpuRequest
from ngcdl.store import Store

FORMAT = 1
FOLDER = "comparisons"


class Show(prepare.Show, launch.Show, Protocol):
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
        )


# -- before ---------------------------------------------------------------------------------------------------------


def settle(
    variants: Sequence[Variant], settings: Settings, shelf: Store, show: Show
) -> tuple[list[tuple[Variant, Settled]], tuple[str, ...]]:
    """Prepare all arms, and say what can't be measured here. Raises NgcdlError; then nothing was recorded.

    The engine, the cards and the data are chosen once, for the last arm: of CPU and GPU that is the one that may not
    be possible. Where it isn't, it is left out with its reason.
    """
    last = variants[-1]
    first = prepare.settle(last.asked, settings, shelf, show)
    ready, remarks = [], []
    for variant in variants:
        if variant.device == "gpu" and first.picked.gpus.kind == "none":
            remarks.append(f"the GPU can't be measured here: {first.picked.way.why}")
            continue
        ready.append((variant, _settled(variant, first, settings, shelf, show)))
    if not ready:
        raise NoGpu(str(last.asked.gpus), first.picked.way.why)
    return ready, tuple(remarks)


def _settled(variant: Variant, first: Settled, settings: Settings, shelf: Store, show: Show) -> Settled:
    asked = variant.asked
    if (asked.image, asked.gpus) == (first.asked.image, first.asked.gpus):
        return replace(first, asked=asked, picked=choice.heard(first.picked, asked.device))
    if asked.gpus == first.asked.gpus and first.picked.uuids:
        asked = replace(asked, gpus=GpuRequest("devices", devices=first.picked.uuids))  # the same cards for all
    return replace(prepare.settle(asked, settings, shelf, show, first.data), asked=asked)


# -- the runs -------------------------------------------------------------------------------------------------------


class Comparing:
    """A comparison on its way. What it has so far is always in its file."""

    def __init__(
        self,
        arms: Mapping[str, Settled],
        kept: Kept,
        shelf: Store,
        show: Show,
        until: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`arms` are in their order, by name; all can begin at once. At `until` (s since the epoch) the run under
        way is stopped, and no other begins."""
        self.arms, self._shelf, self._show = arms, shelf, show
        self._left, self._until, self._clock = list(arms), until, clock
        self.kept = kept

    def go(self) -> None:
        """Run all rounds. Raises Interrupted, or KeyboardInterrupt, once the run under way was stopped and recorded.

        An arm whose run did not end well is not tried again; without a second arm there is nothing to go on for.
        """
        save(self.kept, self._shelf)
        for number in range(1, self.kept.repeat + 1):
            if not self._round(number):
                break
        self.kept = replace(self.kept, finished=time.time())
        save(self.kept, self._shelf)

    def _round(self, number: int) -> bool:
        """Run one round, and tell whether another can follow."""
        for name in self._left[:: 1 if number % 2 else -1]:
            if self._is_late():
                return False
            if not self._run(name, number):
                self._left.remove(name)
        if number == self.kept.repeat or self._is_late():
            return False
        is_over = len(self._left) < min(2, len(self.arms)) or self._left[0] != next(iter(self.arms))
        if is_over:
            self._end("nothing is left to compare with: no further rounds")
        return not is_over

    def _is_late(self) -> bool:
        late = self._until is not None and self._clock() > self._until
        if late:
            self._time_is_up()
        return late

    def _time_is_up(self) -> None:
        often = f"{self.kept.repeat} rounds were" if self.kept.repeat > 1 else "its runs were"
        self._end(f"the time is up: not all {often} finished")

    def _end(self, why: str) -> None:
        if why in self.kept.remarks:
            return
        self._show.say(why)
        self.kept = replace(self.kept, remarks=(*self.kept.remarks, why))

    def _run(self, name: str, number: int) -> bool:
        """See one run through, and tell whether it ended well."""
        place = f"round {number} of {self.kept.repeat}"
        ready = prepare.begin(self.arms[name], self._shelf, f"compare {self.kept.id}: {name}, {place}")
        self.kept = replace(self.kept, trials=(*self.kept.trials, Trial(name, number, ready.run.id)))
        save(self.kept, self._shelf)
        try:
            run = launch.follow(ready, self._shelf, self._show, until=self._until)
        except NgcdlError as error:
            run = self._shelf.load(ready.run.id)
            self._show.say(f"{place}, {name}: {error.message}\n{error.hint}".rstrip())
        else:
            self._show.say(f"{place}, {name}: {_told(run)}")
        if run.reason == TIME_IS_UP:
            self._time_is_up()
        elif run.status == "interrupted":
            raise Interrupted((run.exit_code or 128) - 128)
        return run.status == "finished"


def _told(run: Run) -> str:
    figures = run.summary
    if run.status != "finished":
        return f"{run.status}{f', {run.reason}' if run.reason else ''} ({run.id})"
    if figures.examples_per_second is None or figures.seconds_per_batch is None:
        return f"too few steps for a figure ({run.id})"
    rate, each = console.measured(figures.examples_per_second), console.measured(figures.seconds_per_batch, 4)
    return f"{rate} examples/s, {each} s/batch ({run.id})"


# -- afterwards -----------------------------------------------------------------------------------------------------


def compared(kept: Kept, shelf: Store) -> Comparison:
    """Compare what the records of its runs say. A record that is gone or broken leaves a gap, and is said."""
    measured: dict[tuple[str, int], Measured] = {}
    remarks = list(kept.remarks)
    if kept.finished is None:
        planned = kept.repeat * len(kept.arms)
        remarks.append(f"it did not reach its end: {len(kept.trials)} of {planned} runs were begun")
    for trial in kept.trials:
        try:
            run = shelf.load(trial.run)
        except NgcdlError as error:
            remarks.append(f"{trial.arm}, round {trial.round}: {error.message}")
            continue
        measured[trial.arm, trial.round] = Measured.of(run, store.lines(shelf.folder(run.id) / store.EVENTS))
    rounds = range(1, max((trial.round for trial in kept.trials), default=0) + 1)
    arms = [Arm(name, tuple(measured.get((name, n)) for n in rounds), device) for name, device in kept.arms]
    return comparison(arms, kept.vary, remarks)


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


def find(name: str, shelf: Store) -> str:
    """Give the id that `name` means: last, an id, or the beginning or end of just one. Raises NoSuchComparison."""
    folder = shelf.root.with_name(FOLDER)
    ids = sorted((path.stem for path in folder.glob("[!.]*.json")), key=store.age)
    found = ids[-1:] if name == "last" else [one for one in ids if one == name]
    found = found or [one for one in ids if name and (one.startswith(name) or one.endswith(name))]
    if len(found) != 1:
        raise NoSuchComparison(name, folder)
    return found[0]


def load(name: str, shelf: Store) -> Kept:
    """Give the comparison that `name` means. Raises NoSuchComparison or RecordBroken."""
    path = _path(shelf, find(name, shelf))
    try:
        with store.opened(path) as file:
            return Kept.from_json(json.load(file))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RecordBroken(path, str(error)) from error
