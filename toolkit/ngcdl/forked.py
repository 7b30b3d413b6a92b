"""Runs work in a forked process: for a second processor, or for work that may get stuck in the kernel or crash."""

from __future__ import annotations

import fcntl
import os
import pickle
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar

# Signals that end ngcdl end its child, too: a terminal sends them to both.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_DYING_SECONDS = 1.0

T = TypeVar("T")


class Forked(Generic[T]):
    """The process, as its parent sees it; without one, because it could not be forked, if `pid` is None."""

    def __init__(self, pid: int | None = None, pipe: int = -1) -> None:
        self.pid, self._pipe = pid, pipe

    def result(self, seconds: float | None = None) -> T | None:
        """Wait for the result of the work. Return None if the process could not be forked, failed or was killed. Raise
        TimeoutError if there is no result after `seconds`; None: wait without limit."""
        if self.pid is None:
            return None
        if not select.select([self._pipe], [], [], seconds)[0]:
            raise TimeoutError
        try:
            with os.fdopen(self._pipe, "rb", closefd=False) as file:
                found: T = pickle.load(file)
                return found
        except (EOFError, pickle.UnpicklingError):  # the process ended before it was done
            return None

    def end(self) -> None:
        """Kill the process. If it is stuck in the kernel, where it can't be killed, leave it behind."""
        if self.pid is None:
            return
        os.close(self._pipe)
        with suppress(ProcessLookupError, ChildProcessError):  # our parent may have set SIGCHLD to be ignored
            os.kill(self.pid, signal.SIGKILL)
            until = time.monotonic() + _DYING_SECONDS
            while not os.waitpid(self.pid, os.WNOHANG)[0] and time.monotonic() < until:
                time.sleep(0.001)


@contextmanager
def meanwhile(work: Callable[[], T]) -> Iterator[Forked[T]]:
    """Run `work` in a forked process, which ends with the block at the latest. It has none of this process's files."""
    if threading.active_count() > 1:  # a lock held by another thread would stay locked forever in the fork
        yield Forked()
        return
    forked = Forked[T]()
    # no signal between the fork and the point where each process is ready for it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # once they are blocked, it handles what came before
            forked = _fork(work, before)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield forked
    finally:
        forked.end()


def _fork(work: Callable[[], T], before: set[signal.Signals | int]) -> Forked[T]:
    readable, writable = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(readable)
        os.close(writable)
        return Forked()
    if child == 0:
        _serve(work, writable, before)
    os.close(writable)
    return Forked(child, readable)


def _serve(work: Callable[[], object], writable: int, before: set[signal.Signals | int]) -> None:
    """Run `work` in the forked process, send its result and exit. If it fails, print nothing: the reader then finds no
    whole result."""
    try:
        pipe = _only(writable)
        for one in _SIGNALS:
            if signal.getsignal(one) is not signal.SIG_IGN:
                signal.signal(one, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        with os.fdopen(pipe, "wb") as file:
            pickle.dump(work(), file, protocol=5)  # an array is pickled as its bytes
    finally:
        os._exit(0)


def _only(pipe: int) -> int:
    """Close all files but `pipe`, and return its new number. Were this process stuck, whoever reads what ngcdl prints
    would wait for it, and whoever wants ngcdl's locks. With the pipe's readable end closed a write fails once the
    reader is gone."""
    kept = fcntl.fcntl(pipe, fcntl.F_DUPFD, 3)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if number > 2 and number != kept:
            with suppress(OSError):  # the folder itself, closed by now
                os.close(number)
    return kept
