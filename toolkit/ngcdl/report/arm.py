"""One arm of a comparison in figures, round by round, and how two arms are set against each other. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from ngcdl.report.spread import Spread, by_round, times


@dataclass(frozen=True)
class Figures:
    """What one arm's runs that count reached, by round. `value` is what is varied, as it was typed.

    `examples` are those of the data set, `cores` the physical ones of the machine, `batch` what its replicas have
    together in a step; None is unknown."""

    value: str
    rates: Mapping[int, float] = field(default_factory=dict)  # examples/s
    seconds: Mapping[int, float] = field(default_factory=dict)  # of a step
    device: str | None = None
    examples: int | None = None
    cores: int | None = None
    batch: int | None = None
    replicas: int | None = None
    taught: Mapping[int, float] = field(default_factory=dict)  # seconds of the teacher's for a batch
    p50: Mapping[int, float] = field(default_factory=dict)  # seconds of latency
    p95: Mapping[int, float] = field(default_factory=dict)

    @property
    def number(self) -> int:
        return int(self.value) if self.value.isdecimal() else 0

    @property
    def rate(self) -> float:
        """The median of its rounds, 0 where it has none."""
        return median(self.rates.values()) if self.rates else 0.0

    @property
    def whole(self) -> Spread | None:
        """How long all examples take once, in seconds."""
        return Spread.of([self.examples / rate for rate in self.rates.values()]) if self.examples else None


def faster(one: Figures, other: Figures) -> Spread | None:
    """How many times as fast as `other` is `one`?"""
    return by_round(lambda here, there: here / there, one.rates, other.rates)


def longer(one: Figures, other: Figures) -> Spread | None:
    """How many times as long as a step of `other` does one of `one` take?"""
    return by_round(lambda here, there: here / there, one.seconds, other.seconds)


def counted(value: str, word: str) -> str:
    """1 thread, 2 threads."""
    return f"{value} {word}{'' if value == '1' else 's'}"


def compared(subject: str, ratio: Spread, other: str) -> str:
    if not ratio.is_told:
        return f"Between {subject} and {other} no difference can be told: {times(ratio)}"
    return f"{subject[0].upper()}{subject[1:]} does {times(ratio)} the work of {other}"
