"""Which cards this host's open runs hold, including those not computing yet, which NVML can't report."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator

from ngcdl.errors import NgcdlError
from ngcdl.record import Run
from ngcdl.running.owner import is_alive, this_process
from ngcdl.spec import GpuRequest
from ngcdl.storing.store import Store

_NEWEST = 100  # how many runs are inspected; older ones have begun to compute by now


def claimed(store: Store) -> dict[str, str]:
    """Return the UUIDs of the held cards, each with the id of its run.

    Only runs count that a living process of this host watches, or that lost their engine since it was booted. Any other
    unwatched run is dead, or NVML reports it; runs of another host that shares this home have other cards.
    """
    found: dict[str, str] = {}
    for run_id in store.ids()[:_NEWEST]:
        with contextlib.suppress(NgcdlError):  # `ngcdl runs` reports a broken record
            run = None if store.is_ended(run_id) else store.load(run_id)
            if run and _runs_here(run) and _holds(run):
                found |= dict.fromkeys(run.gpus or (), run_id)
    return found


def _runs_here(run: Run) -> bool:
    """Is it running, as far as this host knows? With live-restore a container outlives engine and watcher."""
    if run.status == "lost":
        return run.owner is not None and run.owner.boot == this_process().boot
    return run.status == "running" and is_alive(run.owner)


def _holds(run: Run) -> bool:
    """Does it have cards to itself? A command that was given no certain cards sees all, and usually uses none."""
    if run.workload:
        return bool(run.workload.get("device") != "cpu")
    return GpuRequest.parse(str((run.spec or {}).get("gpus"))).kind == "devices"


@contextlib.contextmanager
def choosing_lock(store: Store, say: Callable[[str], None]) -> Iterator[None]:
    """Keep other processes from recording a run on free cards meanwhile. Without file locks this does nothing."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            lock = stack.enter_context((store.root / ".cards.lock").open("wb"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("waiting for another ngcdl to choose its GPUs")
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield
