"""How much energy a card used: by its own counter or, without one, by integrating its power over time. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import chain
from operator import eq, sub
from statistics import median

from ngcdl.frozen import dataclass
from ngcdl.report.measured.lines import Numbers, only

COUNTER, INTEGRATED = "counter", "power integrated"
# Two samples are neighbours if they are no further apart than this many usual intervals: one may be missing.
NEIGHBOURS = 2.5
# The counter keeps counting while samples are missing, but not for the run in a longer pause: it was suspended, or a
# script that reports no attempts began anew.
LONGEST_PAUSE_SECONDS = 60.0

# Of a stretch: s since it began, and as many values, in W or of the counter in J, NaN for none.
Readings = tuple[Numbers, Numbers]


@dataclass(frozen=True)
class Energy:
    """`seconds` is the time covered, `gap_seconds` the time not covered between a stretch's first reading and its
    last."""

    joules: float
    source: str
    seconds: float
    gap_seconds: float

    @property
    def watts(self) -> float:
        return self.joules / self.seconds


def used(joules: Sequence[Readings], watts: Sequence[Readings]) -> Energy | None:
    """Sum up one card's readings, each stretch in order of time; a reading without a value is a gap, the time between
    two stretches is none. None if the readings do not suffice."""
    return _by_counter(joules) or _integrated(watts)


def _by_counter(stretches: Sequence[Readings]) -> Energy | None:
    """Return the energy by the counter. A counter that never moves is invalid (a card that is on uses energy); a
    counter that drops was reset."""
    parts = []
    for times, counts in stretches:
        are_known = bytes(map(eq, counts, counts))
        passed, joules = (_steps(only(one, are_known)) for one in (times, counts))
        are_steps = bytes(0 < t <= LONGEST_PAUSE_SECONDS and one >= 0 for t, one in zip(passed, joules, strict=True))
        parts.append((only(passed, are_steps), only(joules, are_steps)))
    return _summed(parts, stretches, COUNTER) if any(any(joules) for _, joules in parts) else None


def _integrated(stretches: Sequence[Readings]) -> Energy | None:
    """Return the energy by the power, in trapezoids."""
    steps = [_steps(times) for times, _ in stretches]
    usual = [t for some in steps for t in some if t > 0]
    longest = NEIGHBOURS * median(usual) if usual else 0.0
    parts = []
    for passed, (_, watts) in zip(steps, stretches, strict=True):
        pairs = zip(watts, watts[1:], passed, strict=False)
        joules = array("d", ((before + after) / 2 * t for before, after, t in pairs))
        are_steps = bytes(0 < t <= longest and one == one for t, one in zip(passed, joules, strict=True))
        parts.append((only(passed, are_steps), only(joules, are_steps)))
    return _summed(parts, stretches, INTEGRATED)


def _steps(values: Numbers) -> Numbers:
    """Return how much more each is than the one before."""
    steps = values[:0]
    steps.extend(map(sub, values[1:], values))
    return steps


def _summed(parts: Sequence[Readings], stretches: Sequence[Readings], source: str) -> Energy | None:
    seconds = sum(chain.from_iterable(passed for passed, _ in parts))
    if not seconds:
        return None
    gap = sum(times[-1] - times[0] for times, _ in stretches if times) - seconds
    joules = sum(chain.from_iterable(joules for _, joules in parts))
    return Energy(joules, source, seconds, gap if gap > 1e-3 else 0.0)
