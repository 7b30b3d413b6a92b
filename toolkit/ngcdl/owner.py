"""Who watches a run: a process, distinguishable from a later one with the same PID."""

from __future__ import annotations

import os
from pathlib import Path

from ngcdl.record import Owner


def _ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot (man 5 proc: field 22 of stat); None if it ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])  # a zombie only waits for its parent


def _boot() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def this_process() -> Owner:
    return Owner(os.getpid(), _ticks(os.getpid()), _boot())


def is_alive(owner: Owner | None) -> bool:
    """Is that very process still running?"""
    if owner is None:
        return False
    ticks = _ticks(owner.pid)
    return ticks is not None and ticks == owner.ticks and owner.boot == _boot()
