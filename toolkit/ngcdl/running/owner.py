"""Who watches a run: a process, distinguishable from a later one with the same PID."""

from __future__ import annotations

import os
from pathlib import Path

from ngcdl import processes
from ngcdl.record import Owner


def _boot() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def this_process() -> Owner:
    return Owner(os.getpid(), processes.began(os.getpid()), _boot())


def is_alive(owner: Owner | None) -> bool:
    """Is that very process still running?"""
    return owner is not None and owner.boot == _boot() and processes.is_running(owner.pid, owner.ticks)
