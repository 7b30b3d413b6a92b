"""The process that watches a run or runs a comparison, told apart from a later process with the same PID."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ngcdl import processes
from ngcdl.folder import RECORD
from ngcdl.record import Owner, Run
from ngcdl.storing.store import Store

if TYPE_CHECKING:
    from ngcdl.storing.comparisons import StoredComparison

# One that can't be seen counts as dead once nothing of its has changed for this long: a run may be in a long step, and
# only who resumes from it, or removes it, needs the answer.
DEAD_SECONDS = 300.0


def this_process() -> Owner:
    return Owner(os.getpid(), processes.began(os.getpid()), processes.boot_id(), processes.namespace())


def is_alive(owner: Owner | None) -> bool:
    """Return whether `owner` still runs, as far as can be seen; a later process with the same PID does not count."""
    if owner is None or owner.boot != processes.boot_id() or is_out_of_sight(owner):
        return False
    return processes.is_running(owner.pid, owner.ticks)


def is_out_of_sight(owner: Owner | None) -> bool:
    """Return whether `owner` may run on this host where this process can't see it: a sandbox or a container, which may
    share home and hostname, has PIDs of its own."""
    its = owner.namespace if owner and owner.boot == processes.boot_id() else None
    return its is not None and its != processes.namespace()


def is_elsewhere(run: Run) -> bool:
    """Return whether `run` started on a machine with another name: one that shares this home, or this machine under an
    earlier name, as a dev container has a new name at each start."""
    return run.machine.hostname not in (None, socket.gethostname())


def quiet_seconds(dates: Iterable[float]) -> float:
    """Return how long ago the latest of `dates` (s since the epoch) was. One that is further ahead than DEAD_SECONDS
    tells nothing: the clock has been set back since."""
    now = time.time()
    return now - max((date for date in dates if date <= now + DEAD_SECONDS), default=-math.inf)


def has_runner(store: Store, kept: StoredComparison) -> bool:
    """Return whether the process that runs a comparison lives. One on another machine that shares this home, or in
    another sandbox, can't be seen: it counts as living until neither the comparison nor its last run has changed for
    DEAD_SECONDS."""
    from ngcdl.storing import comparisons

    if kept.owner is None or is_alive(kept.owner):
        return kept.owner is not None
    is_seen = kept.owner.boot == processes.boot_id() and not is_out_of_sight(kept.owner)
    if kept.finished is not None or is_seen:
        return False
    dates = []
    for path in (comparisons.path(kept.id, store), *(store.folder(one.run) / RECORD for one in kept.trials[-1:])):
        with contextlib.suppress(OSError):
            dates.append(path.stat().st_mtime)
    return quiet_seconds(dates) <= DEAD_SECONDS
