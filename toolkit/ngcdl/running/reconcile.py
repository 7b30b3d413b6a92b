"""Closes the records of runs that lost their watcher, by what can still be found out; the next ngcdl command does this.

A killed ngcdl (kill -9, power cut) leaves a record that says "running". If the run goes on, its record gets the note
that nobody watches it. If the run has ended, its engine may have kept the exit code and the output. If the engine no
longer has the run, only the trainer's events may tell how it ended.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ngcdl import engines, waiting
from ngcdl.engines.base import Engine
from ngcdl.engines.values import AWAY, UNSEEN, Exit
from ngcdl.errors import (
    ClusterHangs,
    ClusterUnreachable,
    ContainerLeft,
    EngineAbsent,
    EngineHangs,
    EngineLost,
    NgcdlError,
    StateNotWritable,
)
from ngcdl.folder import EVENTS, EXIT, LOG, RECORD, SAMPLES, lines
from ngcdl.record import Run
from ngcdl.running import ending
from ngcdl.running.owner import DEAD_SECONDS, is_alive, is_elsewhere, is_out_of_sight, quiet_seconds, this_process
from ngcdl.running.recorded_job import bring_output
from ngcdl.storing.nodesamples import samples
from ngcdl.storing.store import Store

if TYPE_CHECKING:
    from ngcdl.report.measured.told import Told

UNWATCHED = (
    "ngcdl ended before the run did, lost its engine, or could no longer write; nothing was measured from then on."
)
MAY_BE_LEFT = "the engine may still have its container, or create it: the next ngcdl run or runs removes it"
JOB_LEFT = "The cluster may still have its job: {}"
DETACHED = "Detached with the detach keys; nothing was measured from then on."
# A run that no ngcdl watches (docker compose, Slurm) counts as dead if its trainer's sampler, which writes every
# second, has written nothing for this long.
QUIET_SECONDS = 30.0
# How long an engine may take to create a container after ngcdl stopped waiting for it. The first command after this
# time looks for the container a last time.
LATE_SECONDS = 3600.0
# How long a submission may take: sbatch waits up to 120 s for a busy controller, kubectl up to 135 s in three calls.
SUBMISSION_SECONDS = 180.0
FOLLOW_SECONDS = 0.3
FIRST_ASK_SECONDS, ASK_SECONDS = 0.5, 15.0  # a cluster's controller is shared by all its users
RESTARTED = "the host or its engine was restarted while it ran"
_TERMINATED = 143  # the exit code of a container that SIGTERM ended; one that ended in a power cut was UNSEEN
_UNKNOWN = ("running", "lost")  # the end of other open runs is known, but their container may be left
NOTHING = Exit(None)  # nothing is known about how a run ended
LOCK_SECONDS = 5.0
_WATCHERS_FILES = (SAMPLES, LOG)
_ITS_FILES = (RECORD, EVENTS, *_WATCHERS_FILES)
# Errors of an engine that did not answer. The next query would wait just as long, up to 45 s.
SILENT = (ClusterHangs, ClusterUnreachable, EngineAbsent, EngineHangs, EngineLost)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class Obstacles:
    """What kept `reconcile` from finding out what became of runs, or from recording it: the `engines` that did not
    answer, by name, and the error of the `records`, which can't be written."""

    def __init__(self) -> None:
        self.engines: dict[str, NgcdlError] = {}
        self.records: StateNotWritable | None = None

    @property
    def errors(self) -> tuple[NgcdlError, ...]:
        return (*self.engines.values(), *([self.records] if self.records else []))

    def clear(self) -> None:
        """Forget them all: what was in the way may be gone by now."""
        self.engines.clear()
        self.records = None


class _Unsaved(Exception):
    """`run` was found out, but can't be saved. Not for users."""

    def __init__(self, run: Run, error: StateNotWritable) -> None:
        super().__init__(error.message)
        self.run, self.error = run, error


def reconcile(store: Store, run: Run, obstacles: Obstacles | None = None) -> Run:
    """Return `run` in its true state, and save what was found out. Never raise: if nothing can be found out, return
    `run` unchanged; if it can't be saved, return it still with its owner, as a later command has to save it.

    An engine among the `obstacles` is not asked again. What is in the way now is added to them."""
    obstacles = obstacles or Obstacles()
    if not _is_unwatched(run) or run.engine in obstacles.engines:
        return run
    folder = store.folder(run.id)
    try:
        with contextlib.ExitStack() as stack:
            try:
                with waiting.where_locks_are():
                    stack.enter_context(waiting.locked_within(store.lock_of(run.id), LOCK_SECONDS))
            except OSError as error:
                if error.errno != errno.EROFS:  # there nobody can close a record, but anybody can say how it ended
                    raise
            run = store.load(run.id)  # another command may have been faster
            if not _is_unwatched(run):
                return run
            known = store.is_known(run)
            found = _found_out(store, run, known)
            if found != run:
                _save(store, found, known)
            return found
    except _Unsaved as unsaved:
        obstacles.records = unsaved.error
        return replace(unsaved.run, owner=run.owner)
    except (NgcdlError, OSError) as error:  # the lock's timeout is an OSError, too
        if isinstance(error, SILENT):
            obstacles.engines[str(run.engine)] = error
        if isinstance(error, OSError) and error.errno in _NO_SPACE:
            obstacles.records = StateNotWritable(folder, error.strerror or str(error))
        return run


def _save(store: Store, run: Run, known: bool) -> None:
    try:
        store.save(run, known)
    except StateNotWritable as error:
        raise _Unsaved(run, error) from error


def standing(
    store: Store,
    run_id: str,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    obstacles: Obstacles | None = None,
) -> Iterator[Run]:
    """Yield the run's state every FOLLOW_SECONDS. A cluster is asked at growing intervals, and at once when the run's
    end has been written; asking it also updates the log. `obstacles` has what was in the way the last time."""
    obstacles = obstacles or Obstacles()
    ended, due, pause = None, clock(), FIRST_ASK_SECONDS
    while True:
        run, before = store.load(run_id), ended
        with contextlib.suppress(OSError):
            ended = (store.folder(run_id) / EXIT).stat().st_mtime_ns
        if not run.kind.is_cluster or ended != before or clock() >= due:
            obstacles.clear()
            run = reconcile(store, run, obstacles)
            pause = FIRST_ASK_SECONDS if ended != before else pause
            due, pause = clock() + pause, min(pause * 1.5, ASK_SECONDS)
        yield run
        sleep(FOLLOW_SECONDS)


def still_runs(store: Store, run: Run) -> bool:
    """Return whether `run`, as returned by `reconcile`, still runs. If nobody watches the run, and it is on another
    machine or the host has been restarted since, its engine may never be reachable again: the run then counts as dead
    once its folder has not changed for DEAD_SECONDS."""
    can_be_asked = run.kind.is_cluster or not (is_elsewhere(run) or _is_of_another_boot(run))
    can_be_asked = can_be_asked or is_alive(run.owner)
    return run.status == "running" and (can_be_asked or _quiet_seconds(store, run, *_ITS_FILES) <= DEAD_SECONDS)


def ended(store: Store, run: Run) -> float:
    """Return when `run`, which is over, ended (s since the epoch); if that is unknown, when it last wrote something."""
    return max(_dates(store, run, EVENTS, *_WATCHERS_FILES)) if run.finished is None else run.finished


def _is_unwatched(run: Run) -> bool:
    """Return whether `run` is open, and no living process will record its end."""
    return run.is_open and not is_alive(run.owner)


def _found_out(store: Store, run: Run, known: bool) -> Run:
    if run.kind.is_cluster:
        return _by_cluster(store, run, known)
    if run.owner is None:  # no ngcdl watches it: only its files can tell
        return _by_events(store, run) if _quiet_seconds(store, run, *_ITS_FILES) > QUIET_SECONDS else run
    is_hidden = is_out_of_sight(run.owner)
    if is_hidden and run.is_waiting:  # nothing is written meanwhile
        return run
    most_seconds = QUIET_SECONDS + run.sample_seconds
    if (is_hidden or is_elsewhere(run)) and _quiet_seconds(store, run, *_WATCHERS_FILES) <= most_seconds:
        return run  # its watcher may live on that machine, or in that sandbox, invisible from here
    return _by_engine(store, run, known)


def _is_of_another_boot(run: Run) -> bool:
    """Return whether the host has been restarted since `run` began; False if unknown."""
    boot = this_process().boot
    return run.owner is not None and None not in (run.owner.boot, boot) and run.owner.boot != boot


def _by_engine(store: Store, run: Run, known: bool) -> Run:
    engine = engines.connect(str(run.engine))
    if run.engine_id != engine.identity and (run.engine_id is not None or is_elsewhere(run)):
        return run  # another engine has it: another machine's, or the one that DOCKER_HOST or the context named then
    if run.status not in _UNKNOWN:
        return _without_left(engine, run) if engine.has_containers else run
    job = engine.find(run.id)
    if job is None and run.status == "lost":
        return replace(run, owner=None)
    ended = job.ended() if job else NOTHING
    if ended is None:
        return _noted(replace(run, status="running", finished=None, reason=None))
    if job is None or ended == NOTHING:
        closed = _by_events(store, run)
        is_anothers = run.engine_id is None and is_elsewhere(run)  # that machine's engine may know more
        return run if is_anothers and closed.status == "lost" else _noted(closed)
    lacking: list[str] = []
    try:
        bring_output(job, store.folder(run.id) / LOG)
    except (NgcdlError, OSError) as error:
        said = error.message if isinstance(error, NgcdlError) else error.strerror
        lacking.append(f"log.txt lacks its end ({said}):  docker logs {job.identity[:12]}")
    if ended.code == UNSEEN and run.status == "lost":
        ended = replace(ended, reason=AWAY)
    if ended.code in (_TERMINATED, UNSEEN) and _is_of_another_boot(run) and not is_elsewhere(run):
        ended = replace(ended, reason=RESTARTED, is_stopped=True)  # the code alone could come from the command
    closed = _noted(_with_exit(store, run, ended)).noting(*lacking)
    _save(store, closed, known)
    if not lacking:
        try:
            job.remove()
        except ContainerLeft as error:
            return closed.noting(error.note)
    return closed


def is_left_alone(run: Run) -> bool:
    """Return whether the record says that its ngcdl left the run to itself."""
    return UNWATCHED in run.notes or DETACHED in run.notes


def _noted(run: Run) -> Run:
    return run if is_left_alone(run) else run.noting(UNWATCHED)


def _without_left(engine: Engine, run: Run) -> Run:
    """Remove the container of a start that was given up. Return `run` with its owner, so that later commands look
    again, while the container exists or may still be created; else without owner."""
    if left := engine.find(run.id):
        left.remove()
    elif run.container is None and quiet_seconds((run.finished or 0.0,)) < LATE_SECONDS:
        return run
    return run if engine.find(run.id) else replace(run, owner=None)


def _by_cluster(store: Store, run: Run, known: bool) -> Run:
    """Return `run` in the state that its cluster reports. Return it unchanged if another cluster is selected now, or
    while the run may still be in submission, perhaps by an ngcdl on another login node: a missing job then proves
    nothing. Raise NgcdlError if the cluster can't be asked."""
    if run.container is None and quiet_seconds((run.started,)) < SUBMISSION_SECONDS:
        return run
    engine = engines.connect(str(run.engine))
    if run.engine_id not in (None, engine.identity):
        return run
    job = engine.find(run.id)
    ended = job.ended() if job else None
    if not (now := store.load(run.id)).is_open:  # closed meanwhile by an ngcdl that follows it, and knows more
        return now
    if job is None:
        return _by_events(store, run)
    if ended is None:
        return replace(run, container=job.identity, owner=None, reason=job.waiting())
    closed = _with_exit(store, run, ended)
    _save(store, closed, known)
    try:
        job.remove()
    except NgcdlError as error:
        return closed.noting(JOB_LEFT.format(error.message))
    return closed


def _with_exit(store: Store, run: Run, ended: Exit) -> Run:
    told = _told(store, run)
    end = ending.End(ended, ending.gpu_not_met(run, told, ended))
    return _told_by_files(store, ending.closed(run, end, told, ending.UNKNOWN_SIGNALS), told)


def _by_events(store: Store, run: Run) -> Run:
    told = _told(store, run)
    return _told_by_files(store, ending.closed_by_events(run, told), told)


def _told(store: Store, run: Run) -> Told:
    from ngcdl.report.measured.told import Told

    return Told(lines(store.folder(run.id) / EVENTS))


def _told_by_files(store: Store, closed: Run, told: Told) -> Run:
    """Return `closed` with what the files in its folder show: figures, findings and why it failed."""
    from ngcdl.report.measured.diagnosis import diagnosed
    from ngcdl.report.measured.filled import filled

    folder = store.folder(closed.id)
    return diagnosed(filled(closed, told, samples(folder)), folder / LOG)


def _quiet_seconds(store: Store, run: Run, *names: str) -> float:
    return quiet_seconds(_dates(store, run, *names))


def _dates(store: Store, run: Run, *names: str) -> Iterator[float]:
    """Yield when `run` began, and when each of these files last changed."""
    yield run.started
    for name in names:
        with contextlib.suppress(OSError):
            yield (store.folder(run.id) / name).stat().st_mtime
