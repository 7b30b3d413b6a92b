"""What was sampled in a run, in columns: a sample takes some 100 bytes, and as much for each card. Pure."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from math import nan
from operator import and_, eq, itemgetter
from typing import Any

from ngcdl.record import ACTIVITY
from ngcdl.report.measured import throttling
from ngcdl.report.measured.column import ABSENT, Codes, Column
from ngcdl.report.measured.lines import TOGETHER, Line, are_numbers, lines_in, number, numbers_in, text, texts_in
from ngcdl.spec import MISSED, RUN_UNREAD

_OF_A_SAMPLE = (
    "t", "seconds", "host_cpu_percent", "container_cpu_percent", "threads_running",
    "memory_bytes", "memory_limit_bytes", "memory_pressure_percent", "memory_oom_kills",
)  # fmt: skip
_OF_A_CARD = (
    "gpu_percent", "memory_used_bytes", "watts", "energy_joules", "sm_mhz", "own_processes", "foreign_processes",
    *ACTIVITY,
)  # fmt: skip
_GAP, _UNREAD = 1, 2
# Of one run, more than any cluster gives it: whoever writes samples could make up a new card in each.
MOST_CARDS = 4096

Reasons = frozenset[str]
# A card's index, that of its card if it is a MIG device, its UUID, name and node.
Name = tuple[float | None, float | None, str | None, str | None, str | None]
_NAME = ("index", "card_index", "uuid", "name", "node")


class TakenCard:
    """The readings of one card, in columns."""

    def __init__(self) -> None:
        self.rows = array("I")  # the sample of each reading
        self.places = array("I")  # its place in the sample
        self.figures = {name: Column() for name in _OF_A_CARD}
        self.reasons: Codes[Reasons | None] = Codes()
        self._names: list[tuple[int, tuple[Any, ...]]] = []  # each with the place of the first reading that has it

    def add(self, rows: Iterable[int], places: Iterable[int], readings: Sequence[Line]) -> None:
        for at, reading in enumerate(readings, len(self.rows)):
            name = tuple(map(reading.get, _NAME))
            if not self._names or name != self._names[-1][1]:
                self._names.append((at, name))
        self.rows.extend(rows)
        self.places.extend(places)
        for column, values in zip(self.figures.values(), _columns(_OF_A_CARD, readings), strict=True):
            column.tell(values)
        named = [texts_in(reading.get("throttle_reasons")) for reading in readings]
        self.reasons.extend([None if one is None else tuple(one) for one in named], _reasons)

    def name(self, reading: int) -> Name:
        index, card_index, *texts = self._names[bisect_right(self._names, reading, key=itemgetter(0)) - 1][1]
        uuid, name, node = map(text, texts)
        return number(index), number(card_index), uuid, name, node


def _reasons(told: tuple[str, ...] | None) -> Reasons | None:
    return None if told is None else frozenset(told) - {throttling.IDLE}


class Taken:
    """The samples of a run, each once read."""

    def __init__(self, samples: Iterable[Line]) -> None:
        self.size = 0
        self.figures = {name: Column() for name in _OF_A_SAMPLE}
        self.busiest = Column()  # of the logical processors
        self.cards: dict[str, TakenCard] = {}
        self._gaps = bytearray()
        self._lacks, self._examples = Counter[str](), dict[str, str]()  # reasons of gaps without their numbers
        self._read, self._ever_read = array("I"), set[str]()  # of how many cards, and of which, the use is known
        them = iter(samples)
        while lines := list(islice(them, TOGETHER)):
            self._add(lines)

    @property
    def rows(self) -> range:
        return range(self.size)

    def are_full(self, rows: Sequence[int]) -> bytes:
        """Return for each sample whether it tells the host's use, which others leave out when sampling faster."""
        return self.figures["host_cpu_percent"].are_told(rows)

    def are_read(self, rows: Sequence[int]) -> bytes:
        """Return for each sample whether it is full, and tells the use of a card, if that of any is known at all."""
        are_full = self.are_full(rows)
        if not self._ever_read:
            return are_full
        return bytes(is_full and self._read[row] > 0 for is_full, row in zip(are_full, rows, strict=True))

    @property
    def gaps(self) -> int:
        """How many samples have a gap, without the last ones if they came only after the run's end."""
        ended = self.size - len(self._gaps.rstrip(bytes([_UNREAD])))
        after = ended if ended < self.size else min(ended, 1)  # a run that could never be read has more than one
        return sum(map(bool, self._gaps[: self.size - after]))

    @property
    def gap_reason(self) -> str | None:
        """The most frequent reason for a gap but missed ticks, with the numbers of its first."""
        return self._examples[self._lacks.most_common(1)[0][0]] if self._lacks else None

    @property
    def complete(self) -> int:
        """In how many samples the host was read, and every card whose use was read at all."""
        known = self.figures["host_cpu_percent"].at(self.rows)
        return sum(map(and_, map(len(self._ever_read).__eq__, self._read), map(eq, known, known)))

    def _add(self, lines: Sequence[Line]) -> None:
        for column, values in zip(self.figures.values(), _columns(_OF_A_SAMPLE, lines), strict=True):
            column.tell(values)
        self.busiest.tell(_busiest([line.get("cpu_percents") for line in lines]))
        gaps = [line.get("gap") for line in lines]
        self._gaps.extend(_UNREAD if gap == RUN_UNREAD else _GAP if gap else 0 for gap in gaps)
        for why in chain.from_iterable(gap.split("; ") for gap in gaps if isinstance(gap, str)):
            if not why.endswith(MISSED):
                kind = re.sub(r"[\d.]+", "", why)
                self._lacks[kind] += 1
                self._examples.setdefault(kind, why)
        read = array("I", bytes(4 * len(lines)))
        told = [line.get("gpus") for line in lines]
        for key, (places, readings) in (_alike(told) or _readings(told)).items():
            if key not in self.cards:
                if len(self.cards) == MOST_CARDS:
                    continue
                self.cards[key] = TakenCard()
            self.cards[key].add([self.size + at for at in places], places.values(), readings)
            percents = [number(reading.get("gpu_percent")) for reading in readings]
            for at, percent in zip(places, percents, strict=True):
                read[at] += percent is not None
            if percents.count(None) < len(percents):
                self._ever_read.add(key)
        self._read.extend(read)
        self.size += len(lines)


Readings = dict[str, tuple[dict[int, int], Sequence[Line]]]  # of each card: its place in each sample, and what was read


def _alike(told: Sequence[object]) -> Readings | None:
    """Return the readings of samples that all have the same cards at the same places, as nearly all do; else None."""
    lists = [one for one in told if type(one) is list]
    if len(lists) < len(told) or len({*map(len, lists)}) > 1:
        return None
    found: Readings = {}
    for place, readings in enumerate(zip(*lists, strict=True)):
        if [*map(type, readings)].count(dict) < len(readings):
            return None
        uuid = readings[0].get("uuid")
        if (
            not (uuid and type(uuid) is str)
            or uuid in found
            or [one.get("uuid") for one in readings].count(uuid) < len(readings)
        ):
            return None
        found[uuid] = dict.fromkeys(range(len(readings)), place), readings
    return found


def _readings(told: Sequence[object]) -> Readings:
    """Return the readings of samples, of each card the last one of a sample."""
    found: dict[str, tuple[dict[int, int], dict[int, Line]]] = {}
    for at, cards in enumerate(told):
        for place, reading in enumerate(filter(None, lines_in(cards))):
            key = str(reading.get("uuid") or reading.get("index"))
            places, readings = found.setdefault(key, ({}, {}))
            places.setdefault(at, place)
            readings[at] = reading
    return {key: (places, [*readings.values()]) for key, (places, readings) in found.items()}


def _busiest(rows: Sequence[object]) -> Sequence[float]:
    """Return the greatest number of each row, NaN if it has none."""
    lists = [row if isinstance(row, list) else [] for row in rows]
    if all(lists) and are_numbers([*chain.from_iterable(lists)]):
        return [*map(max, lists)]
    return [max(numbers_in(row), default=nan) for row in lists]


def _columns(names: Sequence[str], lines: Sequence[Line]) -> Iterable[Sequence[Any]]:
    """Return the values that the lines tell for each name, ABSENT where one doesn't."""
    try:
        return zip(*map(itemgetter(*names), lines), strict=True)
    except KeyError:
        return [[line.get(name, ABSENT) for line in lines] for name in names]
