"""A figure of many lines, at 8 bytes each. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import compress
from math import nan
from struct import pack
from typing import Generic, TypeVar

from ngcdl.report.measured.lines import Line, are_numbers, number

NO_NUMBER = 1e300  # as a value: something else than a number (lines.number)
_UNKNOWN = pack("d", nan)
_ABSENT = nan


class Column:
    """A figure of each row; an unknown one is NaN. Integers stay integers, as a record shows them."""

    def __init__(self) -> None:
        self._size = 0
        self.values = array("d")  # empty until one is known
        self._are_whole = bytearray()  # empty until one is an integer

    def extend(self, values: Sequence[float]) -> None:
        types = {*map(type, values)}
        if self.values or int in types or any(value == value for value in values):
            if len(self.values) < self._size:
                self.values.frombytes(_UNKNOWN * self._size)
            self.values.frombytes(pack(f"{len(values)}d", *values))  # array.extend checks the type of each value
        if self._are_whole or int in types:
            self._are_whole.extend(bytes(self._size - len(self._are_whole)))
            self._are_whole.extend(type(value) is int for value in values)
        self._size += len(values)

    def keep(self, are_kept: Sequence[int]) -> None:
        self._size = sum(are_kept)
        self.values = array("d", compress(self.values, are_kept))
        self._are_whole = bytearray(compress(self._are_whole, are_kept))

    def numbers(self, rows: Iterable[int] | None = None) -> Sequence[float]:
        """Return the known numbers of these rows; None: of all rows."""
        values, are_whole = self.values, self._are_whole
        if not values:
            return ()
        if not are_whole:
            some = values if rows is None else (values[row] for row in rows)
            return array("d", (value for value in some if abs(value) < NO_NUMBER))
        known = (row for row in (range(len(values)) if rows is None else rows) if abs(values[row]) < NO_NUMBER)
        return [int(values[row]) if are_whole[row] else values[row] for row in known]

    def at(self, rows: Iterable[int]) -> list[float | None]:
        """Return the number of each row, None if it is unknown."""
        if not self.values:
            return [None for _ in rows]
        values, are_whole = self.values, self._are_whole
        found = ((row, values[row]) for row in rows)
        if not are_whole:
            return [value if abs(value) < NO_NUMBER else None for _, value in found]
        return [(int(value) if are_whole[row] else value) if abs(value) < NO_NUMBER else None for row, value in found]

    def is_told(self, row: int) -> bool:
        """Return whether the line tells this figure, were it as null."""
        return bool(self.values) and self.values[row] == self.values[row]


def told(lines: Iterable[Line], name: str) -> Sequence[float]:
    """Return the values at `name` for a Column: NO_NUMBER for what is no number, NaN in a line without `name`."""
    values = [line.get(name, _ABSENT) for line in lines]
    if are_numbers(values):
        return values
    return [value if value is _ABSENT else NO_NUMBER if number(value) is None else value for value in values]


T = TypeVar("T")


class Codes(Generic[T]):
    """One of few values for each row."""

    def __init__(self) -> None:
        self._codes = array("I")
        self._values: list[T] = []
        self._known: dict[T, int] = {}

    def add(self, value: T) -> None:
        code = self._known.setdefault(value, len(self._values))
        if code == len(self._values):
            self._values.append(value)
        self._codes.append(code)

    def at(self, row: int) -> T:
        return self._values[self._codes[row]]
