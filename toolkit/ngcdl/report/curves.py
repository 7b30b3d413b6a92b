"""What is drawn of a run: its events and samples, read line by line into columns of numbers.

A column holds NaN where nothing is known, which is drawn as a gap. 8 bytes a figure: a run of a million steps and
100,000 samples is held in some 50 MB, and `thinned` leaves of it what the pixels can show.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress, count, pairwise
from operator import add, eq, ne, sub
from statistics import median
from string import ascii_uppercase
from typing import Any

from ngcdl.record import Run
from ngcdl.report import throttling
from ngcdl.report.lines import Line, number, text

NAN = math.nan
COLUMNS = 500  # of a chart: two of them lie on one pixel of a phone, and one on two of a page
# A pause this many times as long as the usual one is a gap: nobody looked.
_PAUSE = 4.0
# One sample a second is taken: what is told in two that follow each other went on between them.
_SAMPLES_APART = 2.5
_CARD = ("gpu_percent", "memory_used_bytes", "watts", "sm_mhz")

Point = tuple[float, float]


@dataclass
class Curve:
    """Points in the order in which they came; `ys` NaN is unknown."""

    xs: array[float] = field(default_factory=lambda: array("d"))
    ys: array[float] = field(default_factory=lambda: array("d"))

    def add(self, x: float, y: float | None) -> None:
        self.xs.append(x)
        self.ys.append(NAN if y is None else y)

    @cached_property
    def drawable(self) -> tuple[array[float], array[float], set[int]]:
        """What is known of it when it is all there: xs, ys, and before which of them something unknown stood."""
        unknown = list(compress(count(), map(ne, self.ys, self.ys)))  # NaN alone is not itself
        if not unknown:
            return self.xs, self.ys, set()
        is_known = [*map(eq, self.ys, self.ys)]
        xs, ys = (array("d", compress(column, is_known)) for column in (self.xs, self.ys))
        return xs, ys, {place - before for before, place in enumerate(unknown)}

    @property
    def known(self) -> bool:
        return any(map(eq, self.ys, self.ys))

    @property
    def span(self) -> tuple[float, float] | None:
        """The least and the most of what is known."""
        _, ys, _ = self.drawable
        return (min(ys), max(ys)) if ys else None

    def cut_from(self, x: float) -> None:
        """Take back what stands at `x` and later."""
        while self.xs and self.xs[-1] >= x:
            self.xs.pop()
            self.ys.pop()


@dataclass
class Training:
    """What the trainer told. `start` is its last start event; rates are over seconds since the run's start."""

    rates: Curve = field(default_factory=Curve)
    losses: Curve = field(default_factory=Curve)  # over steps
    epoch_losses: Curve = field(default_factory=Curve)  # over steps: means of whole epochs, while it learned
    accuracies: Curve = field(default_factory=Curve)  # over steps, 0..1, on images that it was not trained on
    training_accuracies: Curve = field(default_factory=Curve)
    start: Mapping[str, object] = field(default_factory=dict)
    stages: Mapping[str, object] = field(default_factory=dict)  # how fast the stages of the pipeline are
    error: str | None = None  # the kind of the error that ended it
    span: tuple[float, float] | None = None  # the first and the last logged step, s since the run's start


@dataclass
class Throttled:
    """Stretches in which a card held its clocks back, in s since the run's start, and the reasons it gave."""

    spans: list[tuple[float, float]] = field(default_factory=list)
    reasons: set[str] = field(default_factory=set)


@dataclass
class CardCurves:
    name: str | None
    index: int | None
    curves: dict[str, Curve] = field(default_factory=lambda: {one: Curve() for one in _CARD})
    memory_total_bytes: float | None = None
    throttled: Throttled = field(default_factory=Throttled)


@dataclass
class Measured:
    """What was sampled. `cores` are means of each logical processor while it trained, 0..100."""

    host: Curve = field(default_factory=Curve)
    least: Curve = field(default_factory=Curve)  # the core that did least, and the one that did most
    most: Curve = field(default_factory=Curve)
    cards: dict[str, CardCurves] = field(default_factory=dict)
    cores: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Story:
    """A run with all that can be drawn of it. `letter` names it among others: A, B, ... `arm` is its part in a
    comparison, whose runs have one `colour`; None: each its own."""

    run: Run
    training: Training
    measured: Measured
    letter: str = "A"
    arm: str | None = None
    colour: int | None = None

    @property
    def is_training(self) -> bool:
        """Was it one of the bundled trainings, and not somebody's own command?"""
        return bool(self.training.start) or bool((self.run.spec or {}).get("workload"))


MOST_LETTERS = 26 + 26 * 26


def letters(count: int) -> list[str]:
    """A, B, ..., Z, AA, AB, ..., ZZ: of at most MOST_LETTERS."""
    single = list(ascii_uppercase)
    return (single + [first + second for first in single for second in single])[:count]


def told(run: Run, events: Iterable[Line], samples: Iterable[Line], letter: str = "A") -> Story:
    """Read a run's lines, each once."""
    training = _training(run.started, events)
    return Story(run, training, _measured(run.started, samples, training.span), letter)


def _training(started: float, events: Iterable[Line]) -> Training:
    it = Training()
    # a long run has a million of these: what is called for each is looked up once
    times, rates, steps, losses = it.rates.xs.append, it.rates.ys.append, it.losses.xs.append, it.losses.ys.append
    for event in events:
        kind = event.get("event")
        if kind == "step":
            if (t := number(event.get("t"))) is not None:
                times(t - started)
                rates(NAN if (rate := number(event.get("examples_per_second"))) is None else rate)
            if (step := number(event.get("step"))) is not None:
                steps(step)
                losses(NAN if (loss := number(event.get("loss"))) is None else loss)
        else:
            _told_seldom(it, kind, event)
    if it.rates.xs and it.rates.xs[-1] > it.rates.xs[0]:
        it.span = (it.rates.xs[0], it.rates.xs[-1])
    return it


def _told_seldom(it: Training, kind: object, event: Line) -> None:
    step = number(event.get("step"))
    if kind == "start":
        it.start = event
        if (resumed := number(event.get("resumed_from_step"))) is not None:
            it.losses.cut_from(resumed)  # told again from there; the later telling counts
            for after in (it.epoch_losses, it.accuracies, it.training_accuracies):
                after.cut_from(resumed + 1)  # these say how many steps are done
    elif kind == "stages":
        it.stages = event
    elif kind == "error":
        it.error = text(event.get("kind"))
    elif kind == "eval" and step is not None:
        it.accuracies.add(step, number(event.get("precision_at_1")))
    elif kind == "epoch" and step is not None:
        it.epoch_losses.add(step, number(event.get("loss")))
        it.training_accuracies.add(step, number(event.get("accuracy")))


def _measured(started: float, samples: Iterable[Line], span: tuple[float, float] | None) -> Measured:
    it, sums = Measured(), _Sums()
    for sample in samples:
        t = number(sample.get("t"))
        if t is None:
            continue
        x = t - started
        it.host.add(x, number(sample.get("host_cpu_percent")))
        value = sample.get("cpu_percents")
        cores: list[Any] = value if isinstance(value, list) else []
        known = _numbers(cores)
        it.least.add(x, min(known) if known else None)
        it.most.add(x, max(known) if known else None)
        if known and (span is None or span[0] <= x <= span[1]):
            sums.add(known if len(known) == len(cores) else [number(one) for one in cores])
        _cards(it.cards, x, sample.get("gpus"))
    it.cores = sums.means()
    return it


def _numbers(values: list[Any]) -> list[float]:
    """Give the numbers among `values`; mostly all of them, which is seen at once."""
    if set(map(type, values)) <= {float, int} and (not values or (min(values) > -1e300 and max(values) < 1e300)):
        return values
    return [value for one in values if (value := number(one)) is not None]


class _Sums:
    """Of each core, over samples that mostly have them all."""

    def __init__(self) -> None:
        self._sums: list[float] = []
        self._counts: list[int] = []

    def add(self, cores: Sequence[float | None]) -> None:
        if len(cores) == len(self._sums) and None not in cores:
            self._sums = [*map(add, self._sums, cores)]
            self._counts = [*map((1).__add__, self._counts)]
            return
        more = len(cores) - len(self._sums)
        self._sums += [0.0] * more
        self._counts += [0] * more
        for at, value in enumerate(cores):
            if value is not None:
                self._sums[at] += value
                self._counts[at] += 1

    def means(self) -> tuple[float | None, ...]:
        return tuple(total / count if count else None for total, count in zip(self._sums, self._counts, strict=True))


def _cards(cards: dict[str, CardCurves], x: float, readings: object) -> None:
    seen = set()
    for reading in readings if isinstance(readings, list) else ():
        if not isinstance(reading, Mapping):
            continue
        index = number(reading.get("index"))
        key = str(reading.get("uuid") or reading.get("index"))
        card = cards.get(key)
        if card is None:
            card = cards[key] = CardCurves(text(reading.get("name")), None if index is None else int(index))
        seen.add(key)
        for name, curve in card.curves.items():
            curve.add(x, number(reading.get(name)))
        if (total := number(reading.get("memory_total_bytes"))) is not None:
            card.memory_total_bytes = total
        _throttle(card.throttled, x, reading)
    for key in cards.keys() - seen:
        for curve in cards[key].curves.values():
            curve.add(x, None)


def _throttle(it: Throttled, x: float, reading: Line) -> None:
    value = reading.get("throttle_reasons")
    reasons = [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
    reasons = [one for one in reasons if one != throttling.IDLE]
    if not reasons:
        return
    it.reasons.update(reasons)
    if it.spans and x - it.spans[-1][1] <= _SAMPLES_APART:
        it.spans[-1] = (it.spans[-1][0], x)
    else:
        it.spans.append((x, x))


def thinned(curve: Curve, low: float, high: float, breaks: bool = True) -> list[list[Point]]:
    """Give the stretches of `curve` between its gaps; of many points those that a column of pixels shows.

    For each column its first, lowest, highest and last point stay, so that no spike is lost. A gap that is narrower
    than a column is none.
    """
    xs, ys, after_gaps = curve.drawable
    many = len(curve.xs) > 2 * COLUMNS
    width = (high - low) / COLUMNS if many and high > low else 0.0
    pause = max(_longest_pause(curve.xs), width) if breaks else math.inf
    wide = compress(count(1), map(width.__lt__, map(sub, xs[1:], xs)))
    begins = [0, *(at for at in wide if at in after_gaps or xs[at] - xs[at - 1] > pause), len(xs)]
    return [_columns(xs, ys, span, low, width) for span in pairwise(begins) if span[0] < span[1]]


def _columns(xs: array[float], ys: array[float], span: tuple[int, int], low: float, width: float) -> list[Point]:
    """Give the points from span[0] to before span[1]; where columns have a width, those that they show."""
    at, end = span
    if not width:
        return list(zip(xs[at:end], ys[at:end], strict=True))
    kept: list[Point] = []
    while at < end:
        edge = low + ((xs[at] - low) // width + 1) * width
        to = bisect_left(xs, edge, at + 1, end)
        column = ys[at:to]
        shown = {at, at + column.index(min(column)), at + column.index(max(column)), to - 1}
        kept += sorted({(xs[one], ys[one]) for one in shown})
        at = to
    return kept


def _longest_pause(xs: Sequence[float]) -> float:
    stride = max(1, len(xs) // 500)
    pauses = [xs[at + 1] - xs[at] for at in range(0, len(xs) - 1, stride) if xs[at + 1] > xs[at]]
    return max(_PAUSE * median(pauses), 1.0) if pauses else math.inf
