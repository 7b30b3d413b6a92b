"""Which cards this host's open runs and comparisons hold, also while they do not compute, which NVML can't report."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from typing import TypeVar

from ngcdl import waiting
from ngcdl.errors import BadGpuRequest
from ngcdl.record import Run
from ngcdl.running.owner import has_runner, this_process
from ngcdl.running.reconcile import Obstacles, reconcile, still_runs
from ngcdl.spec import GpuRequest
from ngcdl.storing.store import Store

T = TypeVar("T")
AWAY_SECONDS = 60.0


class _Away:
    """The engines that did not answer, for a minute: each look at the cards would wait for them again."""

    def __init__(self) -> None:
        self._obstacles = Obstacles()
        self._until = 0.0

    def known(self) -> Obstacles:
        if time.monotonic() >= self._until:
            self._obstacles, self._until = Obstacles(), time.monotonic() + AWAY_SECONDS
        return self._obstacles


_AWAY = _Away()


def claimed(store: Store) -> dict[str, str]:
    """Return the UUIDs of the held cards, each with the id of its run, or of the comparison that it is kept for.

    A comparison holds its cards as long as the process that runs it lives: between two of its runs, too, and while it
    runs on the CPU.
    A run of this host counts until it is known to have ended: if the process that watched it is gone, its engine is
    asked (reconcile), and while that can't be, the run may go on (still_runs). No run survives a reboot. Runs of
    another host that shares this home have other cards.
    """
    from ngcdl.storing import comparisons

    found: dict[str, str] = {}
    for kept in comparisons.owned(store):
        if has_runner(store, kept):
            found |= dict.fromkeys(kept.gpus, kept.id)
    boot, obstacles = this_process().boot, _AWAY.known()
    for run in store.owned():
        is_of_this_boot = run.owner is not None and run.owner.boot == boot
        if is_of_this_boot and run.gpus and _holds(run) and _may_run(store, reconcile(store, run, obstacles)):
            found |= dict.fromkeys(run.gpus, run.id)
    return found


def _may_run(store: Store, run: Run) -> bool:
    """Return whether `run`, as returned by `reconcile`, may be running. With Docker's live-restore a container outlives
    both engine and watcher."""
    return still_runs(store, run) or (run.status == "lost" and run.is_open)


def _holds(run: Run) -> bool:
    if run.workload:
        return is_holding(str(run.workload.get("device")), GpuRequest())
    try:
        return is_holding(None, GpuRequest.parse(str((run.spec or {}).get("gpus"))))
    except BadGpuRequest:  # a run can write anything into its record
        return True


def is_holding(device: str | None, gpus: GpuRequest) -> bool:
    """Return whether a training on `device`, or a command (None) with `gpus`, has its cards to itself. A command that
    was not given particular cards sees all, and usually uses none."""
    return gpus.kind == "devices" if device is None else device != "cpu"


@contextlib.contextmanager
def still_free(
    cards: Collection[str], store: Store, say: Callable[[str], None], chosen: T, choose_again: Callable[[], T]
) -> Iterator[T]:
    """Yield `chosen`, for which these cards were taken because they were free; if another run has taken one of them
    meanwhile, yield what `choose_again` returns. While the block lasts, no other ngcdl takes the cards: it records who
    holds them."""
    if not cards:
        yield chosen
        return
    with choosing_lock(store, say):
        if not claimed(store).keys().isdisjoint(cards):
            say("another run took the GPU meanwhile: choosing again")
            chosen = choose_again()
        yield chosen


def choosing_lock(store: Store, say: Callable[[str], None]) -> AbstractContextManager[None]:
    """Keep other processes from recording a run on free cards while the block lasts. Without file locks this does
    nothing."""
    lock = store.root / ".cards.lock"
    return waiting.if_possible(lambda: waiting.locked(lock, say, "another ngcdl to choose its GPUs"))
