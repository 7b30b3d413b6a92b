"""The folder of a run: what is in it, and how to read it safely.

    $XDG_STATE_HOME/ngcdl/runs/<id>/      0700, <id> = YYYYmmdd-HHMMSS-<what>-<6 hex> in UTC; of the hex digits, three
                                          are the time within the second (1/4096 s), three are random
        run.json         the record (record/), written whole
        events.jsonl     what the trainer reported, a line each (containers/trainer/events.py)
        samples.jsonl    what was measured during the run, a line each (telemetry/sample.py)
        samples-*.jsonl  the same from each node of a cluster (nodesamples.py)
        log.txt          what the run wrote, stdout and stderr, in order of arrival
        trace.json       a timeline of the trainer's first steps, if requested
        checkpoints/     the trainer's checkpoints
        job.sh, job.yaml what was submitted to a cluster
        exit.json        {code, t, restarts, why}: how a run on a cluster ended
        home/            the HOME of what runs in the container
        .imported        the run was imported from another machine (archive.py)

Beside the runs' folders, `.removed/` holds runs that `ngcdl runs rm` has moved there and is deleting, `.owned/` has an
empty file for each run whose record names an owner, and `.locks/` a file for each run that nobody watched at a command,
or that was stopped (store.py). `vouched/`, beside the folder of all runs, has the digests of the records that ngcdl
wrote.

The run itself can write into its folder, so nothing there is trusted to be a regular file, or to fit into memory. One
that docker compose starts can write into the folder of all runs, so no link is followed there either.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import stat
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

from ngcdl.frozen import dataclass

RECORD, EVENTS, SAMPLES, LOG = "run.json", "events.jsonl", "samples.jsonl", "log.txt"
SAMPLES_OF_NODES = "samples-*.jsonl"
CHECKPOINTS, TRACE, HOME = "checkpoints", "trace.json", "home"
SCRIPT, MANIFEST = "job.sh", "job.yaml"  # what was submitted to Slurm, to Kubernetes
EXIT = "exit.json"  # how a run on a cluster ended
IMPORTED = ".imported"
# What a record consists of, besides the samples of nodes and the checkpoints.
FILES = (RECORD, EVENTS, SAMPLES, LOG, TRACE, EXIT, SCRIPT, MANIFEST)  # only runs on a cluster have the last three
# Of a line, and of a file that is read whole: far more than ngcdl or its trainer ever writes. A sparse file of
# terabytes, which is one such line, takes no place on a disk.
MOST_BYTES = 16 << 20
# Of a line that others may follow at once: who reads lines holds 64 of them together, which take 20 times the place.
_USUAL_BYTES = 256 << 10


def opened(path: Path, to_extend: bool = False, buffering: int = -1) -> IO[bytes]:
    """Open a file of a record to read it, with `to_extend` also to append to it. Raise OSError, also if the file is not
    regular: a run can write in its folder, where a pipe would block forever, and a link would lead out of it."""
    way = os.O_RDWR | os.O_CREAT | os.O_APPEND if to_extend else os.O_RDONLY
    descriptor = os.open(path, way | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(descriptor, "r+b" if to_extend else "rb", buffering)


def unlinked(path: Path) -> Path:
    """Return `path`, a file or folder of ngcdl's own. Raise OSError if a link is in its place."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, "it is a link", str(path))
    return path


def content(path: Path) -> bytes:
    """Return what is in a file of a record. Raise OSError, also if it is not regular, or has more than MOST_BYTES."""
    with opened(path) as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {MOST_BYTES >> 20} MiB", str(path))
    return data


def size(path: Path) -> int:
    """Return how many bytes of a file of a record can be read; 0 if there is none."""
    with contextlib.suppress(OSError), opened(path) as file:
        return os.fstat(file.fileno()).st_size
    return 0


def lines(
    path: Path, part: tuple[int, int] | None = None, among: re.Pattern[bytes] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the objects of a .jsonl file. Torn or foreign lines are skipped, with a warning that says how many; the
    last one may still be in writing, or torn by a crash, and is skipped without. A line of more than MOST_BYTES ends
    the reading, with a warning, and so do lines in a row that are longer than usual by as much together.

    If the file is missing or can't be read, yield nothing, and warn in the second case; the caller then shows figures
    made from it as unknown. `part`: yield only lines that begin in this range of bytes. `among`: yield only lines that
    match; the others are not parsed.
    """
    import orjson  # four times as fast as json; imported late because a list of runs does not need it

    skipped = beyond = 0
    try:
        with opened(path) as file:
            for line in _part(file, *part) if part else _lines(file):
                if beyond or len(line) > _USUAL_BYTES:
                    beyond = max(beyond + len(line) - _USUAL_BYTES, 0)
                if beyond > MOST_BYTES - _USUAL_BYTES:
                    what = f"a line of more than {MOST_BYTES >> 20} MiB, or several together, can't be read"
                    warnings.warn(f"{path}: {what}; it and what follows are missing", stacklevel=1)
                    break
                if among and not among.search(line):
                    continue
                try:
                    data = orjson.loads(line)
                except ValueError:  # orjson rejects NaN, which some write
                    data = None
                    with contextlib.suppress(ValueError, RecursionError):
                        data = json.loads(line)
                if isinstance(data, dict):
                    yield data
                else:
                    skipped += line.endswith(b"\n") and not line.isspace()
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            warnings.warn(f"{path} can't be read: {error.strerror}", stacklevel=1)
    if skipped:
        many = f"{skipped} lines" if skipped > 1 else "one line"
        warnings.warn(f"{path}: {many} can't be read; what stood there is missing", stacklevel=1)


def last_lines(path: Path, size_bytes: int) -> Iterator[dict[str, Any]]:
    """Yield those of `lines` that begin in the last `size_bytes` of the file as it is now."""
    end = size(path)
    return lines(path, (max(end - size_bytes, 0), end))


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines. The caller goes no further than to the first one of more than MOST_BYTES, which is cut."""
    return iter(partial(file.readline, MOST_BYTES + 1), b"")


def _part(file: IO[bytes], begin: int, end: int) -> Iterator[bytes]:
    """Yield the lines that begin at or after `begin` and before `end`, as _lines does."""
    if begin:
        file.seek(begin - 1)
        begin += len(file.readline(MOST_BYTES + 1)) - 1
    for line in _lines(file) if begin < end else ():
        yield line
        begin += len(line)
        if begin >= end:
            return


def has_checkpoint(folder: Path) -> bool:
    """Whether the run in `folder` has a checkpoint that another run can resume from."""
    return any((folder / CHECKPOINTS).glob("step-*.npz"))  # step-9.npz.<pid>.tmp was torn while it was written


def job_of(folder: Path) -> str | None:
    """Return the job that the record names (`container`); None if it names none, or can't be read."""
    try:
        named = json.loads(content(folder / RECORD))["container"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return str(named) if named else None


@dataclass(frozen=True)
class RecordedExit:
    """How a run on a cluster ended, from exit.json. `finished`: s since the epoch. `why`: why the run had to end
    (time_limit, preempted or lost, a node); None if nothing made it end, or if that is unknown."""

    code: int
    finished: float | None
    why: str | None


def recorded_exit(folder: Path) -> RecordedExit | None:
    """Read exit.json; return None if it is missing or can't be read."""
    try:
        # Over NFS a file of another machine's, looked for before it was there, would stay unseen for up to a minute
        # (lookupcache, https://man7.org/linux/man-pages/man5/nfs.5.html), unless its folder is opened first:
        # https://github.com/torvalds/linux/blob/master/fs/nfs/dir.c (nfs_lookup_verify_inode, nfs_neg_need_reval)
        os.scandir(folder).close()
        told = json.loads(content(folder / EXIT))
        when = told.get("t")
        finished = float(when) if when is not None and math.isfinite(when) else None  # Python writes NaN, too
        return RecordedExit(int(told["code"]), finished, told.get("why"))
    except (OSError, ValueError, OverflowError, KeyError, TypeError, AttributeError, RecursionError):
        return None
