"""Which cards this host's open runs hold, including cards of runs that do not compute yet, which NVML can't report."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from ngcdl import waiting
from ngcdl.record import Run
from ngcdl.running.owner import is_alive, this_process
from ngcdl.spec import GpuRequest
from ngcdl.storing.store import Store


def claimed(store: Store) -> dict[str, str]:
    """Return the UUIDs of the held cards, each with the id of its run.

    A run counts only if a living process of this host watches it, or if it lost its engine since this host was booted.
    Any other unwatched run is dead, or NVML reports it. Runs of another host that shares this home have other cards.
    """
    found: dict[str, str] = {}
    for run in store.owned():
        if _runs_here(run) and _holds(run):
            found |= dict.fromkeys(run.gpus or (), run.id)
    return found


def _runs_here(run: Run) -> bool:
    """Return whether `run` is running, as far as this host knows. With Docker's live-restore a container outlives both
    engine and watcher."""
    if run.status == "lost":
        return run.owner is not None and run.owner.boot == this_process().boot
    return run.status == "running" and is_alive(run.owner)


def _holds(run: Run) -> bool:
    """Return whether `run` has its cards to itself. A command that was not given particular cards sees all, and usually
    uses none."""
    if run.workload:
        return bool(run.workload.get("device") != "cpu")
    return GpuRequest.parse(str((run.spec or {}).get("gpus"))).kind == "devices"


@contextlib.contextmanager
def choosing_lock(store: Store, say: Callable[[str], None]) -> Iterator[None]:
    """Keep other processes from recording a run on free cards while the block lasts. Without file locks this does
    nothing."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(waiting.locked(store.root / ".cards.lock", say, "another ngcdl to choose its GPUs"))
        yield
