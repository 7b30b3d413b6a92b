"""Type-checked values from a line of events or samples, whoever wrote it: real numbers, real texts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from itertools import compress
from math import fsum, hypot, isnan, nan
from operator import eq, mul
from typing import Any

Line = Mapping[str, Any]
Numbers = MutableSequence[float]  # an array, or a list if some are integers
# Lines whose numbers are checked at once: enough to make the work per batch negligible, few enough to fit the
# processor's cache.
TOGETHER = 64


def number(value: object) -> float | None:
    """Return `value` if it is a number that can be summed and recorded: not NaN, infinite or beyond a float's range."""
    # by type, not isinstance: a bool is not a number here, and a long run has millions of values
    if type(value) is float or type(value) is int:
        return value if -1e300 < value < 1e300 else None
    return None


def text(value: object) -> str | None:
    """Return `value` if it is text."""
    return value if isinstance(value, str) else None


def numbers(lines: Iterable[Line], key: str) -> list[float]:
    """Return the numbers at `key`, of the lines that have one there."""
    return [value for line in lines if (value := number(line.get(key))) is not None]


def numbers_in(value: object) -> list[float]:
    """Return the numbers of a list."""
    return [one for one in value if number(one) is not None] if isinstance(value, list) else []


def lines_in(value: object) -> list[Line]:
    """Return the objects of a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def texts_in(value: object) -> list[str] | None:
    """Return the texts of a list; None if it is not a list."""
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else None


def last_attempt(events: Iterable[Line]) -> tuple[Line, Line]:
    """Return the last attempt's start event, and the error that ended this attempt, not an earlier one; {} if there is
    none."""
    start: Line = {}
    error: Line = {}
    for event in events:
        if event.get("event") == "start":
            start, error = event, {}
        elif event.get("event") == "error":
            error = event
    return start, error


def known_values(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def only(values: Numbers, are_kept: Iterable[object]) -> Numbers:
    kept = values[:0]
    kept.extend(compress(values, are_kept))
    return kept


def mean(values: Sequence[float]) -> float | None:
    return _between(values, fsum(values) / len(values)) if values else None


def weighted(values: Numbers, weights: Numbers) -> float | None:
    """Return the mean of the known `values`, the others being NaN, by their weights, or by their number if those weigh
    nothing."""
    if isnan(sum(values)):
        are_known = bytes(map(eq, values, values))
        values, weights = only(values, are_known), only(weights, are_known)
    total = sum(weights)
    if not total:
        return mean(values)
    found = number(sum(map(mul, values, weights)) / total)
    return None if found is None else _between(values, found)


def _between(values: Sequence[float], found: float) -> float:
    """Return a mean without what rounding put outside of its values: what was 97 % busy all the time was so on average,
    and not 96.99999999999999 %."""
    return min(max(found, min(values)), max(values))


def most(values: Sequence[float]) -> int | None:
    return int(max(values)) if values else None


def are_numbers(values: Sequence[Any]) -> bool:
    """Return whether `number` accepts all values. Checking many at once takes a fifth of the time."""
    types = [*map(type, values)]
    try:
        return types.count(float) + types.count(int) == len(types) and hypot(*values) < 1e300
    except OverflowError:  # an integer that no float holds
        return False


def column(values: Sequence[Any]) -> Sequence[float]:
    """Return `values` with NaN in place of whatever is not a number."""
    return values if are_numbers(values) else [nan if (n := number(value)) is None else n for value in values]
