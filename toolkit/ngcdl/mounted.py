"""Whether the code that a command runs stays the same from run to run: the sources in the folders mounted for it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ngcdl.spec import Mount

# Runs write settings and results with any other ending, and some programs keep a copy of their settings as YAML.
_SUFFIXES = (".py", ".pyx", ".ipynb", ".sh", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp")
# What these have is installed, or made from the rest.
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages"})
# Beyond that, looking would delay each run by seconds: somebody mounted a data set together with the code.
MOST_NAMES, MOST_BYTES = 50_000, 64_000_000


@dataclass(frozen=True)
class Sources:
    """The source files that were there when a comparison began, and their digest. What a run adds doesn't count."""

    files: tuple[Path, ...]
    digest: str

    def are_edited(self) -> bool:
        """Has one been changed, or deleted?"""
        return _digest(self.files) != self.digest


def sources(mounts: Sequence[Mount]) -> Sources | None:
    """Find the source files in the folders of this host that are mounted; None if there are too many to look at."""
    names = list(islice(_names(mounts), MOST_NAMES + 1))
    files = tuple(sorted({path for path, is_source in names if is_source}))
    if len(names) > MOST_NAMES or sum(map(_size_bytes, files)) > MOST_BYTES:
        return None
    return Sources(files, _digest(files))


def _digest(files: Sequence[Path]) -> str:
    """Return the SHA-256 of their names and contents, in hexadecimal; a file that can't be read has none."""
    found = hashlib.sha256()
    for file in files:
        found.update(os.fsencode(file) + b"\0")
        try:
            found.update(hashlib.sha256(file.read_bytes()).digest())
        except OSError:
            found.update(b"-")
    return found.hexdigest()


def _names(mounts: Sequence[Mount]) -> Iterator[tuple[Path, bool]]:
    """Yield all that is mounted, and whether it is a source file. Hidden folders are left out; links are not followed:
    they may lead in a circle."""
    for mount in mounts:
        top = Path(mount.host)
        if mount.is_volume:
            continue
        if top.is_file():
            yield top, top.name.endswith(_SUFFIXES)
        for folder, folders, files in os.walk(top):
            folders[:] = [one for one in folders if not one.startswith(".") and one not in _LEFT_OUT]
            yield from ((Path(folder, one), False) for one in folders)
            yield from ((Path(folder, one), one.endswith(_SUFFIXES)) for one in files)


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
