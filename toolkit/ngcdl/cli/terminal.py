"""Connects a container to the caller's keyboard: passes on raw bytes and the window's size, and restores the terminal
at the end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
import stat
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from queue import SimpleQueue

from ngcdl import console
from ngcdl.engines.base import Line
from ngcdl.engines.values import Chunk

UNHEARD = "the keyboard is no longer connected to the run; from now on Ctrl-C stops the run"

UNREAD = "what is piped into ngcdl does not reach the container; with -i it does"


def is_here() -> bool:
    """Return whether stdin and stdout are a terminal, and this process is in its foreground: a process in the
    background (`&`) is suspended when it uses the terminal."""
    return all(stream and stream.isatty() for stream in (sys.stdin, sys.stdout)) and may_read()


def may_read() -> bool:
    """Return whether this process may read from the terminal that is its stdin: not in the terminal's background."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # it is not the controlling terminal of this process
        return True


def is_piped_into(stdin: int = 0) -> bool:
    """Return whether the descriptor `stdin` is a file or a pipe, and has something left to read."""
    try:
        told = os.fstat(stdin)
        if stat.S_ISREG(told.st_mode):
            return told.st_size > os.lseek(stdin, 0, os.SEEK_CUR)
        return stat.S_ISFIFO(told.st_mode) and any(fcntl.ioctl(stdin, termios.FIONREAD, bytes(4)))  # a number of bytes
    except OSError:  # it is closed
        return False


def agreed(question: str) -> bool:
    """Ask a question; return whether the answer is yes."""
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        console.result("")
        return False


class Pipe:
    """A stdin that is not a terminal: forwarded until it ends, unless the program inherited it."""

    def pump(self, job: Line, output: Iterator[Chunk]) -> Iterator[Chunk]:
        threading.Thread(target=_forward, args=(job,), daemon=True).start()
        yield from output


class RawTerminal:
    """A terminal as stdin and stdout. While the container has the keyboard, Ctrl-C is just a byte sent to it."""

    # The interval at which to check that the container still reads its input. Once it does not, the time that the run
    # has to end before the user is told: see DockerJob.
    settle_seconds = 2.5

    def pump(self, job: Line, output: Iterator[Chunk]) -> Iterator[Chunk]:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        over = threading.Event()
        resized: SimpleQueue[bool] = SimpleQueue()  # False at the end

        def resize() -> None:
            columns, rows = shutil.get_terminal_size()
            job.resize(rows, columns)

        def follow() -> None:
            while resized.get():
                resize()

        def listen() -> None:
            _forward(job, self.settle_seconds)
            if over.wait(self.settle_seconds):
                return
            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
                console.say(UNHEARD)

        # A signal handler may interrupt the code that it calls, so that code must be reentrant. SimpleQueue.put is;
        # a request to the engine and Event.set hold locks.
        old = signal.signal(signal.SIGWINCH, lambda *_: resized.put(True))
        try:
            tty.setraw(descriptor)
            resize()
            for target in (listen, follow):
                threading.Thread(target=target, daemon=True).start()
            yield from output
        finally:
            over.set()
            resized.put(False)
            signal.signal(signal.SIGWINCH, old)
            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _forward(job: Line, look_seconds: float | None = None) -> None:
    """Forward the caller's stdin until it ends. A stdin that the caller closed (`<&-`) counts as ended.

    First, and after every `look_seconds` without input, write b"": that raises OSError if nobody reads the input."""
    try:
        with contextlib.suppress(OSError, ValueError):  # ValueError: stdin was closed meanwhile
            job.write(b"")
            while sys.stdin:
                ready, _, _ = select.select([sys.stdin], [], [], look_seconds)
                data = os.read(sys.stdin.fileno(), 65536) if ready else b""
                if ready and not data:
                    break
                job.write(data)
    finally:
        with contextlib.suppress(OSError):
            job.close_input()
