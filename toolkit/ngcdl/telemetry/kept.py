"""A small file of the kernel's that is read again and again: kept open, for to open it costs more than to read it."""

from __future__ import annotations

import os
from pathlib import Path


class Kept:
    """A file below /proc or /sys. Each read() gives the whole of it as it is at that moment."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._file: int | None = None
        self._room = 4096  # bytes

    def read(self) -> str | None:
        """Give its text, None where it can't be read. It is opened anew then: a container that is started again has
        its old name and a new control group."""
        file = self._file
        try:
            if file is None:
                file = self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            while len(text := os.pread(file, self._room, 0)) == self._room:  # two readings are of two moments
                self._room *= 2
            return text.decode(errors="replace")
        except OSError:
            was_open = file is not None
            self.close()
            return self.read() if was_open else None

    def close(self) -> None:
        """Let go of it; harmless twice."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    __del__ = close
