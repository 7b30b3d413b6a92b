"""A curve as two columns of numbers, thinned to what the pixels of a chart can show.

NaN is an unknown value and is drawn as a gap. A million points take 16 MB.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from statistics import median
from struct import pack

NAN = math.nan
COLUMNS = 500  # in a chart's width: two per pixel on a phone, one per two pixels on a page
# A pause this many times as long as the usual interval is a gap: nothing was measured.
_PAUSE = 4.0

Point = tuple[float, float]
Range = tuple[float, float, float, float]  # x, and the least, the mean and the greatest y around it


@dataclass
class Curve:
    """Points in the order of arrival; a NaN in `ys` is unknown. The cached properties may be read only once the curve
    is complete.

    `begun` are the positions where another line begins, back at its first x."""

    xs: array[float] = field(default_factory=lambda: array("d"))
    ys: array[float] = field(default_factory=lambda: array("d"))
    begun: list[int] = field(default_factory=list)

    def add(self, x: float, y: float | None) -> None:
        self.xs.append(x)
        self.ys.append(NAN if y is None else y)

    def extend(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        """Add points, NaN for an unknown y."""
        for column, values in ((self.xs, xs), (self.ys, ys)):
            column.frombytes(pack(f"{len(values)}d", *values))  # array.extend checks the type of each value

    @cached_property
    def drawable(self) -> tuple[array[float], array[float], set[int]]:
        """The known points: xs, ys, and the positions before which a point was unknown."""
        unknown = list(_unknown(self.ys))
        if not unknown:
            return self.xs, self.ys, set()
        known = (array("d"), array("d"))
        for column, whole in zip(known, (self.xs, self.ys), strict=True):
            for before, after in pairwise((-1, *unknown, len(whole))):
                column.extend(whole[before + 1 : after])
        return *known, {place - before for before, place in enumerate(unknown)}

    @property
    def is_dense(self) -> bool:
        """Whether it has more points than can be told apart: a line through all of them is a block of ink."""
        return len(self.xs) > 2 * COLUMNS

    @property
    def known(self) -> bool:
        return any(y == y for y in self.ys)

    @cached_property
    def span(self) -> tuple[float, float] | None:
        """The minimum and maximum of the known values."""
        _, ys, _ = self.drawable
        return (min(ys), max(ys)) if ys else None

    def cut_from(self, x: float) -> None:
        """Remove the points at `x` and later."""
        while self.xs and self.xs[-1] >= x:
            self.xs.pop()
            self.ys.pop()
        self.begun = [place for place in self.begun if place <= len(self.xs)]


def together(curves: Sequence[Curve]) -> tuple[Curve, Curve, Curve]:
    """Return the least, the mean and the greatest of the known values that `curves` have at each x."""
    xs = curves[0].xs
    if all(curve.xs == xs for curve in curves):
        rows: Iterable[Sequence[float]] = zip(*(curve.ys for curve in curves), strict=True)
    else:  # a card was seen later than the others, or was silent
        at: dict[float, list[float]] = {}
        for curve in curves:
            for x, y in zip(curve.xs, curve.ys, strict=True):
                at.setdefault(x, []).append(y)
        xs = array("d", sorted(at))
        rows = (at[x] for x in xs)
    least, mean, most = Curve(xs), Curve(xs), Curve(xs)
    for row in rows:
        known = row if (total := sum(row)) == total else [y for y in row if y == y]
        least.ys.append(min(known, default=NAN))
        mean.ys.append(sum(known) / len(known) if known else NAN)
        most.ys.append(max(known, default=NAN))
    return least, mean, most


def _unknown(ys: array[float]) -> Iterator[int]:
    """Yield the positions of NaN. Summing a thousand numbers takes a tenth of the time of checking each for NaN."""
    for begin in range(0, len(ys), 1000):
        some = ys[begin : begin + 1000]
        if math.isnan(sum(some)):
            yield from (begin + at for at, y in enumerate(some) if y != y)


def thinned(curve: Curve, low: float, high: float, breaks: bool = True) -> list[list[Point]]:
    """Return the stretches of `curve` between its gaps, thinned to pixel columns if it has many points.

    Each column keeps its first, lowest, highest and last point, so that no spike is lost. A gap narrower than a column
    is ignored.
    """
    return [
        [point for at, to in columns for point in _shown(xs, ys, at, to)]
        for xs, ys, columns in _stretches(curve, low, high, breaks)
    ]


def ranges(curve: Curve, low: float, high: float, breaks: bool = True) -> list[list[Range]]:
    """Return the stretches as `thinned` does, with one Range for each column."""
    return [[_range(xs, ys, at, to) for at, to in columns] for xs, ys, columns in _stretches(curve, low, high, breaks)]


def _stretches(
    curve: Curve, low: float, high: float, breaks: bool
) -> Iterator[tuple[array[float], array[float], list[tuple[int, int]]]]:
    """Yield the known xs and ys, and the start and end (exclusive) of each column of a stretch."""
    if curve.begun:
        for at, to in pairwise((0, *curve.begun, len(curve.xs))):
            yield from _stretches(Curve(curve.xs[at:to], curve.ys[at:to]), low, high, breaks)
        return
    xs, ys, after_gaps = curve.drawable
    width = (high - low) / COLUMNS if curve.is_dense and high > low else 0.0
    pause = max(_longest_pause(curve.xs), width) if breaks else math.inf
    columns: list[tuple[int, int]] = []
    for at, to in _columns(xs, low, width):
        apart = xs[at] - xs[at - 1] if at else math.inf
        if at and (apart > pause or (apart > width and at in after_gaps)):
            yield xs, ys, columns
            columns = []
        columns.append((at, to))
    if columns:
        yield xs, ys, columns


def _columns(xs: array[float], low: float, width: float) -> Iterator[tuple[int, int]]:
    """Yield the start and end (exclusive) of each column's points; without a width each point is a column. What is
    beyond an end of the axis, as by a clock that was set, or a script that reports milliseconds, is one there."""
    at = 0
    while at < len(xs):
        column = (xs[at] - low) // width if width else 0.0
        edge = low + (max(column, -1.0) + 1) * width if column < COLUMNS else math.inf
        to = bisect_left(xs, edge, at + 1) if width else at + 1
        yield at, to
        at = to


def _shown(xs: array[float], ys: array[float], at: int, to: int) -> list[Point]:
    if to - at == 1:
        return [(xs[at], ys[at])]
    column = ys[at:to].tolist()
    shown = {at, at + column.index(min(column)), at + column.index(max(column)), to - 1}
    return sorted({(xs[one], ys[one]) for one in shown})


def _range(xs: array[float], ys: array[float], at: int, to: int) -> Range:
    column = ys[at:to]
    least, most = min(column), max(column)
    # the mean of equal values may be off by a rounding
    return (xs[at] + xs[to - 1]) / 2, least, min(max(sum(column) / len(column), least), most), most


def _longest_pause(xs: Sequence[float]) -> float:
    stride = max(1, len(xs) // 500)
    pauses = [xs[at + 1] - xs[at] for at in range(0, len(xs) - 1, stride) if xs[at + 1] > xs[at]]
    return max(_PAUSE * median(pauses), 1.0) if pauses else math.inf
