"""Finds the job of a recorded run again, at its engine, and what the job has written that log.txt lacks."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ngcdl import engines
from ngcdl.engines.base import Engine, Job, Tailed
from ngcdl.errors import RunElsewhere, RunOnHost
from ngcdl.folder import opened
from ngcdl.record import Run
from ngcdl.running.owner import is_elsewhere, is_out_of_sight


def engine_of(run: Run, command: str) -> Engine:
    """Connect to the engine that `run` is on, for `ngcdl COMMAND`. Raise EngineError, or RunElsewhere if another engine
    is selected here."""
    engine = engines.connect(str(run.engine))
    if run.engine_id not in (None, engine.identity):
        choose = run.kind.choose.format(its=run.engine_id)
        raise RunElsewhere(run.id, engine.name, str(run.engine_id), engine.identity, choose, command)
    return engine


def job_of(run: Run, command: str) -> Job | None:
    """Find the job of `run`, for `ngcdl COMMAND`; None if there is none. Raise as `engine_of` does, or RunOnHost if it
    may be on another host, or in another sandbox, which shares this home."""
    job = engine_of(run, command).find(run.id)
    is_unseen = is_elsewhere(run) or is_out_of_sight(run.owner)
    if job is None and not run.kind.is_cluster and run.engine_id is None and is_unseen:
        raise RunOnHost(run.id, str(run.machine.hostname), socket.gethostname(), command)
    return job


def bring_output(job: Job, log: Path) -> None:
    """Append the part of the job's output that `log` lacks. Raise NgcdlError or OSError.

    If the engine keeps only the end, orders the two streams differently, or replaces bytes that are not UTF-8 (as
    Docker's json-file does, by U+FFFD), its output does not begin like `log`. Then all of the output is appended:
    output twice is better than output lost.
    """
    with opened(log, to_extend=True) as file:
        file.seek(0, os.SEEK_END)
        file.writelines(_beyond(job, file))


def unread_output(run: Run, log: IO[bytes]) -> Iterator[bytes]:
    """Yield the output of an unwatched run's container that follows the part of `log` already read, until the container
    ends. If the output does not begin with that part, yield all output that the engine has. Raise EngineError or
    RunElsewhere."""
    if job := engine_of(run, "logs -f").find(run.id):
        yield from _beyond(job, log)


def last_output(run: Run, lines: int) -> Iterator[bytes] | None:
    """As `unread_output`, but the last `lines` of all that the container has written, then what it writes. Return None
    if the engine can't give that."""
    job = engine_of(run, "logs -f").find(run.id)
    return (chunk.data for chunk in job.last(lines)) if isinstance(job, Tailed) else None


def _beyond(job: Job, log: IO[bytes]) -> Iterator[bytes]:
    """Yield the job's output that follows the part of `log` already read; all of it if it does not begin with that."""
    left = log.tell()
    log.seek(0)
    for chunk in job.output():
        known = log.read(min(left, len(chunk.data)))
        left -= len(known)
        if not chunk.data.startswith(known):
            break
        if len(known) < len(chunk.data):
            yield chunk.data[len(known) :]
    else:
        if not left:
            return
    yield from (chunk.data for chunk in job.output())
