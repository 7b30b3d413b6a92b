"""Runs whose watcher is gone: what became of them is found out and recorded, truthfully, by the next command.

A killed ngcdl (kill -9, power) leaves a record that says "running". Its container may have gone on: then the run still
runs, unwatched, and says so. Has it ended, Docker kept exit code and output. Is it gone, the trainer's events tell, or
nobody.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ngcdl import engines
from ngcdl.ending import STOPPED, stopped_by
from ngcdl.engines.base import Exit, Job
from ngcdl.errors import ClusterHangs, ClusterUnreachable, EngineAbsent, EngineHangs, EngineLost, NgcdlError
from ngcdl.folder import EVENTS, LOG, RECORD, SAMPLES, lines, opened
from ngcdl.nodesamples import samples
from ngcdl.owner import is_alive, this_process
from ngcdl.record import Run
from ngcdl.report import figures
from ngcdl.report.diagnosis import diagnosed
from ngcdl.report.filled import filled
from ngcdl.spec import USED_BY
from ngcdl.store import Store

UNWATCHED = "ngcdl ended before the run did; nothing was measured from then on."
# A record that no ngcdl wrote (docker compose, Slurm) is alive as long as its trainer's sampler writes every second.
QUIET_SECONDS = 30.0
# One whose machine can't be asked may be in a long step, and only who wants to go on from it needs to know.
DEAD_SECONDS = 300.0
RESTARTED = "the host or its engine was restarted while it ran"
# What a container gives that SIGTERM ended, and one whose end Docker did not see, as after a power cut:
# https://github.com/docker/for-linux/issues/556
_TERMINATED, _UNSEEN = 143, 255
_WATCHERS_FILES = (SAMPLES, LOG)
_ITS_FILES = (RECORD, EVENTS, *_WATCHERS_FILES)
# It did not answer, and would let the next question wait as long: up to 45 s.
_SILENT = (ClusterHangs, ClusterUnreachable, EngineAbsent, EngineHangs, EngineLost)


def reconcile(shelf: Store, run: Run, away: dict[str, NgcdlError] | None = None) -> Run:
    """Give `run` as it truly stands, saving what was found out. Never raises; what can't be known stays as it is.

    An engine in `away` is not asked; one that does not answer comes into it, by its name."""
    if not _is_unwatched(run) or (away and run.engine in away):
        return run
    import filelock

    folder = shelf.folder(run.id)
    try:
        with filelock.FileLock(folder / ".reconcile.lock", timeout=5):
            run = shelf.load(run.id)  # another command may have been quicker
            if not _is_unwatched(run):
                return run
            found = _found_out(shelf, run)
            if found != run:
                shelf.save(found)
            return found
    except (NgcdlError, OSError) as error:  # the lock's time-out is one, too
        if away is not None and isinstance(error, _SILENT):
            away[str(run.engine)] = error
        return run


def still_runs(shelf: Store, run: Run) -> bool:
    """Does `run`, as `reconcile` gave it, still run? One whose machine is another, or was restarted since, may never be
    asked again: it counts as dead once nothing was written in its folder for DEAD_SECONDS."""
    if run.status != "running" or run.engine in USED_BY or not (_is_elsewhere(run) or _is_of_another_boot(run)):
        return run.status == "running"
    return _quiet_seconds(shelf, run, *_ITS_FILES) <= DEAD_SECONDS


def _is_unwatched(run: Run) -> bool:
    """Is there more to find out, and nobody there who will record it?"""
    return run.is_open and not is_alive(run.owner)


def _found_out(shelf: Store, run: Run) -> Run:
    if run.engine in USED_BY:
        return _by_cluster(shelf, run)
    if run.owner is None:  # nobody watches it: only its files can tell
        return _by_events(shelf, run) if _is_quiet(shelf, run, *_ITS_FILES) else run
    if _is_elsewhere(run) and not _is_quiet(shelf, run, *_WATCHERS_FILES):
        return run  # its watcher may live where its process is not seen from here
    if run.engine == "docker":
        return _by_docker(shelf, run)
    if training(shelf, run):
        return run.noting(UNWATCHED)
    closed = _by_events(shelf, run)
    return run if _is_elsewhere(run) and closed.status == "lost" else closed.noting(UNWATCHED)


def _is_elsewhere(run: Run) -> bool:
    """Is it of another machine that shares this home? This one may just be called otherwise by now: a dev container's
    name is new at each start."""
    return run.machine.hostname not in (None, socket.gethostname())


def _is_of_another_boot(run: Run) -> bool:
    """Was the host restarted since it began? Where that is not known it was not."""
    boot = this_process().boot
    return run.owner is not None and None not in (run.owner.boot, boot) and run.owner.boot != boot


def _by_docker(shelf: Store, run: Run) -> Run:
    engine = engines.connect("docker")
    if _is_elsewhere(run) if run.engine_id is None else run.engine_id != engine.identity:
        return run  # it is on another engine: another machine's, or one that DOCKER_HOST or the context named then
    job = engine.find(run.id)
    if job is None and run.status == "lost":
        return replace(run, owner=None)
    if job is None:
        return _by_events(shelf, run).noting(UNWATCHED)
    ended = job.ended()
    if ended is None:
        return replace(run, status="running", finished=None, reason=None).noting(UNWATCHED)
    notes = [UNWATCHED]
    try:
        _bring_output(job, shelf.folder(run.id) / LOG)
    except (NgcdlError, OSError) as error:
        said = error.message if isinstance(error, NgcdlError) else error.strerror
        notes.append(f"log.txt lacks what was written after ngcdl ended ({said}):  docker logs {job.identity[:12]}")
    if ended.code in (_TERMINATED, _UNSEEN) and _is_of_another_boot(run) and not _is_elsewhere(run):
        ended = replace(ended, reason=RESTARTED, is_stopped=True)  # the code alone could be the command's own
    closed = _with_exit(shelf, run, ended).noting(*notes)
    shelf.save(closed)
    if notes == [UNWATCHED]:
        job.remove()
    return closed


def _bring_output(job: Job, log: Path) -> None:
    """Add to `log` what `job` wrote after nobody listened any more. Raises NgcdlError or OSError.

    An engine that keeps only the end of it, or has its two streams in another order, gives other words than `log`
    begins with: all of them are added then, since twice is better than never.
    """
    with tempfile.TemporaryFile(dir=log.parent) as kept, opened(log, to_extend=True) as file:
        kept.writelines(chunk.data for chunk in job.output())
        kept.seek(0)
        while data := file.read(65536):
            if kept.read(len(data)) != data:
                kept.seek(0)
                break
        shutil.copyfileobj(kept, file)


def _by_cluster(shelf: Store, run: Run) -> Run:
    """Ask the cluster that has it. One that can't be asked, or is another than then, leaves it as it stands."""
    engine = engines.connect(str(run.engine))
    if run.engine_id not in (None, engine.identity):
        return run
    job = engine.find(run.id)
    if job is None:
        return _by_events(shelf, run)
    ended = job.ended()
    if ended is None:
        return replace(run, container=job.identity, owner=None, reason=job.waiting())
    closed = _with_exit(shelf, run, ended)
    shelf.save(closed)
    job.remove()
    return closed


def _with_exit(shelf: Store, run: Run, ended: Exit) -> Run:
    stopped, reason = STOPPED in run.notes or ended.is_stopped, ended.reason
    status = "finished" if ended.code == 0 else "interrupted" if ended.code is None or stopped else "failed"
    if stopped and status == "interrupted":
        reason = stopped_by(run, ended)
    finished = ended.finished or time.time()
    closed = replace(run, oom_killed=ended.oom_killed).closed(status, ended.code, reason, finished)
    return _told_by_files(shelf, closed, list(lines(shelf.folder(run.id) / EVENTS)))


def _by_events(shelf: Store, run: Run) -> Run:
    """Nothing is left to ask but what the trainer wrote."""
    events = list(lines(shelf.folder(run.id) / EVENTS))
    last = events[-1] if events else {}
    when = figures.number(last.get("t"))
    kind = last.get("event")
    what = "ngcdl was killed" if run.owner else "it was killed"
    if kind == "finish":
        status, reason = "finished", f"{what}; the trainer reports that it finished"
    elif kind == "error":
        # A training that was stopped says so itself.
        status = "interrupted" if last.get("kind") == "interrupted" else "failed"
        reason = f"{last.get('kind')}: {last.get('message')}"
    else:
        status, reason = "lost", f"{what}, and nothing is left that could tell how the run ended"
    return _told_by_files(shelf, run.closed(status, run.exit_code, reason, when), events)


def _told_by_files(shelf: Store, closed: Run, events: Sequence[figures.Line]) -> Run:
    """Give the closed run with what its folder tells: its figures, and what it failed of."""
    folder = shelf.folder(closed.id)
    return diagnosed(filled(closed, events, samples(folder)), folder / LOG)


def _is_quiet(shelf: Store, run: Run, *names: str) -> bool:
    return _quiet_seconds(shelf, run, *names) > QUIET_SECONDS


def _quiet_seconds(shelf: Store, run: Run, *names: str) -> float:
    newest = run.started
    for name in names:
        with contextlib.suppress(OSError):
            newest = max(newest, (shelf.folder(run.id) / name).stat().st_mtime)
    return time.time() - newest


def training(shelf: Store, run: Run) -> int | None:
    """Give the process of a local run that still trains: its argv names the run's folder."""
    pid = (run.container or "").removeprefix("pid:")
    with contextlib.suppress(OSError):
        if pid.isdecimal() and os.fsencode(shelf.folder(run.id)) in Path(f"/proc/{pid}/cmdline").read_bytes():
            return int(pid)
    return None
