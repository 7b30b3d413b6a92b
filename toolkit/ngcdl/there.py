"""Tells what is missing from what can't be looked at: Path's exists() and its like raise for the latter only before
Python 3.14."""

from __future__ import annotations

import errno
import stat
from pathlib import Path


def exists(path: Path) -> bool:
    """Return whether something is at `path`. Raise OSError if that can't be told: in a folder that may not be
    entered, or if a name is too long."""
    return _mode(path) is not None


def is_folder(path: Path) -> bool:
    """As `exists`, whether a folder is there."""
    return stat.S_ISDIR(_mode(path) or 0)


def is_file(path: Path) -> bool:
    """As `exists`, whether a regular file is there."""
    return stat.S_ISREG(_mode(path) or 0)


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise
    except ValueError:  # no path has a null byte
        return None
