"""The caller's keyboard, while a container has it: raw bytes in, the window's size, the old state back at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator

from ngcdl.engines.base import Chunk, Job


class Pipe:
    """stdin that is no terminal: passed on to its end."""

    raw = False

    def pump(self, job: Job, output: Iterator[Chunk]) -> Iterator[Chunk]:
        threading.Thread(target=_forward, args=(job,), daemon=True).start()
        yield from output


class RawTerminal:
    """stdin and stdout that are one terminal. Ctrl-C is a byte for the container; Ctrl-P Ctrl-Q detaches."""

    raw = True

    def pump(self, job: Job, output: Iterator[Chunk]) -> Iterator[Chunk]:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)

        def resize(*_: object) -> None:
            columns, rows = shutil.get_terminal_size()
            job.resize(rows, columns)

        old = signal.signal(signal.SIGWINCH, resize)
        try:
            tty.setraw(descriptor)
            resize()
            threading.Thread(target=_forward, args=(job,), daemon=True).start()
            yield from output
        finally:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
            signal.signal(signal.SIGWINCH, old)


def _forward(job: Job) -> None:
    """Pass the caller's stdin on. One that was closed (`<&-`) is at its end at once."""
    try:
        with contextlib.suppress(OSError):
            while sys.stdin and (data := os.read(sys.stdin.fileno(), 65536)):
                job.write(data)
    finally:
        with contextlib.suppress(OSError):
            job.close_input()
