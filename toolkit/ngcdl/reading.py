"""Reads a stored run into the story that the report draws, in two processes if its files are long.

The second process, a fork, reads the end of the events, while this process reads their beginning and the samples.
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
from ngcdl.record import Run
from ngcdl.report.measured.lines import number
from ngcdl.report.shown.columns import InTwo, read_story, rest_of, told_in_two
from ngcdl.report.shown.story import Story
from ngcdl.storing.nodesamples import sample_files, samples
from ngcdl.telemetry.processors import processors

# From how many bytes of events on a second process pays off: reading these takes 0.15 s, a fork and the return of its
# figures some 0.03 s.
LEAST_BYTES = 10_000_000
# A byte of samples costs as much as this many bytes of events (docs/performance.md: 0.99 s for 47 MB, 2.3 for 159 MB).
_OF_A_SAMPLE = 1.5
# How much of the end of the events is searched for the last step: only some hundred bytes follow it.
_END_BYTES = 65_536
# Signals that end ngcdl end its child, too: a terminal sends them to both.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

T = TypeVar("T")


def story_of(run: Run, folder: Path) -> Story:
    """Read the run stored in `folder`."""
    events = folder / EVENTS
    end = size(events)
    work = end + int(_OF_A_SAMPLE * sum(map(size, sample_files(folder))))
    # the first steps are always read by this process: they tell when the samples of the training begin
    begin = end - min(work // 2, end - end // 8)
    if end - begin < LEAST_BYTES or processors() < 2:
        return read_story(run, lines(events), samples(folder))
    return in_two(run, folder, begin, end)


def in_two(run: Run, folder: Path, begin: int, end: int) -> Story:
    """Read the run with a second process, which reads the events from byte `begin` to `end`."""
    events = folder / EVENTS
    theirs = lines(events, (begin, end))
    with meanwhile(lambda: rest_of(run.started, theirs)) as rest:
        parts = InTwo(lines(events, (0, begin)), theirs, rest, _last(events, end))
        return told_in_two(run, parts, lambda: samples(folder))


def _last(events: Path, end: int) -> float | None:
    """Return the time of the last step, None if there is none near the end."""
    steps = [line for line in lines(events, (max(end - _END_BYTES, 0), end)) if line.get("event") == "step"]
    return next((t for line in reversed(steps) if (t := number(line.get("t"))) is not None), None)


@contextmanager
def meanwhile(work: Callable[[], T]) -> Iterator[Callable[[], T | None]]:
    """Run `work` in a forked process, which ends with the block at the latest. Yield a function that waits for the
    result of `work`, and returns None if the process could not be forked, failed or was killed."""
    if threading.active_count() > 1:  # a lock held by another thread would stay locked forever in the fork
        yield lambda: None
        return
    readable, writable = os.pipe()
    # no signal between the fork and the point where each process is ready for it
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
    """Run `work` in the forked process, send its result and exit. If it fails, print nothing: the reader then finds no
    whole result."""
    try:
        os.close(readable)  # so that a write fails when the reader is gone
        for one in _SIGNALS:
            if signal.getsignal(one) is not signal.SIG_IGN:
                signal.signal(one, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        with os.fdopen(writable, "wb") as file:
            pickle.dump(work(), file, protocol=5)  # an array is pickled as its bytes
    finally:
        os._exit(0)


def _result(file: IO[bytes]) -> Any:
    try:
        return pickle.load(file)
    except (EOFError, pickle.UnpicklingError):  # the process ended before it was done
        return None


def _end(child: int) -> None:
    with suppress(ProcessLookupError, ChildProcessError):  # our parent may have set SIGCHLD to be ignored
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
