"""How much CPU and memory a container, or a tree of processes, uses.

Both cgroup versions: https://docs.kernel.org/admin-guide/cgroup-v1/memory.html and .../admin-guide/cgroup-v2.html.
None: /proc or the cgroup can't be read (any more).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, Protocol

import psutil

from ngcdl import processes
from ngcdl.frozen import dataclass
from ngcdl.telemetry import container
from ngcdl.telemetry.kernelfile import KernelFile, number_after
from ngcdl.telemetry.memory import Limits

# How long one reading may look at the memory that processes share, and the share of all time that this may take.
_AT_ONCE_SECONDS, _SHARES_SHARE = 0.05, 0.02


@dataclass(frozen=True)
class Usage:
    """What a run uses. `cpu_percent` is since the previous reading; 100 is one core. `memory_bytes` of a container
    leaves out its file cache, which the kernel takes back when it needs memory; of processes it is the resident memory,
    with the pages of files that they map.

    Limit, pressure and kills are those of the control group (memory.py). For processes only the limit is read: other
    programs share their control group, and pressure on these or their kills are not the run's."""

    cpu_percent: float | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    memory_pressure_percent: float | None = None
    memory_oom_kills: int | None = None


class Meter(Protocol):
    """Measures a run. told() describes a meter so that meter() makes the same one in another process."""

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
        # On a host with both cgroup versions, version 1 has the container's group, version 2 only that of the service
        # that started the container.
        cpu, memory, newer = found.get("cpuacct"), found.get("memory"), found.get("")
        self._cpu = _Number(cpu, "cpuacct.usage") if cpu else _Number(newer, "cpu.stat", "usage_usec")
        self._per_second = 1e9 if cpu else 1e6
        self._used = _Number(memory, "memory.usage_in_bytes") if memory else _Number(newer, "memory.current")
        # The cache of files that are read again becomes active. Shared memory and tmpfs are in neither number: the
        # kernel can only swap them out.
        of_all = "total_" if memory else ""  # with the groups inside, as in the other numbers
        self._cache = _Number(memory or newer, "memory.stat", f"{of_all}inactive_file", f"{of_all}active_file")
        self._limits = Limits(found, now)
        self._rate = _Rate(now)
        self.read()

    def told(self) -> dict[str, Any]:
        return {"folders": {name: str(folder) for name, folder in self._folders.items()}}

    def read(self) -> Usage:
        cpu, used, cache = self._cpu.read(), self._used.read(), self._cache.read()
        cpu_percent = self._rate.percent(None if cpu is None else cpu / self._per_second)
        memory_bytes = None if used is None or cache is None else max(0, used - cache)
        if cpu_percent is None and memory_bytes is None:  # it is gone, or can't be read
            return Usage()
        pressure = self._limits.pressure()
        return Usage(cpu_percent, memory_bytes, self._limits.limit_bytes, pressure.percent, pressure.oom_kills)


class ProcessMeter:
    """Measures a process and its descendants. Memory is what is resident of a single process; _Shares sums up
    several."""

    def __init__(self, pid: int, now: Callable[[], float] = time.monotonic, began: int | None = None) -> None:
        """`began`: when the process started, if it may have ended since and another process may have its PID."""
        self._pid, self._began = pid, processes.began(pid)
        self._process: psutil.Process | None = None
        self._limits = Limits(container.folders(pid), now)
        if began in (None, self._began):
            with suppress(psutil.Error):
                self._process = psutil.Process(pid)
        self._rate = _Rate(now)
        self._shares = _Shares(now)
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
        seconds, resident = 0.0, 0
        for one in family:
            with suppress(psutil.Error), one.oneshot():
                seconds += sum(one.cpu_times()[:4])  # user and system, its own and those of children that ended
                resident += one.memory_info().rss
        cpu_percent = self._rate.percent(seconds)
        if cpu_percent is None and not resident:
            return Usage()
        memory = resident if len(family) == 1 else self._shares.read([one.pid for one in family])
        return Usage(cpu_percent, memory or None, self._limits.limit_bytes)


class _Shares:
    """Adds up the memory of several processes, each page once: a forked worker shares its parent's pages (Pss in
    https://docs.kernel.org/filesystems/proc.html).

    The kernel walks page tables for that: 11 ms for each GiB a process has in pages of 4 KiB (AMD EPYC, Linux 6.18, 23
    November 2026). So a round over processes with much memory takes several readings. The sum is that of the last
    complete round; after a fork it is unknown until the next round is complete."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._not_before = now, -inf
        self._family: frozenset[int] = frozenset()
        self._left: list[int] = []  # PIDs still to be read in this round
        self._so_far: int | None = 0
        self._bytes: int | None = None

    def read(self, family: Sequence[int]) -> int | None:
        """Return the memory of the processes with these PIDs; None if the kernel doesn't tell that of each."""
        processes = frozenset(family)
        if not processes <= self._family:
            self._bytes = None
        if processes != self._family:  # begin again: a round across a fork counts shared pages twice
            self._left = []
        began = self._now()
        if began < self._not_before:
            return self._bytes
        if not self._left:
            self._family, self._left, self._so_far = processes, [*reversed(family)], 0
        while self._left and self._now() - began < _AT_ONCE_SECONDS:
            share = _share(self._left.pop())
            self._so_far = None if share is None or self._so_far is None else self._so_far + share
        if not self._left:
            self._bytes = self._so_far
        self._not_before = began + (self._now() - began) / _SHARES_SHARE
        return self._bytes


def _share(pid: int) -> int | None:
    """Return a process's part of the memory that it maps, 0 if it has ended; None if that can't be read."""
    folder = container.PROC / str(pid)
    try:
        text = (folder / "smaps_rollup").read_text()
    except ProcessLookupError:
        return 0
    except OSError:  # it is another user's, or Linux is older than 4.14
        return None if folder.exists() else 0
    size = number_after("Pss:", text)
    return None if size is None else 1024 * size


class _Rate:
    """Converts CPU seconds to percent of one core. One reading is None if the counter fell because a child ended
    unseen."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last: tuple[float, float] | None = None

    def percent(self, seconds: float | None) -> float | None:
        before, self._last = self._last, None if seconds is None else (self._now(), seconds)
        if before is None or self._last is None or self._last[0] <= before[0] or self._last[1] < before[1]:
            return None
        return round(100 * (self._last[1] - before[1]) / (self._last[0] - before[0]), 1)


class _Number:
    """A number in a control group's file: the whole content, or the sum of the numbers after `keys`; None if one is
    missing."""

    def __init__(self, group: Path | None, file: str, *keys: str) -> None:
        self._file = KernelFile(group / file) if group else None
        self._keys = keys

    def read(self) -> int | None:
        text = (self._file.read() if self._file else None) or ""
        told = [number_after(f"{key} ", text) for key in self._keys] or [number_after("", text)]
        known = [one for one in told if one is not None]
        return sum(known) if len(known) == len(told) else None
