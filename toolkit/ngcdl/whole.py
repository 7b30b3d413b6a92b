"""A file written whole or not at all: what was there before stays until all of it is written, and where that fails."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

DRAFT = ".ngcdl-"  # what the names of drafts begin with; one stays only where its writer was killed


@contextmanager
def written(path: Path, mode: int = 0o600, sync: bool = True, is_new: bool = False) -> Iterator[IO[bytes]]:
    """Give a draft beside `path`, which takes its place when the block ends; where the block or a call of the operating
    system fails nothing is left of it. Raises OSError.

    It has `mode`, less the umask, before its first byte. `sync`: its bytes are on the disk before it has the name, so
    that a power cut leaves the old or the new; for the name to be there as well see sync_folder. A link in its place is
    replaced, not followed. `is_new`: another in its place stays, and is a FileExistsError.
    """
    draft = path.with_name(f"{DRAFT}{os.urandom(8).hex()}")  # of its own: two threads may write the same
    way = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(draft, way, mode), "wb") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        if is_new:
            os.link(draft, path)  # fails where there is one, as a rename does not
        else:
            draft.replace(path)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def sync_folder(folder: Path) -> None:
    """Have the names in `folder` outlive a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
