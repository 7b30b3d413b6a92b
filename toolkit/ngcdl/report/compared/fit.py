"""The fixed cost of a step and the cost per example: a line fitted through several batch sizes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from ngcdl.frozen import dataclass
from ngcdl.report.measured.spread import Spread

FEWEST_BATCHES = 3
# The line is reported if it misses no batch's time by more than the spread of that batch's rounds. If the spread is
# less than this share of the time, the share counts instead: rounds may agree so closely by luck.
TOLERANCE = 0.05


@dataclass(frozen=True)
class Line:
    """A step takes `step` + `example` x size, in seconds. `share` (0..1) is the part of `step` at the smallest size."""

    step: Spread
    example: Spread
    share: Spread


def fitted(sizes: Sequence[float], rounds: Sequence[Sequence[float]]) -> Line | None:
    """Fit a line to the seconds per step of each of `sizes`, the smallest first, in each round.

    None if the figures do not support a line: there are too few, a cost is not positive, or the fit is too poor.
    """
    if len(sizes) < FEWEST_BATCHES or len(rounds) < 2:
        return None
    lines = [_line(sizes, seconds) for seconds in rounds]
    if any(a <= 0 or b <= 0 for a, b in lines):
        return None
    step, example = Spread.of([a for a, _ in lines]), Spread.of([b for _, b in lines])
    share = Spread.of([a / (a + b * sizes[0]) for a, b in lines])
    if not (step and example and share):
        return None
    for size, seconds in zip(sizes, zip(*rounds, strict=True), strict=True):
        missed = abs(step.median + example.median * size - median(seconds))
        if missed > max(max(seconds) - min(seconds), TOLERANCE * median(seconds)):
            return None
    return Line(step, example, share)


def _line(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Return a and b of seconds = a + b x size, by least squares of the relative errors: timing errors are
    proportional."""
    weights = [1 / value**2 for value in seconds]
    total = sum(weights)
    x = sum(w * size for w, size in zip(weights, sizes, strict=True)) / total
    y = sum(w * value for w, value in zip(weights, seconds, strict=True)) / total
    across = sum(w * (size - x) ** 2 for w, size in zip(weights, sizes, strict=True))
    rise = sum(w * (size - x) * (value - y) for w, size, value in zip(weights, sizes, seconds, strict=True))
    slope = rise / across if across else 0.0
    return y - slope * x, slope
