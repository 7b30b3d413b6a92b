"""The blobs' folder: how much of a blob is in it, and the removal of old parts that no pull has continued."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ngcdl import whole

STALE_SECONDS = 14 * 86400.0


def here_bytes(folder: Path, digest: str) -> int:
    """Return how many bytes of a blob are on disk, without opening it: another process may be using it."""
    name, sizes = digest.replace(":", "-"), [0]
    for path in (folder / name, folder / f"{name}.part"):
        with contextlib.suppress(OSError):
            sizes.append(path.stat().st_size)
    return max(sizes)


def sweep(folder: Path) -> None:
    """Remove blobs and parts that nobody has changed for STALE_SECONDS, and that no process has locked."""
    whole.remove_dead(folder, "sha*-*", older_seconds=STALE_SECONDS)
