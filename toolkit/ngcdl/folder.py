"""The folder that a run is kept in: what lies in it, and how it is read.

    $XDG_STATE_HOME/ngcdl/runs/<id>/      0700, <id> = YYYYmmdd-HHMMSS-<what>-<6 hex>, UTC: 1/4096 s, and chance
        run.json         the record (record/), written whole
        events.jsonl     what the trainer said, one line each (containers/trainer/events.py)
        samples.jsonl    what was measured meanwhile, one line each (telemetry/sample.py)
        samples-*.jsonl  the same of each node of a cluster (nodesamples.py)
        log.txt          what the run wrote, stdout and stderr, as it came
        trace.json       a timeline of the trainer's first steps, where it was asked for
        checkpoints/     the trainer's
        job.sh, job.yaml what a cluster was given
        exit.json        {code, t, restarts, why}: how it ended there
        home/            the HOME of what runs in the container
        .imported        it was brought from another machine (archive.py)

The run itself can write there: nothing of it is trusted to be an ordinary file.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

log = logging.getLogger(__name__)
RECORD, EVENTS, SAMPLES, LOG = "run.json", "events.jsonl", "samples.jsonl", "log.txt"
SAMPLES_OF_NODES = "samples-*.jsonl"
CHECKPOINTS, TRACE, HOME = "checkpoints", "trace.json", "home"
SCRIPT, MANIFEST = "job.sh", "job.yaml"  # what a cluster was given: Slurm, Kubernetes
EXIT = "exit.json"  # of a cluster: how the run ended
IMPORTED = ".imported"


def opened(path: Path, to_extend: bool = False, buffering: int = -1) -> IO[bytes]:
    """Open a file of a record to be read, and written at its end too with `to_extend`. Raises OSError, also where it is
    none: a run can write in its folder, and a pipe there would be waited for for ever, a link lead out of it."""
    way = os.O_RDWR | os.O_CREAT | os.O_APPEND if to_extend else os.O_RDONLY
    descriptor = os.open(path, way | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no ordinary file", str(path))
    return os.fdopen(descriptor, "r+b" if to_extend else "rb", buffering)


def size(path: Path) -> int:
    """Give how many bytes there are to be read of a file of a record; 0 also of none."""
    with contextlib.suppress(OSError), opened(path) as file:
        return os.fstat(file.fileno()).st_size
    return 0


def lines(
    path: Path, part: tuple[int, int] | None = None, among: re.Pattern[bytes] | None = None
) -> Iterator[dict[str, Any]]:
    """Give the objects of a .jsonl file. A torn or foreign line is passed over: a crash tears at most the last one.

    A file that is missing or can't be read has none: what is built on it is then unknown, and says so. Of a `part`,
    from byte to byte, those that begin in it; with `among` only lines in which that is found, the others unparsed.
    """
    import orjson  # four times as fast as json; what lists the runs does not need it

    try:
        with opened(path) as file:
            for line in _part(file, *part) if part else file:
                if among and not among.search(line):
                    continue
                try:
                    data = orjson.loads(line)
                except ValueError:  # NaN is none of its words, and some write it
                    data = None
                    with contextlib.suppress(ValueError, RecursionError):
                        data = json.loads(line)
                if isinstance(data, dict):
                    yield data
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            log.warning("%s can't be read: %s", path, error.strerror)


def _part(file: IO[bytes], begin: int, end: int) -> Iterator[bytes]:
    """Give the lines that begin from `begin` on and before `end`."""
    if begin:
        file.seek(begin - 1)
        begin += len(file.readline()) - 1
    for line in file if begin < end else ():
        yield line
        begin += len(line)
        if begin >= end:
            return


def has_checkpoint(folder: Path) -> bool:
    """Is there a training's state in it that another run can go on from?"""
    return any((folder / CHECKPOINTS).glob("step-*"))


@dataclass(frozen=True)
class ToldExit:
    """How a run on a cluster ended, as what ran there wrote it. `finished`: s since the epoch; `why`: it was asked to
    (time_limit), None where it was not, or nobody says."""

    code: int
    finished: float | None
    why: str | None


def told_exit(folder: Path) -> ToldExit | None:
    """Read exit.json; None where there is none, or none that can be read."""
    try:
        with opened(folder / EXIT) as file:
            told = json.load(file)
        when = told.get("t")
        return ToldExit(int(told["code"]), float(when) if when is not None else None, told.get("why"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
