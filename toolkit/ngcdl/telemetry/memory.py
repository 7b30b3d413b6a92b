"""How much memory a control group can get at most, and how much memory pressure it is under.

Version 2: memory.max, memory.pressure, memory.events: https://docs.kernel.org/admin-guide/cgroup-v2.html. Version 1:
memory.limit_in_bytes and memory.oom_control, and no pressure: https://docs.kernel.org/admin-guide/cgroup-v1/memory.html.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import takewhile
from pathlib import Path

import psutil

from ngcdl.frozen import dataclass
from ngcdl.telemetry.kernelfile import KernelFile, number_after

SHORTEST_SECONDS = 1.0  # the pressure is a 10 s average


@dataclass(frozen=True)
class Pressure:
    """`percent`: the share of the last 10 s, 0..100, in which some of the group's threads waited for memory.
    `oom_kills`: how many of the group's processes the kernel has killed so far."""

    percent: float | None = None
    oom_kills: int | None = None


class Limits:
    """Reads a group's limit and pressure from its folders, {"": version 2's, "memory": version 1's}."""

    def __init__(self, folders: Mapping[str, Path], now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._read_at: float | None = None
        self._pressure = Pressure()
        self._limit: int | None = None
        self._total = psutil.virtual_memory().total
        older = folders.get("memory")  # if present: version 2 then only has the service that started the container
        group = older or folders.get("")
        self._some = None if older or group is None else KernelFile(group / "memory.pressure")
        self._events = KernelFile(group / ("memory.oom_control" if older else "memory.events")) if group else None
        file = "memory.limit_in_bytes" if older else "memory.max"
        around = [KernelFile(one / file) for one in (group, *group.parents)] if group else []
        self._limits = list(takewhile(_text, around))  # up to the first without the file

    @property
    def limit_bytes(self) -> int | None:
        """Return the limit; `docker update` and systemd can change it while the group runs."""
        self._look()
        return self._limit

    def pressure(self) -> Pressure:
        self._look()
        return self._pressure

    def _look(self) -> None:
        """Read again if the last reading is a second old, because each reading takes several files."""
        now = self._now()
        if self._read_at is None or now - self._read_at >= SHORTEST_SECONDS:
            self._read_at, self._pressure, self._limit = now, self._read(), self._limit_bytes()

    def _read(self) -> Pressure:
        some = _text(self._some).partition("avg10=")[2].split(" ")[0]
        return Pressure(_float(some), number_after("oom_kill ", _text(self._events)))

    def _limit_bytes(self) -> int | None:
        """Return the lowest limit of the group and its ancestors, or all memory if none is limited."""
        limits = [int(text) for text in map(_text, self._limits) if text.isdecimal()]
        return min([self._total, *limits]) if self._limits else None


def _text(file: KernelFile | None) -> str:
    return ((file.read() if file else None) or "").strip()


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
