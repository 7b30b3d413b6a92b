"""How much CPU and memory does a container, or a tree of processes, use?

Both cgroup versions: https://docs.kernel.org/admin-guide/cgroup-v1/memory.html and .../admin-guide/cgroup-v2.html.
None: /proc or the cgroup can't be read (any more).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil

from ngcdl.telemetry import container
from ngcdl.telemetry.kept import Kept
from ngcdl.telemetry.memory import Limits


@dataclass(frozen=True)
class Usage:
    """`cpu_percent`: 100 is one core, since the previous reading. Memory: the working set, without clean file cache.

    Limit, pressure and kills are those of the control group: memory.py. Of the group of a process only the limit is
    read, because others share it: what befell them is not the run's."""

    cpu_percent: float | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    memory_pressure_percent: float | None = None
    memory_oom_kills: int | None = None


class Meter(Protocol):
    """Measures a run; meter(its told()) makes the same meter in another process."""

    def read(self) -> Usage: ...
    def told(self) -> dict[str, Any]: ...


def meter(told: Mapping[str, Any]) -> Meter:
    """Make the meter that `told` describes."""
    if "folders" in told:
        return ContainerMeter({name: Path(folder) for name, folder in told["folders"].items()})
    return ProcessMeter(told["pid"], began=told["began"])


class ContainerMeter:
    """Measures the container that a process (its PID on this host) runs in, or the control groups in folders as
    container.folders_of_container() returns them."""

    def __init__(self, pid_or_folders: int | Mapping[str, Path], now: Callable[[], float] = time.monotonic) -> None:
        found = pid_or_folders
        if isinstance(found, int):
            found = container.folders_of_container(found)
        self._folders = found
        # On a host with both versions, version 1 knows the container, and 2 only the service that started it.
        cpu, memory, newer = found.get("cpuacct"), found.get("memory"), found.get("")
        self._cpu = _Number(cpu, "cpuacct.usage") if cpu else _Number(newer, "cpu.stat", "usage_usec")
        self._per_second = 1e9 if cpu else 1e6
        self._used = _Number(memory, "memory.usage_in_bytes") if memory else _Number(newer, "memory.current")
        self._inactive = _Number(memory or newer, "memory.stat", "total_inactive_file" if memory else "inactive_file")
        self._limits = Limits(found, now)
        self._rate = _Rate(now)
        self.read()

    def told(self) -> dict[str, Any]:
        return {"folders": {name: str(folder) for name, folder in self._folders.items()}}

    def read(self) -> Usage:
        cpu, used = self._cpu.read(), self._used.read()
        cpu_percent = self._rate.percent(None if cpu is None else cpu / self._per_second)
        memory_bytes = None if used is None else max(0, used - (self._inactive.read() or 0))
        if cpu_percent is None and memory_bytes is None:  # it is gone, or can't be read
            return Usage()
        pressure = self._limits.pressure()
        return Usage(cpu_percent, memory_bytes, self._limits.limit_bytes, pressure.percent, pressure.oom_kills)


class ProcessMeter:
    """Measures a process and its descendants. Memory is the sum of resident sets: shared pages count twice."""

    def __init__(self, pid: int, now: Callable[[], float] = time.monotonic, began: int | None = None) -> None:
        """`began`: when the process started, if it may have ended since and another process may have its PID."""
        self._pid, self._began = pid, container.began(pid)
        self._process: psutil.Process | None = None
        self._limits = Limits(container.folders(pid), now)
        if began in (None, self._began):
            with suppress(psutil.Error):
                self._process = psutil.Process(pid)
        self._rate = _Rate(now)
        self.read()

    def told(self) -> dict[str, Any]:
        return {"pid": self._pid, "began": self._began}

    def read(self) -> Usage:
        if self._process is None:
            return Usage()
        try:
            family = [self._process, *self._process.children(recursive=True)]
        except psutil.Error:
            return Usage()
        seconds, memory = 0.0, 0
        for one in family:
            with suppress(psutil.Error), one.oneshot():
                seconds += sum(one.cpu_times()[:4])  # user and system, its own and those of children that ended
                memory += one.memory_info().rss
        cpu_percent = self._rate.percent(seconds)
        if cpu_percent is None and not memory:
            return Usage()
        return Usage(cpu_percent, memory or None, self._limits.limit_bytes)


class _Rate:
    """Converts CPU seconds to percent of one core; None once if the counter fell, as a child ended unseen."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last: tuple[float, float] | None = None

    def percent(self, seconds: float | None) -> float | None:
        before, self._last = self._last, None if seconds is None else (self._now(), seconds)
        if before is None or self._last is None or self._last[0] <= before[0] or self._last[1] < before[1]:
            return None
        return round(100 * (self._last[1] - before[1]) / (self._last[0] - before[0]), 1)


class _Number:
    """A number in a control group's file: its whole content, or what follows `key`. None if there is none."""

    def __init__(self, group: Path | None, file: str, key: str | None = None) -> None:
        self._file = Kept(group / file) if group else None
        self._key = key

    def read(self) -> int | None:
        text = (self._file.read() if self._file else None) or ""
        if self._key is not None:
            text = f"\n{text}".partition(f"\n{self._key} ")[2].partition("\n")[0]
        text = text.strip()
        return int(text) if text.isdecimal() else None
