"""A run's events and samples, read into columns for drawing.

At 8 bytes per figure a run of a million steps and 100,000 samples takes some 50 MB. Lines are read in batches, so that
each check of their numbers is done on a whole batch at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from functools import partial
from itertools import chain, compress, islice, pairwise, zip_longest
from math import inf, isnan
from operator import itemgetter
from typing import Any

from ngcdl.frozen import dataclass
from ngcdl.record import Run
from ngcdl.report.measured import naming, raced, throttling
from ngcdl.report.measured.attempts import merged
from ngcdl.report.measured.lines import (
    TOGETHER,
    Line,
    are_numbers,
    column,
    lines_in,
    number,
    numbers_in,
    text,
    texts_in,
)
from ngcdl.report.measured.taken import MOST_CARDS
from ngcdl.report.shown.curves import NAN, Curve
from ngcdl.report.shown.story import CardCurves, SampledCurves, Story, Throttled, Training
from ngcdl.spec import USUAL_SAMPLE_SECONDS

# A state that two samples report is taken to have held between them, too, if one at most is missing there.
_SAMPLES_APART = 2.5
# Readings of a card that are left out of some samples when sampling faster (telemetry/sample.py).
_IN_WHOLE = frozenset({"memory_used_bytes", "sm_mhz", "throttle_reasons"})
_STEP = ("event", "t", "examples_per_second", "step", "loss")
_OF_A_STEP = itemgetter(*_STEP)
# A Rest holds at most this many lines other than steps, each in full: no bundled training writes a hundredth of that.
MOST_SELDOM = 10_000


class TooManyKinds(Exception):
    """These events have more lines other than steps than a Rest may hold."""


@dataclass
class Rest:
    """The end of a run's events, read without their beginning: the steps, and every other line, each with the number of
    rates and of losses before that line."""

    rates: Curve = field(default_factory=Curve)
    losses: Curve = field(default_factory=Curve)
    seldom: list[tuple[int, int, object, Line]] = field(default_factory=list)


@dataclass(frozen=True)
class InTwo:
    """A run's events in two parts. Another process reads the second: `rest` waits for the result, and returns None if
    there is none; then `end` must be read here.

    `last` is the time of the last step, None if that is not known beforehand."""

    beginning: Iterable[Line]
    end: Iterable[Line]
    rest: Callable[[], Rest | None]
    last: float | None


def read_story(run: Run, events: Iterable[Line], samples: Iterable[Line]) -> Story:
    """Read a run's lines into a Story, each line once."""
    training = Training()
    _read(training, run.started, events, partial(_told_seldom, training))
    training.spans = _spans(training)
    return _story(run, training, _measured(run, samples, training.spans))


def told_in_two(run: Run, events: InTwo, samples: Callable[[], Iterable[Line]]) -> Story:
    """Read a run's lines into a Story, from events in two parts. Read the samples again if the last step was not at the
    expected time."""
    training = Training()
    seldom = partial(_told_seldom, training)
    _read(training, run.started, events.beginning, seldom)
    expected = [] if events.last is None else _spans(training, events.last - run.started)
    measured = _measured(run, samples(), expected)
    if (rest := events.rest()) is None:
        _read(training, run.started, events.end, seldom)
    else:
        _join(training, rest)
    training.spans = _spans(training)
    if training.spans != expected:
        measured = _measured(run, samples(), training.spans)
    return _story(run, training, measured)


def _story(run: Run, training: Training, measured: SampledCurves) -> Story:
    """Make the Story. For a run on a cluster time begins with the first report: before that it waited for a node."""
    if run.kind.is_cluster:
        cards = measured.cards.values()
        curves = [training.rates, measured.host, measured.least, measured.most]
        curves += [curve for card in cards for curve in card.curves.values()]
        first = min((min(curve.xs) for curve in curves if curve.xs), default=0.0)
        for curve in curves:
            curve.xs = array("d", [x - first for x in curve.xs])
        for card in cards:
            card.throttled.spans = [(start - first, end - first) for start, end in card.throttled.spans]
        training.spans = _spans(training)
    return Story(run, training, measured)


def rest_of(started: float, events: Iterable[Line]) -> Rest:
    """Read the end of a run's events. Raise TooManyKinds."""
    it = Rest()

    def keep(kind: object, event: Line) -> None:
        if len(it.seldom) == MOST_SELDOM:
            raise TooManyKinds
        it.seldom.append((len(it.rates.xs), len(it.losses.xs), kind, event))

    _read(it, started, events, keep)
    return it


def _join(it: Training, rest: Rest) -> None:
    rates = losses = 0
    for rates_before, losses_before, kind, event in rest.seldom:
        _append(it.rates, rest.rates, rates, rates_before)
        _append(it.losses, rest.losses, losses, losses_before)
        rates, losses = rates_before, losses_before
        _told_seldom(it, kind, event)
    _append(it.rates, rest.rates, rates, None)
    _append(it.losses, rest.losses, losses, None)


def _append(curve: Curve, more: Curve, at: int, to: int | None) -> None:
    curve.xs.extend(more.xs[at:to])
    curve.ys.extend(more.ys[at:to])


def _spans(it: Training, *last: float) -> list[tuple[float, float]]:
    """Return when each attempt trained, as the means in its table have it (measured/attempts.py): from the least to the
    greatest time of its steps, not the first and the last, as the clock may have been set back meanwhile. `last` is the
    time of a step that isn't read yet."""
    times = it.rates.xs + array("d", last)
    each = [times[at:to] for at, to in pairwise((0, *it.begun, len(times)))]
    return [span for span in merged((min(some), max(some)) for some in each if some) if span[1] > span[0]]


def _read(it: Training | Rest, started: float, events: Iterable[Line], seldom: Callable[[object, Line], None]) -> None:
    """Add the steps to `it`, and pass every other line to `seldom` once the steps before it are added."""
    steps = []
    for event in events:
        try:
            step = _OF_A_STEP(event)
        except KeyError:  # a line that is not a step
            step = tuple(map(event.get, _STEP))
        if step[0] == "step":
            steps.append(step)
            if len(steps) < TOGETHER:
                continue
        _steps(it, started, steps)
        steps = []
        if step[0] != "step":
            seldom(step[0], event)
    _steps(it, started, steps)


def _steps(it: Training | Rest, started: float, steps: Sequence[tuple[object, ...]]) -> None:
    """Add what these steps reported: time, rate, number and loss."""
    if steps:
        times, rates, numbers, losses = map(column, islice(zip(*steps, strict=True), 1, None))
        it.rates.extend(*_placed([t - started for t in times], rates))
        it.losses.extend(*_placed(numbers, losses))


def _placed(xs: Sequence[float], ys: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """Drop the points whose x is unknown."""
    if not isnan(sum(xs)):
        return xs, ys
    known = [not isnan(x) for x in xs]
    return list(compress(xs, known)), list(compress(ys, known))


def _told_seldom(it: Training, kind: object, event: Line) -> None:
    step = number(event.get("step"))
    if kind == "start":
        it.start = event
        it.begun.append(len(it.rates.xs))
        it.error = None  # that error ended an earlier attempt
        resumed = number(event.get("resumed_from_step"))
        it.losses.cut_from(resumed or 0)  # steps from there on are reported again; the later report counts
        for after in (it.epoch_losses, it.accuracies, it.training_accuracies):
            after.cut_from((resumed or 0) + 1)  # their x is the number of steps done
        if resumed is None:
            it.raced.clear()
    elif kind == "stages":
        it.stages = event
    elif kind in raced.EVENTS:
        it.raced.append(event)
        it.losses.begun.append(len(it.losses.xs))  # the next training's losses begin at step 0
    elif kind == "error":
        it.error = text(event.get("kind"))
    elif kind == "eval" and step is not None:
        it.accuracies.add(step, number(event.get("precision_at_1")))
    elif kind == "epoch" and step is not None:
        it.epoch_losses.add(step, number(event.get("loss")))
        it.training_accuracies.add(step, number(event.get("accuracy")))


def _measured(run: Run, samples: Iterable[Line], spans: Sequence[tuple[float, float]]) -> SampledCurves:
    it, cores, started = SampledCurves(), _Cores(spans or [(-inf, inf)]), run.started
    there: Sequence[str] = ()
    apart = _SAMPLES_APART * max(run.sample_seconds, USUAL_SAMPLE_SECONDS)
    timed = (sample for sample in samples if number(sample.get("t")) is not None)
    while lines := list(islice(timed, TOGETHER)):
        xs = [line["t"] - started for line in lines]
        there = _cards(it.cards, there, xs, [line.get("gpus") for line in lines], apart)
        lines = [line for line in lines if "host_cpu_percent" in line]  # the others leave the host out
        xs = [line["t"] - started for line in lines]
        it.host.extend(xs, column([line.get("host_cpu_percent") for line in lines]))
        cores.add(it, xs, [row if isinstance(row := line.get("cpu_percents"), list) else [] for line in lines])
    it.cores = cores.means()
    return it


class _Cores:
    """The mean of each logical processor, over the samples within `spans`. Most samples have all processors."""

    def __init__(self, spans: Sequence[tuple[float, float]]) -> None:
        self._spans = spans
        self._sums: list[float] = []
        self._counts: list[int] = []

    def add(self, it: SampledCurves, xs: Sequence[float], rows: Sequence[list[Any]]) -> None:
        is_whole = all(rows) and are_numbers([*chain.from_iterable(rows)])
        known = rows if is_whole else [numbers_in(row) for row in rows]
        it.least.extend(xs, [*map(min, rows)] if is_whole else [min(row, default=NAN) for row in known])
        it.most.extend(xs, [*map(max, rows)] if is_whole else [max(row, default=NAN) for row in known])
        each = list(zip(xs, rows, known, strict=True))
        counted = [row for low, high in self._spans for x, row, some in each if some and low <= x <= high]
        for place, told in enumerate(zip_longest(*counted)):
            values = told if is_whole and None not in told else numbers_in([*told])
            if place == len(self._sums):
                self._sums.append(0.0)
                self._counts.append(0)
            self._sums[place] = sum(values, self._sums[place])
            self._counts[place] += len(values)

    def means(self) -> tuple[float | None, ...]:
        return tuple(total / count if count else None for total, count in zip(self._sums, self._counts, strict=True))


def _cards(
    cards: dict[str, CardCurves], before: Iterable[str], xs: Sequence[float], told: Sequence[object], apart: float
) -> Sequence[str]:
    """Add the cards' readings: a point for each, and NaN at the first of the samples that lack a card. Return the cards
    that the last sample has; `before`: those of the sample before these."""
    there, last = {*before}, list[str]()
    found: dict[str, list[tuple[int, Line]]] = {key: [] for key in before}
    for place, readings in enumerate(told):
        for reading in lines_in(readings):
            found.setdefault(str(reading.get("uuid") or reading.get("index")), []).append((place, reading))
    for key, placed in found.items():
        if key not in cards:
            if len(cards) == MOST_CARDS:
                continue
            first = placed[0][1]
            called = naming.place(number(first.get("index")), number(first.get("card_index")))
            cards[key] = CardCurves(text(first.get("name")), called)
        seen = {place for place, _ in placed}
        after = {place + 1 for place in seen} | ({0} if key in there else set())
        if len(xs) in after:
            last.append(key)
        silent = after - seen - {len(xs)}
        if silent:
            placed = sorted([*placed, *((place, {}) for place in silent)], key=itemgetter(0))
        _readings(cards[key], [xs[place] for place, _ in placed], [reading for _, reading in placed], apart)
    return last


def _readings(card: CardCurves, xs: Sequence[float], readings: Sequence[Line], apart: float) -> None:
    # When sampling faster, the readings in _IN_WHOLE are not due in every sample: their absence is no gap.
    wholes = [both for both in zip(xs, readings, strict=True) if not (both[1] and _IN_WHOLE.isdisjoint(both[1]))]
    whole_xs, whole_readings = [x for x, _ in wholes], [reading for _, reading in wholes]
    for name, curve in card.curves.items():
        is_seldom = name in _IN_WHOLE
        told = [reading.get(name) for reading in (whole_readings if is_seldom else readings)]
        curve.extend(whole_xs if is_seldom else xs, column(told))
    for x, reading in wholes:
        if reasons := reading.get("throttle_reasons"):
            _throttle(card.throttled, x, reasons, apart)


def _throttle(it: Throttled, x: float, told: object, apart: float) -> None:
    reasons = [one for one in texts_in(told) or () if one != throttling.IDLE]
    if not reasons:
        return
    it.reasons.update(reasons)
    if it.spans and x - it.spans[-1][1] <= apart:
        it.spans[-1] = (it.spans[-1][0], x)
    else:
        it.spans.append((x, x))
