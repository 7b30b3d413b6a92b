"""A run's events and samples, read into the columns of what is drawn of it.

8 bytes a figure: a run of a million steps and 100,000 samples is held in some 50 MB. Some hundred lines are read at a
time, and what is asked of each of their numbers is asked of all at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, groupby, zip_longest
from math import inf
from operator import itemgetter
from typing import Any

from ngcdl.record import Run
from ngcdl.report import raced, throttling
from ngcdl.report.curves import NAN
from ngcdl.report.lines import Line, are_numbers, batches, column, number, numbers, numbers_in, text
from ngcdl.report.story import CardCurves, Measured, Story, Throttled, Training

# One sample a second is taken: what is told in two that follow each other went on between them.
_SAMPLES_APART = 2.5


def told(run: Run, events: Iterable[Line], samples: Iterable[Line], letter: str = "A") -> Story:
    """Read a run's lines, each once."""
    training = _training(run.started, events)
    return Story(run, training, _measured(run.started, samples, training.span), letter)


def _training(started: float, events: Iterable[Line]) -> Training:
    it = Training()
    for batch in batches(events):
        for is_step, lines in groupby(batch, lambda event: event.get("event") == "step"):
            if is_step:
                _steps(it, started, list(lines))
            else:
                for event in lines:
                    _told_seldom(it, event.get("event"), event)
    if it.rates.xs and it.rates.xs[-1] > it.rates.xs[0]:
        it.span = (it.rates.xs[0], it.rates.xs[-1])
    return it


def _steps(it: Training, started: float, lines: Sequence[Line]) -> None:
    it.rates.extend([t - started for t in column(lines, "t")], column(lines, "examples_per_second"))
    it.losses.extend(column(lines, "step"), column(lines, "loss"))


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
    elif kind in raced.EVENTS:
        it.raced.append(event)
        it.losses.begun.append(len(it.losses.xs))  # the next training's begin at step 0
    elif kind == "error":
        it.error = text(event.get("kind"))
    elif kind == "eval" and step is not None:
        it.accuracies.add(step, number(event.get("precision_at_1")))
    elif kind == "epoch" and step is not None:
        it.epoch_losses.add(step, number(event.get("loss")))
        it.training_accuracies.add(step, number(event.get("accuracy")))


def _measured(started: float, samples: Iterable[Line], span: tuple[float, float] | None) -> Measured:
    it, cores = Measured(), _Cores()
    low, high = span or (-inf, inf)
    for batch in batches(samples):
        lines = [sample for sample in batch if number(sample.get("t")) is not None]
        xs = [sample["t"] - started for sample in lines]
        it.host.extend(xs, column(lines, "host_cpu_percent"))
        rows = [row if isinstance(row := sample.get("cpu_percents"), list) else [] for sample in lines]
        known = rows if are_numbers([*chain.from_iterable(rows)]) else [numbers_in(row) for row in rows]
        it.least.extend(xs, [min(row, default=NAN) for row in known])
        it.most.extend(xs, [max(row, default=NAN) for row in known])
        cores.add([row for x, row, some in zip(xs, rows, known, strict=True) if some and low <= x <= high])
        _cards(it.cards, xs, lines)
    it.cores = cores.means()
    return it


class _Cores:
    """Of each logical processor, over samples that mostly have them all."""

    def __init__(self) -> None:
        self._sums: list[float] = []
        self._counts: list[int] = []

    def add(self, rows: Sequence[list[Any]]) -> None:
        for place, told in enumerate(zip_longest(*rows)):
            values = told if are_numbers(told) else numbers_in([*told])
            if place == len(self._sums):
                self._sums.append(0.0)
                self._counts.append(0)
            self._sums[place] = sum(values, self._sums[place])
            self._counts[place] += len(values)

    def means(self) -> tuple[float | None, ...]:
        return tuple(total / count if count else None for total, count in zip(self._sums, self._counts, strict=True))


def _cards(cards: dict[str, CardCurves], xs: Sequence[float], lines: Sequence[Line]) -> None:
    """Add what the cards tell. From its first sample on each has a point for all, unknown where it is silent."""
    told: dict[str, list[tuple[int, Line]]] = {key: [] for key in cards}
    for place, line in enumerate(lines):
        readings = line.get("gpus")
        for reading in readings if isinstance(readings, list) else ():
            if isinstance(reading, dict):
                told.setdefault(str(reading.get("uuid") or reading.get("index")), []).append((place, reading))
    for key, placed in told.items():
        begin = 0 if key in cards else placed[0][0]
        silent = set(range(begin, len(lines))).difference(place for place, _ in placed)
        nothing: list[tuple[int, Line]] = [(place, {}) for place in silent]
        placed = sorted(placed + nothing, key=itemgetter(0)) if silent else placed
        if key not in cards:
            index = number(placed[0][1].get("index"))
            cards[key] = CardCurves(text(placed[0][1].get("name")), None if index is None else int(index))
        _readings(cards[key], [xs[place] for place, _ in placed], [reading for _, reading in placed])


def _readings(card: CardCurves, xs: Sequence[float], readings: Sequence[Line]) -> None:
    for name, curve in card.curves.items():
        curve.extend(xs, column(readings, name))
    totals = numbers(readings, "memory_total_bytes")
    card.memory_total_bytes = totals[-1] if totals else card.memory_total_bytes
    for x, reading in zip(xs, readings, strict=True):
        _throttle(card.throttled, x, reading.get("throttle_reasons"))


def _throttle(it: Throttled, x: float, told: object) -> None:
    reasons = [one for one in told if isinstance(one, str)] if isinstance(told, list) else []
    reasons = [one for one in reasons if one != throttling.IDLE]
    if not reasons:
        return
    it.reasons.update(reasons)
    if it.spans and x - it.spans[-1][1] <= _SAMPLES_APART:
        it.spans[-1] = (it.spans[-1][0], x)
    else:
        it.spans.append((x, x))
