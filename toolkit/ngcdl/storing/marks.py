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
    try:
        unlinked(mark.parent).mkdir(exist_ok=True, mode=0o700)
        with contextlib.suppress(FileExistsError):
            mark.touch(exist_ok=False)
    except OSError as error:
        raise StateNotWritable(mark, error.strerror or str(error)) from error


def drop(root: Path, name: str) -> None:
    with contextlib.suppress(OSError):  # whoever reads the marks tries again
        (unlinked(root / _FOLDER) / name).unlink()


def names(root: Path) -> list[str]:
    """Return what is marked, in no order. Raise StateNotWritable."""
    try:
        return [mark.name for mark in unlinked(root / _FOLDER).iterdir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StateNotWritable(root, error.strerror or str(error)) from error
