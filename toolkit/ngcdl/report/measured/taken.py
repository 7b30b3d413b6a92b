"""What was sampled in a run, in columns: a sample takes some 100 bytes, and as much for each card. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import islice
from math import nan

from ngcdl.processes import RUN_UNREAD
from ngcdl.report.measured import throttling
from ngcdl.report.measured.column import Codes, Column, told
from ngcdl.report.measured.lines import TOGETHER, Line, are_numbers, number, numbers_in, text, texts_in

_OF_A_SAMPLE = (
    "t", "seconds", "host_cpu_percent", "container_cpu_percent", "threads_running",
    "memory_bytes", "memory_limit_bytes", "memory_pressure_percent", "memory_oom_kills",
)  # fmt: skip
_OF_A_CARD = (
    "gpu_percent", "memory_used_bytes", "watts", "energy_joules", "sm_mhz", "own_processes", "foreign_processes",
    "sm_active_percent", "sm_occupancy_percent", "tensor_active_percent", "dram_bandwidth_percent",
)  # fmt: skip
_GAP, _UNREAD = 1, 2
# Of one run, more than any cluster gives it: whoever writes samples could make up a new card in each.
MOST_CARDS = 4096

Reasons = frozenset[str]
Name = tuple[float | None, str | None, str | None, str | None]  # a card's index, UUID, name and node


class TakenCard:
    """The readings of one card, in columns."""

    def __init__(self) -> None:
        self.rows = array("I")  # the sample of each reading
        self.places = array("I")  # its place in the sample
        self.figures = {name: Column() for name in _OF_A_CARD}
        self.reasons: Codes[Reasons | None] = Codes()
        self.names: Codes[Name] = Codes()

    def add(self, rows: Iterable[int], places: Iterable[int], readings: Sequence[Line]) -> None:
        self.rows.extend(rows)
        self.places.extend(places)
        for figure, column in self.figures.items():
            column.extend(told(readings, figure))
        for one in readings:
            named = texts_in(one.get("throttle_reasons"))
            self.reasons.add(None if named is None else frozenset(named) - {throttling.IDLE})
            index, uuid, name, node = map(one.get, ("index", "uuid", "name", "node"))
            self.names.add((number(index), text(uuid), text(name), text(node)))


class Taken:
    """The samples of a run, each once read."""

    def __init__(self, samples: Iterable[Line]) -> None:
        self.size = 0
        self.figures = {name: Column() for name in _OF_A_SAMPLE}
        self.busiest = Column()  # of the logical processors
        self.cards: dict[str, TakenCard] = {}
        self._gaps = bytearray()
        self._read, self._ever_read = array("I"), set[str]()  # of how many cards, and of which, the use is known
        them = iter(samples)
        while lines := list(islice(them, TOGETHER)):
            self._add(lines)

    @property
    def rows(self) -> range:
        return range(self.size)

    def is_full(self, row: int) -> bool:
        """Return whether the sample tells the host's use, which others leave out when sampling faster."""
        return self.figures["host_cpu_percent"].is_told(row)

    @property
    def gaps(self) -> int:
        """How many samples have a gap, without the last ones if they came only after the run's end."""
        ended = self.size - len(self._gaps.rstrip(bytes([_UNREAD])))
        after = ended if ended < self.size else min(ended, 1)  # a run that could never be read has more than one
        return sum(map(bool, self._gaps[: self.size - after]))

    @property
    def complete(self) -> int:
        """In how many samples the host was read, and every card whose use was read at all."""
        known = self.figures["host_cpu_percent"].at(self.rows)
        return sum(
            count == len(self._ever_read) and one is not None for count, one in zip(self._read, known, strict=True)
        )

    def _add(self, lines: Sequence[Line]) -> None:
        for name, column in self.figures.items():
            column.extend(told(lines, name))
        self.busiest.extend([_busiest(line.get("cpu_percents")) for line in lines])
        gaps = [line.get("gap") for line in lines]
        self._gaps.extend(_UNREAD if gap == RUN_UNREAD else _GAP if gap else 0 for gap in gaps)
        found: dict[str, dict[int, tuple[int, Line]]] = {}
        for row, line in enumerate(lines, self.size):
            read = set()
            for place, reading in enumerate(cards_in(line)):
                key = str(reading.get("uuid") or reading.get("index"))
                if key not in self.cards:
                    if len(self.cards) == MOST_CARDS:
                        continue
                    self.cards[key] = TakenCard()
                card = found.setdefault(key, {})
                card[row] = (card[row][0] if row in card else place), reading
                if number(reading.get("gpu_percent")) is not None:
                    read.add(key)
            self._read.append(len(read))
            self._ever_read |= read
        for key, readings in found.items():
            places, told_there = zip(*readings.values(), strict=True)
            self.cards[key].add(readings, places, told_there)
        self.size += len(lines)


def cards_in(sample: Line) -> list[Line]:
    gpus = sample.get("gpus")
    return [gpu for gpu in gpus if isinstance(gpu, dict) and gpu] if isinstance(gpus, list) else []


def _busiest(percents: object) -> float:
    known = percents if isinstance(percents, list) and are_numbers(percents) else numbers_in(percents)
    return max(known, default=nan)
