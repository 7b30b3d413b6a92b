"""A run as it is kept, read into the story that is drawn of it: by two processes where its files are long.

The other one, forked, reads the end of the events, while this one reads their beginning and the samples.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from ngcdl.folder import EVENTS, lines, size
from ngcdl.nodesamples import sample_files, samples
from ngcdl.record import Run
from ngcdl.report.columns import InTwo, rest_of, told, told_in_two
from ngcdl.report.lines import number
from ngcdl.report.story import Story
from ngcdl.telemetry.processors import processors

# What a process is worth: so many bytes of events are read in 0.15 s; it takes some 0.03 s to have it and its figures.
LEAST_BYTES = 10_000_000
# A byte of samples takes as long as these of events (docs/performance.md: 1.0 s for 21 MB, 2.3 s for 159 MB).
_OF_A_SAMPLE = 3
# Looked through from the end of the events for the last step: what follows it is some hundred bytes long.
_END_BYTES = 65_536
# What ends ngcdl ends its child, too: from a terminal it comes to both.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

T = TypeVar("T")


def story_of(run: Run, folder: Path) -> Story:
    """Read the run that is kept in `folder`."""
    events = folder / EVENTS
    end = size(events)
    work = end + _OF_A_SAMPLE * sum(map(size, sample_files(folder)))
    # the first steps are read here in any case: they tell from when on the samples are of the training
    begin = end - min(work // 2, end - end // 8)
    if end - begin < LEAST_BYTES or processors() < 2:
        return told(run, lines(events), samples(folder))
    return in_two(run, folder, begin, end)


def in_two(run: Run, folder: Path, begin: int, end: int) -> Story:
    """Read it with another process, which takes the events from byte `begin` to `end`."""
    events = folder / EVENTS
    theirs = lines(events, (begin, end))
    with meanwhile(lambda: rest_of(run.started, theirs)) as rest:
        parts = InTwo(lines(events, (0, begin)), theirs, rest, _last(events, end))
        return told_in_two(run, parts, lambda: samples(folder))


def _last(events: Path, end: int) -> float | None:
    """Find the time of the last step; None: not near the end."""
    steps = [line for line in lines(events, (max(end - _END_BYTES, 0), end)) if line.get("event") == "step"]
    return next((t for line in reversed(steps) if (t := number(line.get("t"))) is not None), None)


@contextmanager
def meanwhile(work: Callable[[], T]) -> Iterator[Callable[[], T | None]]:
    """Have `work` done by a forked process, which ends with the block at latest; give what waits for its result, None
    where the process can't be had, fails or is killed."""
    if threading.active_count() > 1:  # a lock that another thread holds would stay locked in a fork for ever
        yield lambda: None
        return
    readable, writable = os.pipe()
    # no signal between the fork and the place where each of the two is ready for it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    child = None
    try:
        with suppress(OSError):
            child = os.fork()
        if child == 0:
            _serve(work, readable, writable, before)
        os.close(writable)
        with os.fdopen(readable, "rb") as file:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            yield lambda: _result(file)
    finally:
        if child:
            _end(child)


def _serve(work: Callable[[], object], readable: int, writable: int, before: set[signal.Signals | int]) -> None:
    """Be the forked process; says nothing and leaves no trace, however it ends."""
    try:
        os.close(readable)  # so that a write fails when the other has gone
        for one in _SIGNALS:
            if signal.getsignal(one) is not signal.SIG_IGN:
                signal.signal(one, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        with os.fdopen(writable, "wb") as file:
            pickle.dump(work(), file, protocol=5)  # of an array that is its bytes
    finally:
        os._exit(0)


def _result(file: IO[bytes]) -> Any:
    try:
        return pickle.load(file)
    except (EOFError, pickle.UnpicklingError):  # the process ended before it was done
        return None


def _end(child: int) -> None:
    with suppress(ProcessLookupError, ChildProcessError):  # whoever started us may have us ignore our children's ends
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
