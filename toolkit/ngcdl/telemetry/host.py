"""What this machine is, and how much of its CPU and memory is in use."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from ngcdl import record
from ngcdl.telemetry.card import Card

CPUINFO = Path("/proc/cpuinfo")


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
    )


def _cpu() -> str | None:
    try:
        lines = CPUINFO.read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip() or None
    return None


class CpuMeter:
    """Measures the use of all processors, 0..100, since the reading before."""

    def __init__(self, times: Callable[[], Any] = psutil.cpu_times) -> None:
        self._times = times
        self._last = self._busy_and_all()

    def percent(self) -> float | None:
        """None where no time has passed since the last reading."""
        before, self._last = self._last, self._busy_and_all()
        busy, whole = (now - then for now, then in zip(self._last, before, strict=True))
        return round(min(100.0, max(0.0, 100 * busy / whole)), 1) if whole > 0 else None

    def _busy_and_all(self) -> tuple[float, float]:
        times = self._times()._asdict()
        # Linux counts guest time within user and nice already: https://man7.org/linux/man-pages/man5/proc_stat.5.html
        whole = sum(times.values()) - times.get("guest", 0.0) - times.get("guest_nice", 0.0)
        return whole - times.get("idle", 0.0) - times.get("iowait", 0.0), whole


def memory_bytes() -> int | None:
    """Give the memory in use on this machine: all that is not available to a new program."""
    memory = psutil.virtual_memory()
    return int(memory.total - memory.available)
