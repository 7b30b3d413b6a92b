"""The folder that a run is kept in: create, save, load, list.

    $XDG_STATE_HOME/ngcdl/runs/<id>/      0700, <id> = YYYYmmdd-HHMMSS-<what>-<6 hex>, UTC: 1/4096 s, and chance
        run.json         the record (record.py), written whole
        events.jsonl     what the trainer said, one line each (containers/trainer/events.py)
        samples.jsonl    what was measured meanwhile, one line each (telemetry/sample.py)
        samples-*.jsonl  the same of each node of a cluster
        log.txt          what the run wrote, stdout and stderr, as it came
        trace.json       a timeline of the trainer's first steps, where it was asked for
        checkpoints/     the trainer's
        job.sh, job.yaml what a cluster was given
        exit.json        {code, t, restarts}: how it ended there
        home/            the HOME of what runs in the container

One broken record never hides the others. Nothing here deletes anything.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import json
import logging
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

from ngcdl.errors import NoSuchRun, RecordBroken, StateNotWritable
from ngcdl.record import Run

log = logging.getLogger(__name__)
RECORD, EVENTS, SAMPLES, LOG = "run.json", "events.jsonl", "samples.jsonl", "log.txt"
CHECKPOINTS, TRACE = "checkpoints", "trace.json"
EXIT = "exit.json"  # of a cluster: how the run ended


class NameTaken(Exception):
    """Another run has that id. Not for users: there are more."""


@dataclass(frozen=True)
class Store:
    """All runs of one user, under `root`."""

    root: Path

    def new_id(self, what: str) -> str:
        """Give an id that most likely nobody has: of two in one 1/4096 s one in 4,096 is told twice."""
        now = time.time()
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
        return f"{stamp}-{what}-{int(now % 1 * 4096):03x}{os.urandom(2).hex()[:3]}"

    def folder(self, run_id: str) -> Path:
        return self.root / run_id

    def ensure_writable(self) -> None:
        """Make the root and prove that it takes a file. Raises StateNotWritable."""
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            probe = self.root / f".probe.{os.getpid()}"
            try:
                probe.write_bytes(b"x" * 4096)
            finally:
                probe.unlink(missing_ok=True)
        except OSError as error:
            raise StateNotWritable(self.root, error.strerror or str(error)) from error

    def create(self, run: Run) -> Path:
        """Make the folder of a new run and write its first record. Raises StateNotWritable, or NameTaken."""
        folder = self.folder(run.id)
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                folder.mkdir(mode=0o700)
            except FileExistsError as error:
                raise NameTaken(run.id) from error
            (folder / "home").mkdir(mode=0o700)
        except OSError as error:
            raise StateNotWritable(folder, error.strerror or str(error)) from error
        self.save(run)
        return folder

    def save(self, run: Run) -> None:
        """Write run.json whole or not at all; the one before stays on failure. Raises StateNotWritable."""
        write_whole(self.folder(run.id) / RECORD, json.dumps(run.as_json(), indent=1, allow_nan=False) + "\n")

    def load(self, run_id: str) -> Run:
        """Raises NoSuchRun or RecordBroken."""
        path = self.folder(run_id) / RECORD
        try:
            with opened(path) as file:
                data = json.load(file)
        except FileNotFoundError as error:
            raise NoSuchRun(run_id, self.root) from error
        except (OSError, ValueError, RecursionError) as error:
            raise RecordBroken(path, str(error)) from error
        try:
            run = Run.from_json(data)
        except ValueError as error:
            raise RecordBroken(path, str(error)) from error
        if run.id != run_id:
            why = f"it is that of {run.id}, in a folder of another name"
            raise RecordBroken(path, why, f"Give the folder that name, or move it out of {self.root}.")
        return run

    def ids(self) -> list[str]:
        """All runs' ids, newest first: by the second in which an id begins, then by the part of it in which it ends."""
        try:
            found = [entry.name for entry in os.scandir(self.root) if self.has(entry.name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StateNotWritable(self.root, error.strerror or str(error)) from error
        return sorted(found, key=age, reverse=True)

    def is_ended(self, run_id: str) -> bool:
        """Does its record say so? Nothing else of it is looked at; False also where it can't be read, and of one that
        lost its engine and still has its owner: what became of it is not known yet."""
        import orjson

        try:
            with opened(self.folder(run_id) / RECORD) as file:
                data = orjson.loads(file.read())
        except (OSError, ValueError):
            return False
        if not isinstance(data, dict) or data.get("status") in (None, "running"):
            return False
        return data["status"] != "lost" or data.get("owner") is None

    def has(self, run_id: str) -> bool:
        """Is it a run's? A folder that may not be entered counts as one: who asks for this one is told so by `load`."""
        try:
            (self.folder(run_id) / RECORD).stat()
        except PermissionError:
            return True
        except OSError:
            return False
        return True

    def find(self, name: str) -> str:
        """Give the id that `name` means: last, last-1 (the one before), an id, or the beginning or end of just one."""
        ids = self.ids()
        if name == "last" or name.startswith("last-"):
            back = name.removeprefix("last").removeprefix("-") or "0"
            for number, run_id in enumerate(ids):
                if str(number) == back:
                    return run_id
            raise NoSuchRun(name, self.root)
        matches = [run_id for run_id in ids if run_id == name] or [
            run_id for run_id in ids if name and (run_id.startswith(name) or run_id.endswith(name))
        ]
        if len(matches) != 1:
            raise NoSuchRun(name, self.root)
        return matches[0]


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


def size(path: Path) -> int:
    """Give how many bytes there are to be read of a file of a record; 0 also of none."""
    with contextlib.suppress(OSError), opened(path) as file:
        return os.fstat(file.fileno()).st_size
    return 0


def samples(folder: Path) -> Iterator[dict[str, Any]]:
    """Give what was measured while a run ran: by ngcdl, or by the trainer on its nodes. What several nodes measured in
    the same second is one: what `_OF_NODES` makes of them, with the GPUs of all; else that of the first of them."""
    found = sample_files(folder)
    return _together(found) if len(found) > 1 else lines(found[0])


def sample_files(folder: Path) -> list[Path]:
    """Give the files that the samples are in: one of each node, or the one that ngcdl writes."""
    return sorted(folder.glob("samples-*.jsonl")) or [folder / SAMPLES]


def _together(paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    began = 0.0
    for t, node, sample in heapq.merge(*(_timed(path, node) for node, path in enumerate(paths)), key=itemgetter(0)):
        if found and (node in found or t - began > 0.5):
            yield _one(found)
            found = {}
        began = began if found else t
        found[node] = sample
    if found:
        yield _one(found)


def _timed(path: Path, node: int) -> Iterator[tuple[float, int, dict[str, Any]]]:
    return ((sample["t"], node, sample) for sample in lines(path) if isinstance(sample.get("t"), int | float))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)  # statistics would take 5 ms of the start of each command


# What several nodes come to: shares of a node are means, for its processors are counted on one machine; of memory it is
# the node that has most of it, and the least that one can get: there a run ends first.
_OF_NODES: Mapping[str, Callable[[list[Any]], Any]] = {
    "host_cpu_percent": _mean,
    "cpu_percents": lambda nodes: [*chain.from_iterable(nodes)],
    "threads_running": _mean,
    "host_memory_bytes": max,
    "container_cpu_percent": sum,
    "memory_bytes": max,
    "memory_limit_bytes": min,
    "memory_pressure_percent": max,
    "memory_oom_kills": sum,
}


def _one(found: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    """Unknown is what a node does not know; what one leaves out is left out."""
    nodes = [sample for _, sample in sorted(found.items())]
    one = {**nodes[0], "gpus": [gpu for sample in nodes for gpu in sample.get("gpus") or ()]}
    for name in _OF_NODES if len(nodes) > 1 else ():
        values = [sample[name] for sample in nodes if name in sample]
        if len(values) == len(nodes):
            is_known = all(isinstance(value, list) if name == "cpu_percents" else _fits(value) for value in values)
            one[name] = _OF_NODES[name](values) if is_known else None
        else:
            one.pop(name, None)
    if gap := next((sample["gap"] for sample in nodes if sample.get("gap")), None):
        one["gap"] = gap
    return one


def _fits(value: object) -> bool:
    """Is it a number that can be added up? None is NaN, which some write."""
    return type(value) in (float, int) and -1e300 < value < 1e300  # type: ignore[operator]  # it is one


def opened(path: Path, to_extend: bool = False) -> IO[bytes]:
    """Open a file of a record to be read, and written at its end too with `to_extend`. Raises OSError, also where it is
    none: a run can write in its folder, and a pipe there would be waited for for ever, a link lead out of it."""
    way = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW if to_extend else os.O_RDONLY
    descriptor = os.open(path, way | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no ordinary file", str(path))
    return os.fdopen(descriptor, "r+b" if to_extend else "rb")


def age(run_id: str) -> tuple[str, str]:
    """Give what ids are in the order of time by."""
    return run_id[:15], run_id.rpartition("-")[2]


def write_whole(path: Path, text: str) -> None:
    """Write `path` whole or not at all; the one before stays on failure. Raises StateNotWritable."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise StateNotWritable(path, error.strerror or str(error)) from error
