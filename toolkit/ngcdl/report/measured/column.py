"""A figure of many lines, at 8 bytes each. Pure.

A week has 600,000 samples. Functions written in C go through a whole column, as a loop takes several times as long, and
a list of its numbers four times the memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import compress
from math import hypot, nan
from operator import eq
from struct import pack
from typing import Any, Generic, TypeVar

from ngcdl.report.measured.lines import Numbers, are_numbers, number

NO_NUMBER = 1e300  # as a value: something else than a number (lines.number)
ABSENT = nan  # in place of what a line doesn't tell
_UNKNOWN = pack("d", nan)
_is_known = NO_NUMBER.__gt__  # of an absolute value


class Column:
    """A figure of each row; an unknown one is NaN. Integers stay integers, as a record shows them."""

    def __init__(self) -> None:
        self._size = 0
        self.values = array("d")  # empty until one is known
        self._are_whole = bytearray()  # empty until one is an integer
        self._are_known = True  # False if some may not be

    def tell(self, values: Sequence[Any]) -> None:
        """Add what lines tell: NO_NUMBER for what is no number, NaN for what is ABSENT."""
        types = [*map(type, values)]
        are_known = hypot(*values) < NO_NUMBER if types.count(float) == len(types) else are_numbers(values)
        if not are_known:
            are_null = values.count(None) == len(values)
            values = [NO_NUMBER] * len(values) if are_null else [_as_told(one) for one in values]
            types = [*map(type, values)]
        self._extend(values, types, are_known)

    def extend(self, values: Sequence[float]) -> None:
        """Add numbers, NaN for an unknown one."""
        self._extend(values, [*map(type, values)], are_known=False)

    def _extend(self, values: Sequence[float], types: Sequence[type], are_known: bool) -> None:
        count, integers = len(types), len(types) - types.count(float)
        if are_known or self.values or integers or any(value == value for value in values):
            if len(self.values) < self._size:
                self.values.frombytes(_UNKNOWN * self._size)
            self.values.frombytes(pack(f"{count}d", *values))  # array.extend checks the type of each value
        self._are_known = self._are_known and are_known
        if self._are_whole or integers:
            self._are_whole.extend(bytes(self._size - len(self._are_whole)))
            are_alike = integers in (0, count)
            self._are_whole.extend(bytes([integers > 0]) * count if are_alike else (one is int for one in types))
        self._size += count

    def keep(self, are_kept: Sequence[int]) -> None:
        self._size = sum(are_kept)
        self.values = array("d", compress(self.values, are_kept))
        self._are_whole = bytearray(compress(self._are_whole, are_kept))

    def numbers(self, rows: Iterable[int] | None = None) -> Numbers:
        """Return the known numbers of these rows; None: of all rows."""
        rows = range(self._size) if rows is None else rows if isinstance(rows, range) else array("q", rows)
        values, are_whole = self._of(rows)
        if not self._are_known:
            are_known = bytes(map(_is_known, map(abs, values)))
            values, are_whole = array("d", compress(values, are_known)), bytes(compress(are_whole, are_known))
        return _typed(values, are_whole)

    def floats(self, rows: Sequence[int]) -> Sequence[float]:
        """Return the known numbers of these rows, integers as floats."""
        values, _ = self._of(rows)
        return values if self._are_known else array("d", compress(values, map(_is_known, map(abs, values))))

    def at(self, rows: Sequence[int]) -> Numbers:
        """Return the number of each row, NaN if it is unknown or if the row is less than 0."""
        values, are_whole = self._of(rows)
        if not self._are_known:
            are_known = bytes(map(_is_known, map(abs, values)))
            place = are_known.find(0)
            while place >= 0:
                values[place] = nan
                place = are_known.find(0, place + 1)
        return _typed(values, are_whole) if values else array("d", [nan]) * len(rows)

    def are_told(self, rows: Sequence[int]) -> bytes:
        """Return for each row whether its line tells this figure, were it as null; not if the row is less than 0."""
        values, _ = self._of(rows)
        return bytes(map(eq, values, values)) if values else bytes(len(rows))

    def _of(self, rows: Sequence[int]) -> tuple[array[float], bytes | bytearray]:
        """Return copies: the value of each row, if any is known, and whether it is an integer, if any is."""
        values, are_whole = self.values, self._are_whole
        if not values:
            return values, are_whole
        if isinstance(rows, range):  # without a step
            return values[rows.start : rows.stop], are_whole[rows.start : rows.stop]
        if rows and min(rows) < 0:
            values, are_whole = values + array("d", [nan]), are_whole and are_whole + b"\0"
        found = array("d", map(values.__getitem__, rows))
        return found, bytes(map(are_whole.__getitem__, rows if are_whole else ()))


def _as_told(value: object) -> float:
    return ABSENT if value is ABSENT else NO_NUMBER if (known := number(value)) is None else known


def _typed(values: array[float], are_whole: Sequence[int]) -> Numbers:
    if not any(are_whole):
        return values
    return [int(one) if is_whole and one == one else one for one, is_whole in zip(values, are_whole, strict=True)]


K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Codes(Generic[T]):
    """One of few values for each row."""

    def __init__(self) -> None:
        self._codes = array("I")
        self._values: list[T] = []
        self._known: dict[T, int] = {}

    def extend(self, told: Sequence[K], value: Callable[[K], T]) -> None:
        """Add the value of what each line tells."""
        codes = dict.fromkeys(told, 0)
        for one in codes:
            codes[one] = self._known.setdefault(known := value(one), len(self._values))
            if codes[one] == len(self._values):
                self._values.append(known)
        self._codes.extend(map(codes.__getitem__, told))

    def at(self, rows: Iterable[int]) -> Iterator[T]:
        """Return the value of each row."""
        return map(self._values.__getitem__, map(self._codes.__getitem__, rows))
