"""Detects whether the code that a command runs was changed between runs: the source files in its mounted folders."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ngcdl.frozen import dataclass
from ngcdl.spec import Mount

# The endings of source files. Runs write settings and results with other endings; some programs copy settings as YAML.
_SUFFIXES = (".py", ".pyx", ".ipynb", ".sh", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp")
# Folders whose files are installed, or made from other files.
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages"})
# Limits for each mount. Listing 400,000 files takes 0.6 s; a slow file server must not delay the first run by minutes.
MOST_SECONDS, MOST_BYTES = 5.0, 64_000_000


@dataclass(frozen=True)
class Sources:
    """The source files that existed when a comparison began, with their digests. Files that a run adds don't count.

    `unwatched` are the mounts that were not searched: volumes, and folders above the limits."""

    digests: tuple[tuple[Path, bytes | None], ...]
    unwatched: tuple[str, ...]

    def edited(self) -> Path | None:
        """Return a source file that has been changed or deleted since, None if there is none."""
        return next((path for path, digest in self.digests if _digest(path) != digest), None)


def sources(mounts: Sequence[Mount]) -> Sources:
    """Find the source files in the folders and files that are mounted from this host."""
    found: list[Path] = []
    unwatched = []
    for mount in mounts:
        files = None if mount.is_volume else _files(Path(mount.host))
        if files is None:
            unwatched.append(mount.host)
        else:
            found += files
    return Sources(tuple((path, _digest(path)) for path in dict.fromkeys(sorted(found))), tuple(unwatched))


def _files(top: Path) -> list[Path] | None:
    """Return the source files in the folder `top`, or `top` itself if it is one; None if a limit is exceeded."""
    until, size_bytes = time.monotonic() + MOST_SECONDS, 0
    found = []
    for path in _named(top):
        if path is None:
            if time.monotonic() > until:
                return None
        elif (file_bytes := _file_bytes(path)) is not None:
            found.append(path)
            size_bytes += file_bytes
            if size_bytes > MOST_BYTES:
                return None
    return found


def _named(top: Path) -> Iterator[Path | None]:
    """Yield all paths with the name of a source file, and None after each folder. Hidden folders are left out. Links to
    folders are not followed, as they may form a circle."""
    if top.name.endswith(_SUFFIXES):
        yield top
    for folder, folders, files in os.walk(top):
        folders[:] = [one for one in folders if not one.startswith(".") and one not in _LEFT_OUT]
        yield from (Path(folder, one) for one in files if one.endswith(_SUFFIXES))
        yield None


def _file_bytes(path: Path) -> int | None:
    """Return the size of a file. None for a pipe or a device, as reading it would never end, and for what this user may
    not look at, such as a file in a folder without search permission."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _digest(path: Path) -> bytes | None:
    """Return the SHA-256 of a file; None if it can't be read."""
    try:
        return hashlib.sha256(path.read_bytes()).digest() if path.is_file() else None
    except OSError:
        return None
