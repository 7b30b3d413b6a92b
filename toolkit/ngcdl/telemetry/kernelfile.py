"""A small kernel file that is read repeatedly, kept open because opening it costs more than reading it."""

from __future__ import annotations

import os
from pathlib import Path


class KernelFile:
    """A file below /proc or /sys. Each read() returns its whole content at that moment."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._file: int | None = None
        self._room = 4096  # bytes

    def read(self) -> str | None:
        """Return its text, or None if it can't be read. If reading fails, the file is reopened once: a restarted
        container has its old name and a new control group."""
        file = self._file
        try:
            if file is None:
                file = self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            while len(text := os.pread(file, self._room, 0)) == self._room:  # one read is one moment, two would mix two
                self._room *= 2
            return text.decode(errors="replace")
        except OSError:
            was_open = file is not None
            self.close()
            return self.read() if was_open else None

    def close(self) -> None:
        """Close the file; harmless twice."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    __del__ = close


def number_after(key: str, text: str) -> int | None:
    """Return the number that follows `key`, which begins a line, in the text of such a file; None if none does."""
    words = f"\n{text}".partition(f"\n{key}")[2].split(None, 1)
    return int(words[0]) if words and words[0].isdecimal() else None
