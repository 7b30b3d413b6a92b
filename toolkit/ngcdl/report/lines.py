"""What a line of events or samples holds, whoever wrote it: numbers that are numbers, texts that are texts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import hypot, nan
from statistics import fmean
from typing import Any

Line = Mapping[str, Any]


def number(value: object) -> float | None:
    """Give `value` if it is a number that can be added up and recorded: no NaN, no infinity, nothing beyond floats."""
    # by type, not isinstance: a bool is no number, and a long run has millions of them
    if type(value) is float or type(value) is int:
        return value if -1e300 < value < 1e300 else None
    return None


def text(value: object) -> str | None:
    """Give `value` if it is text."""
    return value if isinstance(value, str) else None


def numbers(lines: Iterable[Line], key: str) -> list[float]:
    """Give what the lines that have a number there have."""
    return [value for line in lines if (value := number(line.get(key))) is not None]


def numbers_in(value: object) -> list[float]:
    """Give the numbers of a list."""
    return [one for one in value if number(one) is not None] if isinstance(value, list) else []


def texts_in(value: object) -> list[str] | None:
    """Give the texts of a list; None where it is no list."""
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else None


def last_start(events: Iterable[Line]) -> Line:
    """Give what the last attempt said as it began; {} where no training did."""
    start: Line = {}
    for event in events:
        if event.get("event") == "start":
            start = event
    return start


def known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def most(values: Sequence[float]) -> int | None:
    return int(max(values)) if values else None


def are_numbers(values: Sequence[Any]) -> bool:
    """Are all of them what `number` gives as it is? Asked of many at once that takes a fifth of the time."""
    types = [*map(type, values)]
    try:
        return (types.count(float) == len(types) or {*types} <= {float, int}) and hypot(*values) < 1e300
    except OverflowError:  # an integer that no float holds
        return False


def column(values: Sequence[Any]) -> Sequence[float]:
    """Give the numbers among `values` in their places, NaN for what is none."""
    return values if are_numbers(values) else [nan if (n := number(value)) is None else n for value in values]
