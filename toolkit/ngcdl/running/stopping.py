"""Stops a run or a comparison: asks its watcher or its engine to end it, and returns how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ngcdl import console, waiting
from ngcdl.engines.base import grace_seconds
from ngcdl.errors import NoSuchRun, RecordBroken, RunOfOthers
from ngcdl.record import Run
from ngcdl.running.ending import STOPPED
from ngcdl.running.owner import is_alive
from ngcdl.running.reconcile import LOCK_SECONDS, SILENT, Obstacles, reconcile, standing
from ngcdl.running.recorded_job import job_of
from ngcdl.storing.store import Store

if TYPE_CHECKING:
    from ngcdl.storing.comparisons import StoredComparison

LOOK_SECONDS = 5.0  # between two looks for a job that its cluster may still accept


def stopped(
    store: Store,
    run: Run,
    say: Callable[[str], None] = console.say,
    pause: float = waiting.FIRST_SECONDS,
    look_seconds: float = LOOK_SECONDS,
) -> Run:
    """Stop `run`, which is running, and return it as it ended; if its watcher is gone and nobody can tell how it ended,
    return its last known state. Wait for a cluster until it answers. After `pause` s, `say` from time to time what is
    waited for.

    The run's watcher is asked to stop it or, if the watcher is gone, its engine. While a cluster may still accept the
    job, the cluster is asked again every `look_seconds`. Raise EngineError, RunElsewhere, RunOfOthers or RunOnHost."""
    obstacles = Obstacles()

    def waits_for() -> str:
        silent = "".join(f" ({error.message.rstrip('.')})" for error in obstacles.errors)
        return f"{run.id} to end{silent}"

    with waiting.telling(say, waits_for, pause, "only ends this command"):
        is_asked = True
        # a run can write any process into its record
        if run.owner and is_alive(run.owner) and store.is_known(run):
            store.tell_stop(run.id)
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(run.owner.pid, signal.SIGTERM)
                os.kill(run.owner.pid, signal.SIGCONT)  # suspended (Ctrl-Z), it would never see SIGTERM
        else:
            is_asked = _ask_engine(store, run)
        due = time.monotonic() + look_seconds
        states = standing(store, run.id, obstacles=obstacles)
        while (now := next(states)).status == "running" and not _is_left(now):
            if not is_asked and time.monotonic() >= due:
                try:
                    is_asked = _ask_engine(store, now)
                except SILENT as error:
                    obstacles.engines[str(run.engine)] = error
                due = time.monotonic() + look_seconds
        return now


def noted(store: Store, run: Run) -> Run:
    """Return `run` with a note if `ngcdl stop` was typed for it, of which its watcher only got a signal."""
    return run.noting(STOPPED) if store.is_told_stop(run.id) else run


def _is_left(run: Run) -> bool:
    """Return whether the watcher of `run` is gone. Then only `standing` can close its record, and has just tried."""
    return run.owner is not None and not is_alive(run.owner)


def _ask_engine(store: Store, run: Run) -> bool:
    """Ask the run's engine to stop its job. Return False if there is no job yet, but a cluster may accept it later
    (launch.MAY_BE_ACCEPTED)."""
    is_cluster = run.kind.is_cluster
    if run.owner is None and not is_cluster:
        raise RunOfOthers(run.id, str(run.engine))
    is_unknown = is_cluster and run.container is None
    job = job_of(run, "stop")
    if job is None or (is_unknown and job.ended()):
        return not is_unknown
    with waiting.if_possible(lambda: waiting.locked_within(store.lock_of(run.id), LOCK_SECONDS)):
        run = store.load(run.id)
        if run.status != "running":  # it was closed while its engine was asked
            return True
        # With the job in its record, reconcile looks for the run's end at once, and not only after SUBMISSION_SECONDS.
        store.save(replace(run, container=run.container or job.identity).noting(STOPPED), store.is_known(run))
    job.stop(grace_seconds(run.workload))
    return True


def is_over(store: Store, kept: StoredComparison) -> bool:
    """Return whether a comparison has ended. A comparison without a watcher may still have runs in a cluster's
    queue."""
    is_closed = kept.finished is not None or len(kept.trials) == kept.repeat * len(kept.arms)
    return is_closed and not left(store, kept)


def comparison(store: Store, kept: StoredComparison) -> Iterator[Run]:
    """Prevent further runs of a comparison, and stop those that have not ended, the last in the queue first.

    Yield each run as it ended. Raise as `stopped` does."""
    from ngcdl.storing import comparisons

    for run_id in left(store, comparisons.stop(kept, store)):
        run = reconcile(store, store.load(run_id))
        yield stopped(store, run) if run.status == "running" else run


def left(store: Store, kept: StoredComparison) -> list[str]:
    """Return the ids of those runs of a comparison that have not ended, the last first."""
    return [trial.run for trial in reversed(kept.trials) if _runs(store, trial.run)]


def _runs(store: Store, run_id: str) -> bool:
    try:
        return store.load(run_id).status == "running"
    except (NoSuchRun, RecordBroken):
        return False
