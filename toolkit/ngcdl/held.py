"""Which cards of this host its open runs hold: they are a run's before it computes on them and NVML can tell."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator

from ngcdl.errors import NgcdlError
from ngcdl.owner import is_alive, this_process
from ngcdl.record import Run
from ngcdl.spec import GpuRequest
from ngcdl.store import Store

_NEWEST = 100  # so many runs are looked at; what began before them computes by now


def cards(shelf: Store) -> dict[str, str]:
    """Give the UUIDs of the cards that are held, each with the id of its run.

    Only of runs that a living process of this host watches, or that lost their engine since it was booted: what else
    nobody watches is dead, or NVML tells of it, and the cards of another host that shares this home are others.
    """
    found: dict[str, str] = {}
    for run_id in shelf.ids()[:_NEWEST]:
        with contextlib.suppress(NgcdlError):  # a broken record is `ngcdl runs`' to tell
            run = None if shelf.is_ended(run_id) else shelf.load(run_id)
            if run and _runs_here(run) and _holds(run):
                found |= dict.fromkeys(run.gpus or (), run_id)
    return found


def _runs_here(run: Run) -> bool:
    """Does it run, as far as this host knows? With live-restore a container outlives its engine, and so its watcher."""
    if run.status == "lost":
        return run.owner is not None and run.owner.boot == this_process().boot
    return run.status == "running" and is_alive(run.owner)


def _holds(run: Run) -> bool:
    """Are its cards its own? A command that was given no certain ones sees all there are, and mostly uses none."""
    if run.workload:
        return bool(run.workload.get("device") != "cpu")
    return bool(GpuRequest.parse(str((run.spec or {}).get("gpus"))).devices)


@contextlib.contextmanager
def turn(shelf: Store) -> Iterator[None]:
    """Keep others from recording a run on free cards meanwhile. A file system that has no locks keeps nobody."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            fcntl.flock(stack.enter_context((shelf.root / ".cards.lock").open("wb")), fcntl.LOCK_EX)
        yield
