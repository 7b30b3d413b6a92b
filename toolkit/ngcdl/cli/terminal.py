"""The caller's keyboard, while a container has it: raw bytes in, the window's size, the old state back at the end."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator

from ngcdl import console
from ngcdl.engines.base import Chunk, Job

UNHEARD = "the keyboard is no longer connected to the run; Ctrl-C stops it from now on"


class Pipe:
    """stdin that is no terminal: passed on to its end."""

    def pump(self, job: Job, output: Iterator[Chunk]) -> Iterator[Chunk]:
        threading.Thread(target=_forward, args=(job,), daemon=True).start()
        yield from output


class RawTerminal:
    """stdin and stdout that are one terminal. Ctrl-C is a byte for the container, as long as that has the keyboard."""

    # So often is looked whether anybody reads it, and so long waited then whether that is the end: see DockerJob.
    settle_seconds = 2.5

    def pump(self, job: Job, output: Iterator[Chunk]) -> Iterator[Chunk]:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)

        def resize(*_: object) -> None:
            columns, rows = shutil.get_terminal_size()
            job.resize(rows, columns)

        def listen() -> None:
            _forward(job, self.settle_seconds)
            if over.wait(self.settle_seconds):
                return
            with contextlib.suppress(termios.error):  # the terminal has gone
                termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
                console.say(UNHEARD)

        over = threading.Event()
        old = signal.signal(signal.SIGWINCH, resize)
        try:
            tty.setraw(descriptor)
            resize()
            threading.Thread(target=listen, daemon=True).start()
            yield from output
        finally:
            over.set()
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
            signal.signal(signal.SIGWINCH, old)


def _forward(job: Job, look_seconds: float | None = None) -> None:
    """Pass the caller's stdin on. One that was closed (`<&-`) is at its end at once.

    Every `look_seconds` nothing is passed on: a job that nobody can type to any more raises OSError all the same."""
    try:
        with contextlib.suppress(OSError):
            while sys.stdin:
                ready, _, _ = select.select([sys.stdin], [], [], look_seconds)
                data = os.read(sys.stdin.fileno(), 65536) if ready else b""
                if ready and not data:
                    break
                job.write(data)
    finally:
        with contextlib.suppress(OSError):
            job.close_input()
