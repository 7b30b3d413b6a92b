"""Which files name an owner: an empty file for each, so that only these are read, however many there are."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ngcdl.errors import StateNotWritable
from ngcdl.folder import unlinked

_FOLDER = ".owned"


def put(root: Path, name: str) -> None:
    """Mark `name`. Raise StateNotWritable."""
    mark = root / _FOLDER / name
    with StateNotWritable.at(mark):
        unlinked(mark.parent).mkdir(exist_ok=True, mode=0o700)
        with contextlib.suppress(FileExistsError):
            mark.touch(exist_ok=False)


def drop(root: Path, name: str) -> None:
    with contextlib.suppress(OSError):  # whoever reads the marks tries again
        (unlinked(root / _FOLDER) / name).unlink()


def names(root: Path) -> list[str]:
    """Return what is marked, in no order. Raise StateNotWritable."""
    with StateNotWritable.at(root), contextlib.suppress(FileNotFoundError):
        return [mark.name for mark in unlinked(root / _FOLDER).iterdir()]
    return []
