"""Benchmark results: ours and a peer's, round by round, with the goal and the conditions.

`figures.json` holds the committed ones with the values of all rounds, so everything derived can be recomputed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal, Self

KEPT = Path(__file__).with_name("figures.json")
Of = Literal["ours", "difference", "ratio"]
SURE_ROUNDS = 3  # fewer have no spread, and get no verdict


class Missing(Exception):
    """This machine lacks something that the benchmark needs; the text says what."""


@dataclass(frozen=True)
class Goal:
    """An upper or, with `at_least`, lower limit of ours, of ours - theirs (difference), or of ours / theirs (ratio)."""

    of: Of
    limit: float
    at_least: bool = False

    def is_met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def told(self, unit: str) -> str:
        sign = "≥" if self.at_least else "≤"
        plus = "+" if self.of == "difference" and self.limit >= 0 else ""
        return f"{sign} {plus}{self.limit:g} {'x' if self.of == 'ratio' else unit}".rstrip()


@dataclass(frozen=True)
class Spread:
    """Median and range of one series; for one or two values nothing is shown."""

    median: float
    least: float
    most: float
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        return cls(median(values), min(values), max(values), len(values))

    def told(self, unit: str) -> str:
        if self.rounds < SURE_ROUNDS:
            return f"n/a ({self.rounds} rounds)"
        return f"{short(self.median)} ({short(self.least)}..{short(self.most)}) {unit}".rstrip()


@dataclass(frozen=True)
class Figure:
    """`ours` and `theirs` in `unit`, one value per round; `theirs` is empty if there is no peer.

    __main__ fills in `benchmark`, the file's name, and `conditions`, from conditions.here().
    """

    what: str
    unit: str
    ours: tuple[float, ...]
    goal: Goal | None = None
    against: str | None = None
    theirs: tuple[float, ...] = ()
    note: str = ""  # conditions of this figure alone: sizes, versions of the peer
    benchmark: str = ""
    conditions: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies the same figure in another run, whose peer may have another version."""
        return self.benchmark, self.what, re.sub(r" \d+\.[\d.]+", "", self.against or "")

    @property
    def compared(self) -> Of:
        """The quantity by which two runs of this figure are compared."""
        return self.goal.of if self.goal else "ratio" if self.theirs else "ours"

    @property
    def is_more_better(self) -> bool:
        return self.goal.at_least if self.goal else self.unit.endswith("/s")

    def spread(self, of: Of) -> Spread:
        """Return the spread of this quantity. Raise ValueError if it needs a peer and there is none."""
        if of == "ours":
            return Spread.of(self.ours)
        pairs = list(zip(self.ours, self.theirs, strict=True))
        return Spread.of([a / b if of == "ratio" else a - b for a, b in pairs])

    @property
    def is_sure(self) -> bool:
        return len(self.ours) >= SURE_ROUNDS

    @property
    def is_met(self) -> bool:
        return self.goal is None or self.goal.is_met(self.spread(self.goal.of).median)


def is_comparable(kept: Figure, new: Figure) -> bool:
    """Return whether two figures can be compared: on different machines only ratios to a peer of the same run can, and
    on different cards nothing."""
    is_here = new.compared == "ratio" or kept.conditions.get("machine") == new.conditions.get("machine")
    return is_here and kept.conditions.get("card") == new.conditions.get("card") and new.is_sure


def fell(kept: Figure, new: Figure) -> str | None:
    """Return how a figure is worse than the committed one; None if it is not worse by more than the spread of both."""
    of = new.compared
    before, now = kept.spread(of), new.spread(of)
    if new.is_more_better:
        is_worse = now.median < before.least and now.most < before.median
    else:
        is_worse = now.median > before.most and now.least > before.median
    unit = "x" if of == "ratio" else new.unit
    return f"{now.told(unit)}, committed {before.told(unit)}" if is_worse else None


def load(path: Path = KEPT) -> list[Figure]:
    if not path.exists():
        return []
    return [_read(one) for one in json.loads(path.read_text(encoding="utf-8"))]


def keep(new: Iterable[Figure], path: Path = KEPT) -> None:
    """Save these figures, replacing committed ones with the same key."""
    figures = {one.key: one for one in load(path)}
    figures |= {one.key: replace(one, ours=_short(one.ours), theirs=_short(one.theirs)) for one in new}
    ordered = sorted(figures.values(), key=lambda one: one.benchmark)
    lines = ",\n".join(json.dumps(asdict(one), ensure_ascii=False) for one in ordered)
    draft = path.with_suffix(".draft")  # whoever is killed in the middle leaves the old file whole
    draft.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    draft.replace(path)


def _read(data: dict[str, Any]) -> Figure:
    goal = Goal(**data["goal"]) if data["goal"] else None
    return Figure(**{**data, "goal": goal, "ours": tuple(data["ours"]), "theirs": tuple(data["theirs"])})


def _short(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(map(float, map(each, values)))


def each(value: float) -> str:
    """Format the value of one round, with the digits that are kept."""
    return f"{value:.5g}"


def short(value: float) -> str:
    """Format with about three significant digits (at most four decimals), without an exponent."""
    digits = 0
    while value and abs(value) * 10**digits < 100 and digits < 4:
        digits += 1
    return f"{value:,.{digits}f}"
