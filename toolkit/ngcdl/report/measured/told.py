"""What a run's events tell, read once: the steps into columns, of other lines what the record needs. Pure.

A million steps take some 50 MB. Another line takes at most 26 bytes, whatever a script writes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate, chain, compress, groupby, islice, pairwise, repeat
from math import inf, isfinite, isnan, nan
from operator import lt
from struct import pack
from typing import Any

from ngcdl.report.measured import tuned
from ngcdl.report.measured.attempts import Attempt
from ngcdl.report.measured.column import NO_NUMBER, Column
from ngcdl.report.measured.lines import TOGETHER, Line, are_numbers, column, number, numbers_in

_FIGURES = ("loss", "examples_per_second", "seconds_per_batch", "teacher_seconds_per_batch")
_OF_A_STEP = ("t", "step", *_FIGURES, "input_seconds_per_batch", "latency_seconds")
_OTHER, _EVAL, _RACED, _FINISH = range(4)
_KINDS = {"eval": _EVAL, "raced": _RACED, "finish": _FINISH}
_LAST = 2**63 - 1  # no step has a greater number


class _Steps:
    """The steps since the last start that did not resume, without those that a later attempt redid."""

    def __init__(self) -> None:
        self.steps = array("q")  # their numbers
        self.figures = {name: Column() for name in _FIGURES}
        self.latencies, self.counts = Column(), array("q")  # how many each step has; empty until one has any

    def add(self, steps: Sequence[float], figures: Iterable[Sequence[float]], latencies: Sequence[list[float]]) -> None:
        if self.counts or any(latencies):
            self.counts.extend(repeat(0, len(self.steps) - len(self.counts)))
            self.counts.extend(map(len, latencies))
            self.latencies.extend([*chain.from_iterable(latencies)])
        self.steps.frombytes(pack(f"{len(steps)}q", *steps))
        for one, values in zip(self.figures.values(), figures, strict=True):
            one.extend(values)

    def keep(self, are_kept: Sequence[int]) -> None:
        self.latencies.keep(bytes(chain.from_iterable(map(repeat, are_kept, self.counts))))
        self.counts = array("q", compress(self.counts, are_kept))
        self.steps = array("q", compress(self.steps, are_kept))
        for one in self.figures.values():
            one.keep(are_kept)


class _Others:
    """The other lines that count: those with a number of steps done, and results of tests. A line without such a number
    is kept when a later attempt redoes steps."""

    def __init__(self) -> None:
        self.kinds, self.are_whole = bytearray(), bytearray()
        self.steps, self.precisions = array("d"), array("d")
        self.at = array("q")  # how many steps are before the line

    def add(self, kind: int, step: float | None, precision: float | None, at: int) -> None:
        self.kinds.append(kind)
        self.are_whole.append(type(step) is int)
        self.steps.append(nan if step is None else step)
        self.precisions.append(nan if precision is None else precision)
        self.at.append(at)

    def keep(self, are_kept: Sequence[int], steps_before: Sequence[int]) -> None:
        """`steps_before`: how many of the steps before each are kept."""
        self.kinds, self.are_whole = (bytearray(compress(one, are_kept)) for one in (self.kinds, self.are_whole))
        self.steps, self.precisions = (array("d", compress(one, are_kept)) for one in (self.steps, self.precisions))
        self.at = array("q", (steps_before[at] for at in compress(self.at, are_kept)))

    def told(self, kind: int) -> list[float]:
        """Return the precisions that lines of this kind tell."""
        return [one for found, one in zip(self.kinds, self.precisions, strict=True) if found == kind and one == one]


class Told:
    """What the events of a run tell. `last` is the last line, None if there is none; `start` the last start event, and
    `error` the error that ended the last attempt; {} if there is none."""

    def __init__(self, events: Iterable[Line] = ()) -> None:
        self.last: Line | None = None
        self.start: Line = {}
        self.error: Line = {}
        self.out_of_memory = False  # whether the last attempt reported that it ran out of memory
        self.oom: Line = {}  # the last event of a search for the largest batch
        self.has_finished = False
        self.has_failed_trials = False  # of a search for the fastest settings
        self.asked: dict[str, float] = {}  # the last number of each name in start events
        self._attempts = [Attempt()]
        self._waited, self._whole = Column(), Column()
        self._steps, self._others = _Steps(), _Others()
        self._read(events)

    @cached_property
    def waited_share(self) -> float | None:
        """The share (0..1) of the steps' time spent waiting for batches; None if no step tells it."""
        whole = sum(self._whole.numbers())
        return sum(self._waited.numbers()) / whole if whole > 0 else None

    @property
    def attempts(self) -> list[Attempt]:
        """The attempts with two or more logged steps: one step alone doesn't show for how long it trained."""
        return [one for one in self._attempts if one.count > 1]

    @property
    def has_steps(self) -> bool:
        return bool(self._steps.steps)

    def numbers(self, name: str) -> Sequence[float]:
        """Return the known figures called `name` of the steps that count, in their order."""
        return self._steps.figures[name].numbers(self._latest)

    @property
    def latencies(self) -> Sequence[float]:
        if self._latest is None:
            return self._steps.latencies.numbers()
        ends = array("q", accumulate(self._steps.counts, initial=0))
        rows = self._latest if self._steps.counts else ()
        return self._steps.latencies.numbers(at for row in rows for at in range(ends[row], ends[row + 1]))

    @property
    def precisions(self) -> list[float]:
        """Return the results of the trainings from scratch; the last test's if there were none."""
        return self._others.told(_RACED) or self._others.told(_EVAL)[-1:]

    @cached_property
    def diverged(self) -> int | None:
        """The step from which on no loss was finite; None if the last loss was."""
        losses, since = self._steps.figures["loss"].values, None
        if inf not in losses:
            return None
        for row in range(len(losses)) if self._latest is None else self._latest:
            if losses[row] == inf:
                since = row if since is None else since
            elif losses[row] == losses[row]:
                since = None
        return None if since is None else self._steps.steps[since]

    @property
    def reached(self) -> int | None:
        """How many steps were done, summed over several trainings from scratch."""
        it, steps = self._others, self._steps.steps
        most = {training: max(steps[at:to]) for training, (at, to) in enumerate(self._trainings) if at < to}
        trainings = 0
        for kind, step, is_whole in zip(it.kinds, it.steps, it.are_whole, strict=True):
            trainings += kind == _RACED
            if is_whole:
                training = 0 if kind == _FINISH else trainings  # it comes last, and has the steps of a single training
                most[training] = max(most.get(training, int(step)), int(step))
        return sum(most.values()) if most else None

    @property
    def _trainings(self) -> Iterable[tuple[int, int]]:
        """Where the steps of each training from scratch begin and end: a `raced` event ends one."""
        raced = [at for kind, at in zip(self._others.kinds, self._others.at, strict=True) if kind == _RACED]
        return pairwise([0, *raced, len(self._steps.steps)])

    @cached_property
    def _latest(self) -> Sequence[int] | None:
        """The row of each step in the order of their first reports, the later row if there are two; None: all rows."""
        found, is_all = array("q"), True
        for at, to in self._trainings:
            steps = self._steps.steps[at:to]
            if all(map(lt, steps, islice(steps, 1, None))):
                found.extend(range(at, to))
            else:
                is_all = False
                found.extend(at + row for row in _last_reports(steps))
        return None if is_all else found

    def _read(self, events: Iterable[Line]) -> None:
        found: list[tuple[Any, ...]] = []
        for event in events:
            self.last, kind = event, event.get("event")
            if kind == "step":
                found.append(tuple(map(event.get, _OF_A_STEP)))
                if len(found) < TOGETHER:
                    continue
            elif kind not in ("start", "raced"):  # before or after which steps it stands does not matter
                self._hear(kind, event)
                continue
            self._add(found)
            found = []
            if kind != "step":
                self._hear(kind, event)
        self._add(found)

    def _add(self, found: Sequence[tuple[Any, ...]]) -> None:
        if not found:
            return
        times, steps, losses, rates, seconds, taught, waited, latencies = zip(*found, strict=True)
        # For the first step the trainer leaves these null, because that step includes the framework's start-up.
        each, per_second, numbers = column(seconds), column(rates), column(steps)
        self._attempts[-1].add(column(times), numbers, per_second, each)
        self._add_waited(column(waited), each)
        known = losses if are_numbers(losses) else [*map(_loss, losses)]
        teacher = [one if whole else None for one, whole in zip(taught, seconds, strict=True)]
        figures = [known, per_second, each, column(teacher)]
        lists = [*map(numbers_in, latencies)]
        are_steps = [type(step) is int and -_LAST <= step <= _LAST for step in numbers]
        if not all(are_steps):
            numbers, lists = [*compress(numbers, are_steps)], [*compress(lists, are_steps)]
            figures = [[*compress(one, are_steps)] for one in figures]
        self._steps.add(numbers, figures, lists)

    def _add_waited(self, waited: Sequence[float], whole: Sequence[float]) -> None:
        if isnan(sum(waited)) or isnan(sum(whole)):
            both = [one == one and each == each for one, each in zip(waited, whole, strict=True)]
            waited, whole = [*compress(waited, both)], [*compress(whole, both)]
        self._waited.extend(waited)
        self._whole.extend(whole)

    def _hear(self, kind: object, event: Line) -> None:
        if kind == "start":
            self._begin(event)
        elif kind == "error":
            self.error = event
            self.out_of_memory = self.out_of_memory or event.get("kind") == "out_of_memory"
        elif kind == "oom":
            self.oom = event
        elif kind == "finish":
            self.has_finished = True
        self.has_failed_trials = self.has_failed_trials or tuned.has_failed(event)
        place = _KINDS.get(kind, _OTHER) if isinstance(kind, str) else _OTHER
        step: Any = number(event.get("step"))
        if place in (_EVAL, _RACED) or (type(step) is int and kind != "error"):
            self._others.add(place, step, number(event.get("precision_at_1")), len(self._steps.steps))

    def _begin(self, start: Line) -> None:
        """Begin an attempt: it continues from a checkpoint, or begins anew without one."""
        self.start, self.error, self.out_of_memory = start, {}, False
        self.asked.update({name: one for name, value in start.items() if (one := number(value)) is not None})
        if self._attempts[-1].count > 1:
            self._attempts.append(Attempt())
        else:
            self._attempts[-1] = Attempt()
        resumed = number(start.get("resumed_from_step"))
        if resumed is None:
            self._steps, self._others = _Steps(), _Others()
            return
        # A step event has its step's number, from 0; other events have the number of steps done.
        are_kept = bytes(step < resumed for step in self._steps.steps)
        before = array("q", accumulate(are_kept, initial=0))
        self._others.keep(bytes(not step > resumed for step in self._others.steps), before)
        self._steps.keep(are_kept)


def _last_reports(steps: Sequence[int]) -> Iterable[int]:
    """Return the row of the last report of each step, in the order of their first reports."""
    size = len(steps)
    # a pair of rows as one number: a million of them take half the memory of a dict
    placed = sorted(step * size + row for row, step in enumerate(steps))
    reports = ([one % size for one in some] for _, some in groupby(placed, lambda one: one // size))
    return (pair % size for pair in sorted(rows[0] * size + rows[-1] for rows in reports))


def _loss(value: object) -> float:
    """Return a loss; inf for NaN and infinities, NO_NUMBER for what is no number at all, NaN if there is none."""
    if value is None:
        return nan
    known = number(value)
    if known is not None:
        return known
    return inf if isinstance(value, float) and not isfinite(value) else NO_NUMBER
