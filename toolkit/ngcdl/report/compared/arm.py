"""One arm of a comparison in figures, round by round, and how two arms are compared. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from operator import truediv
from statistics import median

from ngcdl.frozen import dataclass
from ngcdl.report.measured.spread import Spread, by_round, times


@dataclass(frozen=True)
class Figures:
    """What one arm's accepted runs reached, by round. `value` is the varied option's value, as typed.

    `examples` is the size of the data set, `cores` the machine's physical cores, `batch` the global batch of all
    replicas; None is unknown."""

    value: str
    rates: Mapping[int, float] = field(default_factory=dict)  # examples/s
    seconds: Mapping[int, float] = field(default_factory=dict)  # per step
    device: str | None = None
    examples: int | None = None
    cores: int | None = None
    batch: int | None = None
    replicas: int | None = None
    taught: Mapping[int, float] = field(default_factory=dict)  # teacher's seconds per batch
    p50: Mapping[int, float] = field(default_factory=dict)  # seconds of latency
    p95: Mapping[int, float] = field(default_factory=dict)

    @property
    def number(self) -> int:
        return int(self.value) if self.value.isdecimal() else 0

    @property
    def rate(self) -> float:
        """The median over the rounds, of which there is at least one."""
        return median(self.rates.values())

    @property
    def whole(self) -> Spread | None:
        """The time for one pass over all examples, in seconds."""
        return Spread.of([self.examples / rate for rate in self.rates.values()]) if self.examples else None


def faster(one: Figures, other: Figures) -> Spread | None:
    """Return how many times as fast `one` is as `other`."""
    return by_round(truediv, one.rates, other.rates)


def longer(one: Figures, other: Figures) -> Spread | None:
    """Return how many times as long a step of `one` takes as a step of `other`."""
    return by_round(truediv, one.seconds, other.seconds)


def counted(value: str, word: str) -> str:
    """Return a number with its unit: 1 thread, 2 threads."""
    return f"{value} {word}{'' if value == '1' else 's'}"


def compared(subject: str, ratio: Spread, other: str) -> str:
    if not ratio.is_told:
        return f"No measurable difference between {subject} and {other}: {times(ratio)}"
    return f"{subject[0].upper()}{subject[1:]} does {times(ratio)} the work of {other}"
