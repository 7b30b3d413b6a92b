"""What this machine is, and how much of its CPU and memory is in use."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from ngcdl import record
from ngcdl.telemetry.card import Card

CPUINFO, STAT = Path("/proc/cpuinfo"), Path("/proc/stat")
MOST_CORES = 512  # of which each is measured


def machine(driver: str | None = None, cards: Sequence[Card] = ()) -> record.Machine:
    """Give this machine as a run's record has it."""
    gpus = (record.Gpu(c.index, c.name, c.uuid, c.memory_total_bytes, c.compute_capability) for c in cards)
    return record.Machine(
        hostname=socket.gethostname() or None,
        cpu=_cpu() or platform.processor() or platform.machine() or None,
        cores=os.cpu_count(),
        memory_bytes=psutil.virtual_memory().total,
        kernel=platform.release() or None,
        driver=driver,
        gpus=tuple(gpus),
        physical_cores=psutil.cpu_count(logical=False),
    )


def _cpu() -> str | None:
    for line in (_text(CPUINFO) or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip() or None
    return None


@dataclass(frozen=True)
class Cpu:
    """The use of all processors and of each, 0..100, since the last reading; how many other threads run or want to."""

    percent: float | None = None
    percents: tuple[float, ...] | None = None
    threads_running: int | None = None


class CpuMeter:
    """Measures the use of all processors, and of each of the first 512, since the reading before."""

    def __init__(self, read: Callable[[], str | None] = lambda: _text(STAT)) -> None:
        self._read = read
        self._last = _times(read() or "")

    def read(self) -> Cpu:
        """What is unknown is None: where no time has passed since the last reading, or /proc/stat can't be read."""
        text = self._read() or ""
        before, self._last = self._last, _times(text)
        shares = [_percent(then, now) for then, now in zip(before, self._last, strict=False)]
        running = text.partition("\nprocs_running ")[2].partition("\n")[0]
        return Cpu(
            shares[0] if shares else None,
            # a processor that was switched on or off meanwhile moves those after it
            _all_known(shares[1:]) if len(before) == len(self._last) else None,
            max(int(running) - 1, 0) if running.isdecimal() else None,  # this thread is one of them
        )


def _times(stat: str) -> list[tuple[int, int]]:
    """Read (busy, all) ticks of all processors together, then of each: https://man7.org/linux/man-pages/man5/proc_stat.5.html"""
    found: list[tuple[int, int]] = []
    for line in stat.splitlines():
        if not line.startswith("cpu") or len(found) > MOST_CORES:
            break
        # the two behind these, guests' time, are counted within user and nice already
        ticks = [int(one) for one in line.split()[1:9]]
        whole = sum(ticks)
        found.append((whole - ticks[3] - ticks[4], whole))
    return found


def _percent(then: tuple[int, int], now: tuple[int, int]) -> float | None:
    busy, whole = now[0] - then[0], now[1] - then[1]
    return round(min(100.0, max(0.0, 100 * busy / whole)), 1) if whole > 0 else None


def _all_known(shares: Sequence[float | None]) -> tuple[float, ...] | None:
    known = tuple(share for share in shares if share is not None)
    return known if known and len(known) == len(shares) else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None


def memory_bytes() -> int | None:
    """Give the memory in use on this machine: all that is not available to a new program."""
    memory = psutil.virtual_memory()
    return int(memory.total - memory.available)
