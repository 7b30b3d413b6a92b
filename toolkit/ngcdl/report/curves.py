"""What is drawn of a run: its events and samples, read line by line into columns of numbers.

A column holds NaN where nothing is known, which is drawn as a gap. 8 bytes a figure: a run of a million steps and
100,000 samples is held in some 50 MB, and `thinned` leaves of it what the pixels can show.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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

    @property
    def known(self) -> bool:
        return any(y == y for y in self.ys)

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
    rates, losses = it.rates, it.losses
    first = last = None
    for event in events:
        kind = event.get("event")
        if kind == "step":
            t, step = number(event.get("t")), number(event.get("step"))
            if t is not None:
                first, last = t if first is None else first, t
                rates.add(t - started, number(event.get("examples_per_second")))
            if step is not None:
                losses.add(step, number(event.get("loss")))
        else:
            _told_seldom(it, kind, event)
    if first is not None and last is not None and last > first:
        it.span = (first - started, last - started)
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
    if set(map(type, values)) <= {float, int} and all(map((1e300).__gt__, map(abs, values))):
        return values
    return [value for one in values if (value := number(one)) is not None]


class _Sums:
    """Of each core, over samples that mostly have them all."""

    def __init__(self) -> None:
        self._sums: list[float] = []
        self._counts: list[int] = []

    def add(self, cores: Sequence[float | None]) -> None:
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
    many = len(curve.xs) > 2 * COLUMNS
    width = (high - low) / COLUMNS if many and high > low else 0.0
    pause = max(_longest_pause(curve.xs), width) if breaks else math.inf
    stretches: list[list[Point]] = []
    line: list[Point] = []
    is_gap = False
    for x, y in zip(curve.xs, curve.ys, strict=True):
        if y != y:
            is_gap = True
            continue
        if line and (x - line[-1][0] > pause or (is_gap and x - line[-1][0] > width)):
            stretches.append(line)
            line = []
        is_gap = False
        line.append((x, y))
    stretches += [line] if line else []
    return [_columns(one, low, width) for one in stretches] if width else stretches


def _columns(points: list[Point], low: float, width: float) -> list[Point]:
    kept: list[Point] = []
    column = (points[0][0] - low) // width
    first = lowest = highest = last = points[0]
    for point in points:
        at = (point[0] - low) // width
        if at != column:
            kept += sorted({first, lowest, highest, last})
            column = at
            first = lowest = highest = point
        elif point[1] < lowest[1]:
            lowest = point
        elif point[1] > highest[1]:
            highest = point
        last = point
    return [*kept, *sorted({first, lowest, highest, last})]


def _longest_pause(xs: Sequence[float]) -> float:
    stride = max(1, len(xs) // 500)
    pauses = [xs[at + 1] - xs[at] for at in range(0, len(xs) - 1, stride) if xs[at + 1] > xs[at]]
    return max(_PAUSE * median(pauses), 1.0) if pauses else math.inf
