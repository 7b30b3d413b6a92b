"""The process that watches a run, told apart from a later process with the same PID."""

from __future__ import annotations

import os

from ngcdl import processes
from ngcdl.record import Owner


def this_process() -> Owner:
    return Owner(os.getpid(), processes.began(os.getpid()), processes.boot_id())


def is_alive(owner: Owner | None) -> bool:
    """Return whether `owner` still runs; a later process with the same PID does not count."""
    return owner is not None and owner.boot == processes.boot_id() and processes.is_running(owner.pid, owner.ticks)
