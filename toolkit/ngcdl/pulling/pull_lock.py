"""Which process pulls an image onto an engine, and under which relay names layers were handed to the engine before.

    FOLDER/pull-<image>-<engine>      locked with flock during the pull; one relay name per line

A name outlives its relay only if a client was killed between two calls; the next pull onto that engine removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from ngcdl.errors import BadReference
from ngcdl.pulling.relay import is_relays
from ngcdl.spec import ImageRef


class PullLock:
    """The lock that a process holds while it pulls one image, by digest, onto one engine. A `with` releases it."""

    def __init__(self, folder: Path, digest: str, engine: str | None) -> None:
        """Create the folder. Raise OSError if that fails."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / f"pull-{digest.partition(':')[2][:32]}-{tail(engine)}"
        self._file: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_about: object) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def take(self) -> bool:
        """Take the lock if it is free; return whether this process holds it."""
        self._file = self._file if self._file is not None else _locked(self._path, create=True)
        return self._file is not None

    def note(self, name: ImageRef) -> None:
        """Record a relay name. Call it before the engine gets the name."""
        assert self._file is not None  # take() gave it
        os.pwrite(self._file, f"{name}\n".encode(), os.fstat(self._file).st_size)

    def names(self) -> list[ImageRef]:
        """Return the relay names that the engine got for this image, including those from killed clients."""
        assert self._file is not None  # take() gave it
        return _names(self._file)

    def forget(self) -> None:
        """Delete the record: the engine has none of the names any more."""
        self._path.unlink(missing_ok=True)


def left_behind(folder: Path, engine: str | None) -> Iterator[ImageRef]:
    """Yield the names that killed clients left on an engine, once each, for the caller to remove."""
    for path in folder.glob(f"pull-*-{tail(engine)}"):
        file = _locked(path, create=False)
        if file is not None:
            try:
                yield from _names(file)
                path.unlink(missing_ok=True)
            finally:
                os.close(file)


def _locked(path: Path, *, create: bool) -> int | None:
    """Open and lock the file that is at `path` now; return None if another process holds it, or there is none."""
    while True:
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)
        except FileNotFoundError:
            return None
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.stat().st_ino == os.fstat(file).st_ino:
                return file
            os.close(file)
            continue  # removed between open and lock
        os.close(file)
        if path.exists():
            return None


def _names(file: int) -> list[ImageRef]:
    """Read the relay names that `note` wrote. Anything else in the file is ignored, as callers remove these names."""
    lines = os.pread(file, 1 << 20, 0).decode(errors="replace").splitlines()
    names = []
    for line in lines:
        with contextlib.suppress(BadReference):  # half a line: the client died while writing
            names.append(ImageRef.parse(line))
    return [name for name in names if is_relays(name)]


def tail(engine: str | None) -> str:
    """Return the suffix that distinguishes one engine's files from another's."""
    return hashlib.sha256((engine or "").encode()).hexdigest()[:12]
