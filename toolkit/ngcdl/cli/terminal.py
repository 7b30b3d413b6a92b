"""Gives a container the caller's keyboard: raw bytes in, the window's size, the old state restored at the end."""

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
    """A stdin that is not a terminal: passed on to its end."""

    def pump(self, job: Job, output: Iterator[Chunk]) -> Iterator[Chunk]:
        threading.Thread(target=_forward, args=(job,), daemon=True).start()
        yield from output


class RawTerminal:
    """A terminal as stdin and stdout. While the container has the keyboard, Ctrl-C is a byte for it."""

    # The interval between checks that somebody reads it, and then the wait to see if that was the end: see DockerJob.
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
    """Pass the caller's stdin on. One that was closed (`<&-`) ends at once.

    Every `look_seconds` without input, pass on nothing: a job that can no longer be typed to raises OSError even so."""
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
