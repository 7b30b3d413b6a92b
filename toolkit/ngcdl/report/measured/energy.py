"""How much energy a card used: by its own counter or, without one, by integrating its power over time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from statistics import median
from typing import TypeVar

COUNTER, INTEGRATED = "counter", "power integrated"
# Two samples are neighbours if they are no further apart than this many usual intervals: one may be missing.
NEIGHBOURS = 2.5
# The counter keeps counting while samples are missing, but not for the run in a longer pause: it was suspended, or a
# script that reports no attempts began anew.
LONGEST_PAUSE_SECONDS = 60.0

Reading = tuple[float, float | None]  # s since the stretch began, and W or the counter in J
Stretches = Sequence[Sequence[Reading]]


R = TypeVar("R")


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


def used(joules: Stretches, watts: Stretches) -> Energy | None:
    """Sum up one card's readings, each stretch in order of time; a reading without a value is a gap, the time between
    two stretches is none. None if the readings do not suffice."""
    return _by_counter(joules) or _summed(list(_trapezoids(watts)), watts, INTEGRATED)


def _by_counter(stretches: Stretches) -> Energy | None:
    """Return the energy by the counter. A counter that never moves is invalid (a card that is on uses energy); a
    counter that drops was reset."""
    known = [[(t, joules) for t, joules in readings if joules is not None] for readings in stretches]
    steps = [
        (later[1] - earlier[1], later[0] - earlier[0])
        for earlier, later in _pairs(known)
        if 0 < later[0] - earlier[0] <= LONGEST_PAUSE_SECONDS and later[1] >= earlier[1]
    ]
    return _summed(steps, stretches, COUNTER) if any(joules for joules, _ in steps) else None


def _trapezoids(stretches: Stretches) -> Iterator[tuple[float, float]]:
    usual = [later[0] - earlier[0] for earlier, later in _pairs(stretches) if later[0] > earlier[0]]
    longest = NEIGHBOURS * median(usual) if usual else 0.0
    for (then, before), (now, after) in _pairs(stretches):
        if before is not None and after is not None and 0 < now - then <= longest:
            yield (before + after) / 2 * (now - then), now - then


def _pairs(stretches: Iterable[Sequence[R]]) -> Iterator[tuple[R, R]]:
    return chain.from_iterable(map(pairwise, stretches))


def _summed(steps: Sequence[tuple[float, float]], stretches: Stretches, source: str) -> Energy | None:
    seconds = sum(step[1] for step in steps)
    if not seconds:
        return None
    gap = sum(readings[-1][0] - readings[0][0] for readings in stretches if readings) - seconds
    return Energy(sum(step[0] for step in steps), source, seconds, gap if gap > 1e-3 else 0.0)
