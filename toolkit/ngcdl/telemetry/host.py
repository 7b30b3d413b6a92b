"""What this machine is, and how much of its CPU and memory is in use."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from ngcdl import record
from ngcdl.frozen import dataclass
from ngcdl.telemetry.card import Card
from ngcdl.telemetry.kernelfile import KernelFile, number_after
from ngcdl.telemetry.processors import processors

CPUINFO, STAT, MEMORY = Path("/proc/cpuinfo"), Path("/proc/stat"), Path("/proc/meminfo")
MOST_CORES = 512  # so many at most are measured individually


def machine(driver: str | None = None, cards: Sequence[Card] | None = None) -> record.Machine:
    """Return this machine as a run's record describes it. `cards` None: unknown."""
    gpus = (record.Gpu(c.index, c.name, c.uuid, c.memory_total_bytes, c.compute_capability) for c in cards or ())
    return record.Machine(
        hostname=socket.gethostname() or None,
        cpu=_cpu() or platform.processor() or platform.machine() or None,
        cores=os.cpu_count(),
        memory_bytes=psutil.virtual_memory().total,
        kernel=platform.release() or None,
        driver=driver,
        gpus=None if cards is None else tuple(gpus),
        physical_cores=psutil.cpu_count(logical=False),
        usable_cores=processors(),
    )


def _cpu() -> str | None:
    for line in (KernelFile(CPUINFO).read() or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip() or None
    return None


@dataclass(frozen=True)
class Cpu:
    """The use of all processors and of each, 0..100, since the last reading, and how many other threads run or wait for
    a processor."""

    percent: float | None = None
    percents: tuple[float, ...] | None = None
    threads_running: int | None = None


class CpuMeter:
    """Measures the use of all processors, and of each of the first 512, since the previous reading."""

    def __init__(self, read: Callable[[], str | None] | None = None) -> None:
        self._read = read or KernelFile(STAT).read
        self._last = _times(self._read() or "")

    def read(self) -> Cpu:
        """Return the use since the last reading. A value is None if no time has passed since then, or /proc/stat can't
        be read."""
        text = self._read() or ""
        before, self._last = self._last, _times(text)
        shares = [
            round(min(100.0, max(0.0, 100 * (busy - was_busy) / (whole - was))), 1) if whole > was else None
            for (was_busy, was), (busy, whole) in zip(before, self._last, strict=False)
        ]
        each = [share for share in shares[1:] if share is not None]
        running = number_after("procs_running ", text)
        return Cpu(
            shares[0] if shares else None,
            # a processor that went online or offline meanwhile shifts those after it
            tuple(each) if each and len(each) + 1 == len(before) == len(self._last) else None,
            None if running is None else max(running - 1, 0),  # this thread is one of them
        )


def _times(stat: str) -> list[tuple[int, int]]:
    """Parse (busy, all) ticks of all processors together, then each: https://man7.org/linux/man-pages/man5/proc_stat.5.html"""
    found: list[tuple[int, int]] = []
    for line in stat.splitlines():
        if not line.startswith("cpu") or len(found) > MOST_CORES:
            break
        # the next two, guest time, are already included in user and nice
        user, nice, system, idle, waiting, interrupts, soft_interrupts, stolen = map(int, line.split(None, 9)[1:9])
        busy = user + nice + system + interrupts + soft_interrupts + stolen
        found.append((busy, busy + idle + waiting))
    return found


def memory_used_bytes(meminfo: str | None) -> int | None:
    """Return how much of a machine's memory is not available to a new program, by its /proc/meminfo; None if that can't
    be read, or comes from a kernel older than 3.14."""
    total, available = (number_after(name, meminfo or "") for name in ("MemTotal:", "MemAvailable:"))
    return None if total is None or available is None else 1024 * (total - available)
