"""Several rounds' figures as one: their median with the least and the most of them, and how that is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log10
from statistics import median
from typing import Protocol

from ngcdl.console import NOT_AVAILABLE, measured

# A ratio nearer to 1 is no difference that anybody would act on, and two digits show it as 1.00.
NEAREST = 1.01
# So few rounds agree by chance alone: they must lie closer together, too.
FEW_ROUNDS = 4


class Spreading(Protocol):
    @property
    def median(self) -> float: ...
    @property
    def min(self) -> float: ...
    @property
    def max(self) -> float: ...


@dataclass(frozen=True)
class Spread:
    """Of `rounds` values, at least one; 0: of how many is not known."""

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


def differs(least: float, most: float, rounds: int) -> bool:
    """Say whether a ratio's rounds tell which of the two is more: all of them, by NEAREST at least, and FEW_ROUNDS or
    fewer lie closer to each other than to 1.

    Of two that are equal, whose rounds' logarithms scatter normally and by far more than NEAREST, it tells one all the
    same in 21 of 100 comparisons of 2 rounds, 4 of 3, 1 of 4, 6 of 5, 3 of 6; where they scatter less, more seldom. Of
    the best of several arms, which was chosen for that, as many times as often as there are others."""
    nearest = max(least, 1 / most) if least > 0 else 0.0  # of those that agree; 1 or less where they do not
    return nearest >= NEAREST and (rounds > FEW_ROUNDS or nearest >= most / least)


def by_round(make: Callable[..., float], *series: Mapping[int, float]) -> Spread | None:
    """Make a figure of what each round has in all `series`; None of a single round: it has no spread."""
    shared = set.intersection(*(set(one) for one in series))
    values = [make(*(one[at] for one in series)) for at in sorted(shared)]
    return Spread.of(values) if len(values) > 1 else None


def times(it: Spreading) -> str:
    """7.81 times (7.60..7.93); 0.0051 times (0.0044..0.0057): of the least two digits count, whatever the most is."""
    digits = 4 if it.max < 0.1 else 2 if it.max < 10 else 1 if it.max < 100 else 0
    if it.min > 0:
        digits = max(digits, 1 - floor(log10(it.min)))
    return f"{it.median:,.{digits}f} times ({it.min:,.{digits}f}..{it.max:,.{digits}f})"


def percent(it: Spreading) -> str:
    """Of a share 0..1: 88 % (86..90); 0.42 % (0.38..0.47): of the least two digits count, but none after 10 %."""
    least = it.min if it.min > 0 else it.median
    digits = 0 if least <= 0 or least >= 0.1 else min(1 - floor(log10(100 * least)), 4)
    return f"{100 * it.median:.{digits}f} % ({100 * it.min:.{digits}f}..{100 * it.max:.{digits}f})"


def duration(it: Spreading) -> str:
    """Of seconds, three digits of them: 1.90 ms (1.85..1.97); what was measured once has nothing beside it."""
    named = (("s", 1.0), ("ms", 1e3))
    unit, factor = next((one for one in named if abs(it.median) * one[1] >= 1), ("µs", 1e6))
    middle, least, most = (value * factor for value in (it.median, it.min, it.max))
    digits = 0 if middle >= 100 else 1 if middle >= 10 else 2
    text = f"{middle:,.{digits}f} {unit}"
    return text if least == most else f"{text} ({least:,.{digits}f}..{most:,.{digits}f})"


def figure(value: Spread | None, digits: int = 1) -> str:
    """599.9 (590.1..605.0); one value alone has nothing beside it."""
    if value is None:
        return NOT_AVAILABLE
    middle = measured(value.median, digits)
    if value.min == value.max:
        return middle
    return f"{middle} ({measured(value.min, digits)}..{measured(value.max, digits)})"
