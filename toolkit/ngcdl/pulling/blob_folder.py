"""The blobs' folder: how much of a blob is in it, and the removal of old parts that no pull has continued."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

STALE_SECONDS = 14 * 86400.0


def here_bytes(folder: Path, digest: str) -> int:
    """Return how many bytes of a blob are on disk, without opening it: another process may be using it."""
    name, sizes = digest.replace(":", "-"), [0]
    for path in (folder / name, folder / f"{name}.part"):
        with contextlib.suppress(OSError):
            sizes.append(path.stat().st_size)
    return max(sizes)


def sweep(folder: Path, now: float) -> None:
    """Remove blobs and parts that nobody has changed for STALE_SECONDS, and that no process has locked."""
    for path in folder.glob("sha*-*"):
        # Opened for writing, because a lock on NFS needs that: https://man7.org/linux/man-pages/man2/flock.2.html
        with contextlib.suppress(OSError), path.open("r+b") as file:
            if now - os.fstat(file.fileno()).st_mtime > STALE_SECONDS:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
