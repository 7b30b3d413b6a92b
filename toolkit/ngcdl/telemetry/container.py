"""Which container a process belongs to, and how much CPU and memory a container, or a tree of processes, uses.

Both cgroup versions: https://docs.kernel.org/admin-guide/cgroup-v1/memory.html and .../admin-guide/cgroup-v2.html.
None: /proc or the cgroup can't be read (any more).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import psutil

from ngcdl.telemetry.memory import Limits

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_ID = re.compile(r"(?:[a-z][a-z0-9_.]*-)*([0-9a-f]{64})(?:\.scope)?")
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO, include/linux/proc_ns.h of Linux


@dataclass(frozen=True)
class Usage:
    """`cpu_percent`: 100 is one core, since the reading before. Memory: the working set, without clean file cache.

    Limit, pressure and kills are of the control group: memory.py."""

    cpu_percent: float | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    memory_pressure_percent: float | None = None
    memory_oom_kills: int | None = None


class Meter(Protocol):
    def read(self) -> Usage: ...


# ---- whose process is it ----


def cgroups(text: str) -> dict[str, str]:
    """Parse /proc/PID/cgroup to {controller: path}; version 2's one line has the controller ""."""
    found = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if colon:
            found.update(dict.fromkeys(controllers.split(","), path))
    return found


def container_ids(text: str) -> tuple[str, ...]:
    """Find the ids of the containers that /proc/PID/cgroup names, from the outermost to the innermost."""
    best: tuple[str, ...] = ()
    for path in cgroups(text).values():
        ids = [match[1] for part in path.split("/") if (match := _match(part))]
        best = max(best, tuple(ids), key=len)
    return best


def _match(part: str) -> re.Match[str] | None:
    # podman's and CRI-O's conmon watches a container from outside. containerd writes "slice:cri-containerd:ID".
    return None if "conmon" in part else _ID.fullmatch(part.rpartition(":")[2])


def cgroup_text(pid: int | str) -> str | None:
    try:
        return (PROC / str(pid) / "cgroup").read_text()
    except OSError:
        return None


def container_of(pid: int) -> str | None:
    """Give the id of the container that a process runs in, as the engine of this host knows it."""
    text = cgroup_text(pid)
    if text is None:
        return None
    around_us = container_ids(cgroup_text("self") or "")
    inner = [one for one in container_ids(text) if one not in around_us]
    return inner[0] if inner else None


def name_of(pid: int) -> str | None:
    """Give the name of a process's program."""
    try:
        return (PROC / str(pid) / "comm").read_text(errors="replace").strip() or None
    except OSError:
        return None


@cache
def pids_are_the_hosts() -> bool:
    """Tell whether a PID that the driver names means the same process here.

    The driver knows no PID namespaces: https://github.com/NVIDIA/nvidia-docker/issues/1483
    """
    with suppress(OSError):
        return str((PROC / "self/ns/pid").readlink()) == _INITIAL_PID_NAMESPACE
    return False


# ---- how much it uses ----


class ContainerMeter:
    """Measures the container that a process (its PID on this host) runs in, or a cgroup by its folder (version 2)."""

    def __init__(self, pid_or_cgroup: int | Path, now: Callable[[], float] = time.monotonic) -> None:
        self._folders = _folders(pid_or_cgroup)
        self._limits = Limits(self._folders, now)
        self._rate = _Rate(now)
        self._rate.percent(self._cpu_seconds())

    def read(self) -> Usage:
        return _with_limits(self._rate.percent(self._cpu_seconds()), self._memory_bytes(), self._limits)

    def _cpu_seconds(self) -> float | None:
        for controller, file, per_second in (("", "cpu.stat", 1e6), ("cpuacct", "cpuacct.usage", 1e9)):
            folder = self._folders.get(controller)
            value = _number(folder / file, "usage_usec" if not controller else None) if folder else None
            if value is not None:
                return value / per_second
        return None

    def _memory_bytes(self) -> int | None:
        for controller, file, inactive in (
            ("", "memory.current", "inactive_file"),
            ("memory", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            folder = self._folders.get(controller)
            used = _number(folder / file) if folder else None
            if folder and used is not None:
                return max(0, used - (_number(folder / "memory.stat", inactive) or 0))
        return None


class ProcessMeter:
    """Measures a process and all that it started. Memory is the sum of resident sets: shared pages count twice."""

    def __init__(self, pid: int, now: Callable[[], float] = time.monotonic) -> None:
        self._process: psutil.Process | None = None
        self._limits = Limits(_folders(pid), now)
        with suppress(psutil.Error):
            self._process = psutil.Process(pid)
        self._rate = _Rate(now)
        self.read()

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
                seconds += sum(one.cpu_times()[:4])  # user, system, and those of children that ended
                memory += one.memory_info().rss
        return _with_limits(self._rate.percent(seconds), memory or None, self._limits)


def _with_limits(cpu_percent: float | None, memory_bytes: int | None, limits: Limits) -> Usage:
    if cpu_percent is None and memory_bytes is None:  # it is gone, or can't be read
        return Usage()
    pressure = limits.pressure()
    return Usage(cpu_percent, memory_bytes, limits.limit_bytes, pressure.percent, pressure.oom_kills)


class _Rate:
    """CPU seconds to percent of one core; None for once where the counter fell: a child ended unseen."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last: tuple[float, float] | None = None

    def percent(self, seconds: float | None) -> float | None:
        before, self._last = self._last, None if seconds is None else (self._now(), seconds)
        if before is None or self._last is None or self._last[0] <= before[0] or self._last[1] < before[1]:
            return None
        return round(100 * (self._last[1] - before[1]) / (self._last[0] - before[0]), 1)


def _folders(pid_or_cgroup: int | Path) -> dict[str, Path]:
    if isinstance(pid_or_cgroup, Path):
        return {"": pid_or_cgroup}
    paths = cgroups(cgroup_text(pid_or_cgroup) or "")
    mounts = {"": CGROUPS / "unified" if (CGROUPS / "unified").is_dir() else CGROUPS}
    mounts |= {name: CGROUPS / name for name in ("cpuacct", "memory")}
    if not mounts["cpuacct"].is_dir():
        mounts["cpuacct"] = CGROUPS / "cpu,cpuacct"
    return {name: mounts[name] / whole_container(path).lstrip("/") for name, path in paths.items() if name in mounts}


def whole_container(path: str) -> str:
    """Cut a cgroup path behind the innermost container's id: init systems inside make groups of their own."""
    parts = path.split("/")
    ends = [number for number, part in enumerate(parts) if _match(part)]
    return "/".join(parts[: ends[-1] + 1]) if ends else path


def _number(file: Path, key: str | None = None) -> int | None:
    try:
        text = file.read_text()
        if key is None:
            return int(text)
        return next((int(line.split()[1]) for line in text.splitlines() if line.startswith(key + " ")), None)
    except (OSError, ValueError, IndexError):
        return None
