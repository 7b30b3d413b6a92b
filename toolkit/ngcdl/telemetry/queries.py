"""Asks the driver about one card at a time, and remembers which cards are lost and which queries this driver lacks.

A query that fails leaves its reason in the card's row; the value is None. A lost card is not queried again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ngcdl.telemetry import calls, driver
from ngcdl.telemetry.card import is_mig

_SUCCESS = 0


class Gone(Exception):
    """The card can't be read at all; the message says why."""


@dataclass
class Row:
    """One card being queried, or the driver, which has no handle. `trouble`: what failed, as {code: first call that
    returned it}; `not_offered`: the codes that do not count as failures; `answers`: the card has answered a query."""

    which: int | str | None = None
    handle: Any = None
    not_offered: frozenset[int] = driver.NOT_OFFERED
    trouble: dict[int, str] = field(default_factory=dict)
    answers: bool = False

    @property
    def is_part(self) -> bool:
        return isinstance(self.which, str) and is_mig(self.which)

    @property
    def error(self) -> str | None:
        told = {code: call for code, call in self.trouble.items() if code != driver.UNKNOWN or not self.answers}
        return "; ".join(f"{call}: {driver.words(code, self.which)}" for code, call in told.items()) or None


class Queries:
    """What an open driver is asked through `binding`; `missing` has the calls that it is known to lack."""

    def __init__(self, binding: Any, missing: Iterable[str] = ()) -> None:
        self._n = binding
        self._rows: dict[int | str, Row] = {}
        self._lost: dict[int | str, str] = {}
        self._missing = set(missing)

    def opened(self, which: int | str) -> Row | None:
        """Return the row of a card that open() found, None if it did not."""
        return self._rows.get(which)

    def open(self, which: int | str) -> Row:
        """Return a card's row, in which nothing has failed yet. Raise Gone."""
        row = self._rows.get(which) or self._found(which)
        if row.trouble:
            row.trouble = {}
        row.answers = False
        return row

    def parts(self, row: Row) -> Iterator[tuple[int, str, Any]]:
        """Yield the index, UUID and handle of a card's existing MIG devices; indices up to the maximum may be empty."""
        for index in range(self.ask(row, "DeviceGetMaxMigDeviceCount") or 0):
            with suppress(self._n.NVMLError):  # no device has this index, or this user may not see it
                handle = self._n.nvmlDeviceGetMigDeviceHandleByIndex(row.handle, index)
                yield index, self._n.nvmlDeviceGetUUID(handle), handle

    def answers(self, row: Row, questions: Iterable[calls.Question]) -> list[int | None]:
        """Return the numbers that answer all of `questions`, None for those that the card does not give. Raise Gone."""
        answers: list[int | None] = []
        for question in questions:
            call = question.ways[0]
            code = call.function(row.handle, *call.arguments)
            if code == _SUCCESS:
                answers += call.read()
                row.answers = True
            else:
                answers += self._otherwise(row, question, code)
        return answers

    def first(self, row: Row, names: Sequence[str]) -> Any:
        """Return the answer of the first of these calls that this driver has, None if it has none of them."""
        for call in names:
            value = self.ask(row, call)
            if call not in self._missing:
                return value
        return None

    def ask(self, row: Row, call: str, *arguments: object) -> Any:
        """Query through the binding's own function, which is slow: for rare queries. Raise Gone."""
        function = None if call in self._missing else getattr(self._n, f"nvml{call}", None)
        if function is None:
            self._missing.add(call)
            return None
        try:
            answer = function(*(() if row.handle is None else (row.handle,)), *arguments)
        except self._n.NVMLError as error:
            self._refused(row, call, error.value)
            return None
        row.answers = row.handle is not None
        return answer

    def _found(self, which: int | str) -> Row:
        if which in self._lost:
            raise Gone(self._lost[which])
        try:
            row = self._rows[which] = Row(which, self._handle(which))
        except self._n.NVMLError as error:
            raise self._gone(which, error.value) from error
        if row.is_part:
            row.not_offered = driver.NOT_OFFERED_WITH_MIG
        return row

    def _handle(self, which: int | str) -> Any:
        if isinstance(which, int):
            return self._n.nvmlDeviceGetHandleByIndex(which)
        try:
            return self._n.nvmlDeviceGetHandleByUUID(which)
        except self._n.NVMLError as error:
            if error.value in driver.OF_ANY_CARD:
                for uuid, handle in self._handles():
                    if uuid == which:
                        return handle
            raise

    def _handles(self) -> Iterator[tuple[str, Any]]:
        """Yield the UUIDs and handles of all cards that answer, and of their MIG devices."""
        for index in range(self._n.nvmlDeviceGetCount()):
            with suppress(self._n.NVMLError):
                handle = self._n.nvmlDeviceGetHandleByIndex(index)
                yield self._n.nvmlDeviceGetUUID(handle), handle
                yield from ((uuid, part) for _, uuid, part in self.parts(Row(handle=handle)))

    def _gone(self, which: int | str, code: int) -> Gone:
        is_open = which in self._rows  # then the code is about this card, never about another one
        why = driver.words(code, which) if is_open else driver.no_handle(code, which)
        if is_open and code == driver.GPU_LOST:
            self._lost[which] = why
            del self._rows[which]
        absent = code == (driver.INVALID_ARGUMENT if isinstance(which, int) else driver.NOT_FOUND)
        return Gone(f"there is no GPU {which} (any more)" if absent else why)

    def _otherwise(self, row: Row, question: calls.Question, code: int) -> Sequence[int | None]:
        """Try the older calls. Return None for values that none of them gives."""
        newest, *older = question.ways
        answers: list[int | None] = [None] * len(question.most)
        if older and code != driver.GPU_LOST:
            answers = self.answers(row, (calls.Question(older, question.most),))
            if code == driver.FUNCTION_NOT_FOUND:
                del question.ways[0]
        if answers[0] is None:
            self._refused(row, newest.name, code)
        return answers

    def _refused(self, row: Row, call: str, code: int) -> None:
        if code == driver.GPU_LOST and row.which is not None:
            raise self._gone(row.which, code)
        if code == driver.FUNCTION_NOT_FOUND:
            self._missing.add(call)
        elif code not in row.not_offered:
            row.trouble.setdefault(code, call)
