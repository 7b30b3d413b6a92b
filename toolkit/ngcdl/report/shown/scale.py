"""The axes of charts: how each is divided into round steps, and how its ticks are labelled, in one unit per axis."""

from __future__ import annotations

import math
from dataclasses import replace

from ngcdl.frozen import dataclass

_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
_SECONDS = ((172_800, 86_400, "days"), (7_200, 3_600, "hours"), (300, 60, "minutes"), (0, 1, "seconds"))
_THOUSANDS = {3: "thousand", 6: "million", 9: "billion"}
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
LONGEST = 6  # characters of a label: longer ones don't fit beside a chart, and overlap below it on a phone


@dataclass(frozen=True)
class Axis:
    """An axis from `low` to `high` in base units, with `ticks` in between; labels show tick / `divisor`, in `unit`."""

    low: float
    high: float
    ticks: tuple[float, ...]
    unit: str
    divisor: float = 1.0

    def at(self, value: float) -> float:
        """Return the position of `value`, 0..1, clamped to the edges."""
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)

    def label(self, tick: float) -> str:
        gap = (self.ticks[1] - self.ticks[0]) / self.divisor if len(self.ticks) > 1 else 1.0
        digits = next((one for one in range(15) if math.isclose(round(gap, one), gap, rel_tol=1e-6)), 15)
        return f"{tick / self.divisor:,.{digits}f}"

    @property
    def longest(self) -> int:
        """How many characters its longest label has."""
        return max((len(self.label(tick)) for tick in self.ticks), default=0)


PERCENT = Axis(0.0, 100.0, (0.0, 25.0, 50.0, 75.0, 100.0), "%")


def axis(low: float, high: float, unit: str, *, divisor: float = 1.0, steps: int = 4, tight: bool = False) -> Axis:
    """Divide low..high into about `steps` round parts; `tight`: the axis ends at low and high, as for time, not at
    ticks."""
    if not high - low > 1e-9 * max(abs(low), abs(high), 1e-3 * divisor):  # a single value, up to rounding
        high = max(high, low + (abs(low) * 0.1 or divisor))
    gap = _round((high - low) / divisor / steps) * divisor
    first, last = math.floor(low / gap + 1e-9), math.ceil(high / gap - 1e-9)
    ticks = tuple(gap * number for number in range(first, last + 1))
    if tight:
        made = Axis(low, high, tuple(tick for tick in ticks if low <= tick <= high), unit, divisor)
    else:
        made = Axis(ticks[0], ticks[-1], ticks, unit, divisor)
    return _short(made) if divisor == 1.0 and made.longest > LONGEST else made


def _short(made: Axis) -> Axis:
    """Count in thousands, millions or billions, or without a unit in a power of ten, if that makes labels shorter."""
    power = math.floor(math.log10(max(abs(made.ticks[0]), abs(made.ticks[-1]))))
    if abs(power) < 3:  # its labels are long because its range is small
        return made
    if made.unit and 3 <= power < 12:
        power -= power % 3
        name = _THOUSANDS[power]
    else:
        name = f"×10{str(power).translate(_RAISED)}"
    short = replace(made, unit=f"{name} {made.unit}".strip(), divisor=10.0**power)
    return min(made, short, key=lambda one: one.longest)


def bytes_axis(high: float) -> Axis:
    divisor, unit = next((divisor, unit) for divisor, unit in _BYTES if high >= divisor or divisor == 1)
    return axis(0.0, high, unit, divisor=divisor)


def seconds_axis(high: float, since: str = "the start") -> Axis:
    divisor, unit = next((divisor, unit) for above, divisor, unit in _SECONDS if high >= above)
    return axis(0.0, high, f"{unit} since {since}", divisor=divisor, steps=5, tight=True)


def _round(value: float) -> float:
    """Round up to 1, 2, 2.5 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1.0, 2.0, 2.5, 5.0, 10.0) if step * power >= value * 0.999)
