"""The figures of several rounds as one: their median with minimum and maximum, and how that is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import floor, log10
from statistics import median

from ngcdl.figures import NOT_AVAILABLE, measured
from ngcdl.frozen import dataclass

# A ratio closer to 1 than this is a difference that nobody would act on, and two digits show it as 1.00.
NEAREST = 1.01
# So few rounds may agree by chance: they must also be closer together.
FEW_ROUNDS = 4


@dataclass(frozen=True)
class Spread:
    """The spread of `rounds` values, at least one; 0 if their number is unknown."""

    median: float
    min: float
    max: float
    rounds: int = 0

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        return cls(median(values), min(values), max(values), len(values)) if values else None

    @property
    def is_told(self) -> bool:
        return differs(self.min, self.max, self.rounds)


def middle(values: Sequence[float]) -> float | None:
    """Return their median; None if there are none."""
    return median(values) if values else None


def differs(least: float, most: float, rounds: int) -> bool:
    """Return whether a ratio's rounds show which side is larger: all agree, by at least NEAREST, and FEW_ROUNDS or
    fewer are closer to each other than to 1.

    For two equal arms, with normally distributed log ratios that scatter by far more than NEAREST, it still reports a
    difference in 21 of 100 comparisons of 2 rounds, 4 of 3, 1 of 4, 6 of 5, 3 of 6; with less scatter, less often. For
    the best of several arms, having been selected, multiply that by the number of others."""
    nearest = max(least, 1 / most) if least > 0 else 0.0  # the one closest to 1 if all agree; 1 or less if they do not
    return nearest >= NEAREST and (rounds > FEW_ROUNDS or nearest >= most / least)


def by_round(make: Callable[..., float], *series: Mapping[int, float]) -> Spread | None:
    """Combine the values of each round that is in all `series`; None for fewer than two rounds: no spread."""
    shared = set.intersection(*(set(one) for one in series))
    values = [make(*(one[at] for one in series)) for at in shared]
    return Spread.of(values) if len(values) > 1 else None


def times(it: Spread) -> str:
    """Format a ratio: 7.81 times (7.60..7.93); 0.0051 times (0.0044..0.0057). The minimum keeps two digits."""
    digits = 4 if it.max < 0.1 else 2 if it.max < 10 else 1 if it.max < 100 else 0
    if it.min > 0:
        digits = max(digits, 1 - floor(log10(it.min)))
    return f"{it.median:,.{digits}f} times ({it.min:,.{digits}f}..{it.max:,.{digits}f})"


def percent(it: Spread) -> str:
    """Format a share 0..1: 88 % (86..90) or 0.42 % (0.38..0.47). The minimum keeps two digits, from 10 % on no
    decimals."""
    least = it.min if it.min > 0 else it.median
    digits = 0 if least <= 0 or least >= 0.1 else min(1 - floor(log10(100 * least)), 4)
    return f"{100 * it.median:.{digits}f} % ({100 * it.min:.{digits}f}..{100 * it.max:.{digits}f})"


def duration(it: Spread) -> str:
    """Format seconds to three digits: 1.90 ms (1.85..1.97). A single value has no range."""
    named = (("s", 1.0), ("ms", 1e3))
    unit, factor = next((one for one in named if abs(it.median) * one[1] >= 1), ("µs", 1e6))
    middle, least, most = (value * factor for value in (it.median, it.min, it.max))
    digits = 0 if middle >= 100 else 1 if middle >= 10 else 2
    text = f"{middle:,.{digits}f} {unit}"
    return text if least == most else f"{text} ({least:,.{digits}f}..{most:,.{digits}f})"


def figure(value: Spread | None, digits: int = 1) -> str:
    """Format a figure: 599.9 (590.1..605.0), 0.95 (0.93..1.04). The least above 0 keeps two digits. A single value has
    no range."""
    if value is None:
        return NOT_AVAILABLE
    if value.min == value.max:
        return measured(value.median, digits)
    least = min((one for one in (value.min, value.median, value.max) if one > 0), default=1.0)
    digits = max(digits, 1 - floor(log10(least)))
    return f"{value.median:,.{digits}f} ({value.min:,.{digits}f}..{value.max:,.{digits}f})"
