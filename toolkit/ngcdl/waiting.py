"""What goes on in a thread while something else lasts, or for a limited time, and messages about what a slow step
waits for."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

# Nearly every start takes less than 10 s. Each further message comes after twice the pause, at most 5 min.
FIRST_SECONDS, MOST_SECONDS = 10.0, 300.0
_POLL_SECONDS = 0.05  # a lock can't be waited for with a limit
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextlib.contextmanager
def alongside(work: Callable[[threading.Event], None], name: str) -> Iterator[None]:
    """Run `work` in a thread called `name` while the block lasts. The event that it gets is set at the block's end,
    which then waits for the thread."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,), name=name, daemon=True)
    try:
        try:
            thread.start()  # a signal may interrupt this call once the thread runs
            yield
        finally:
            over.set()
    finally:
        over.set()  # a signal may have interrupted the first call
        if thread.ident:
            thread.join()


class Later(Generic[T]):
    """Work that has begun in a thread. The thread can't be stopped; it ends with this process at the latest."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._results: list[T] = []
        self._errors: list[BaseException] = []

        def run() -> None:
            try:
                self._results.append(work())
            except BaseException as error:
                self._errors.append(error)

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the work is done, or for so long."""
        self._thread.join(seconds)

    def result(self, seconds: float | None = None) -> T:
        """Wait for the work, and return its result or raise its error. Raise TimeoutError after `seconds`."""
        self.wait(seconds)
        if self._errors:
            raise self._errors[0]
        if not self._results:
            raise TimeoutError
        return self._results[0]


def within(work: Callable[[], T], seconds: float) -> T:
    """Run `work` in a thread; return its result, or raise its error. Raise TimeoutError after `seconds`, and leave the
    thread behind: it can't be stopped."""
    return Later(work).result(seconds)


@contextlib.contextmanager
def where_locks_are() -> Iterator[None]:
    """Suppress the error of a file system without locks: better two processes at once than none, ever. Lustre may be
    mounted so (noflock): https://manpages.ubuntu.com/manpages/precise/man8/mount.lustre.8.html"""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


@contextlib.contextmanager
def locked(path: Path, say: Callable[[str], None], what: str) -> Iterator[None]:
    """Hold the lock of the file at `path`, if its file system has locks, while the block lasts; if another process
    holds it, say that this one waits for `what`. Raise OSError, also if a link is there."""
    with _opened(path) as file:
        with where_locks_are():
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"waiting for {what}")
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def locked_within(path: Path, seconds: float, mode: int = 0o666) -> Iterator[None]:
    """Hold the lock of the file at `path` while the block lasts. Raise OSError, also if a link is there, or if there
    are no locks; TimeoutError if another process holds it for `seconds`. A new file has `mode`, less the umask."""
    until = time.monotonic() + seconds
    with _opened(path, mode) as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), str(path)) from None
            time.sleep(_POLL_SECONDS)
        yield


@contextlib.contextmanager
def if_possible(lock: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Hold the lock that `lock` returns while the block lasts. If that raises OSError, as where there are no locks or
    another process holds it for too long, the block is entered without it."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(lock())
        yield


@contextlib.contextmanager
def _opened(path: Path, mode: int = 0o666) -> Iterator[int]:
    # also for writing: https://man7.org/linux/man-pages/man2/flock.2.html (NFS)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def telling(
    say: Callable[[str], None],
    waits_for: Callable[[], str | None],
    pause: float = FIRST_SECONDS,
    at_ctrl_c: str = "cancels",
) -> Iterator[None]:
    """Report now and then what the block waits for (from `waits_for`; None is not reported), how long it has taken so
    far, and what Ctrl-C does.

    Without these messages a hanging engine would look like a hanging ngcdl."""
    began = time.monotonic()

    def tell(over: threading.Event) -> None:
        seconds = pause
        while not over.wait(seconds):
            if what := waits_for():
                say(f"waiting for {what} ({time.monotonic() - began:.0f} s so far); Ctrl-C {at_ctrl_c}")
                seconds = min(2 * seconds, MOST_SECONDS)

    with alongside(tell, "ngcdl-telling"):
        yield
