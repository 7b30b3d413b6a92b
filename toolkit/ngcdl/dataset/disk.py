"""How the cache is written: nothing half-written under a final name, and a full disk is reported as DiskFull."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ngcdl.errors import DatasetUnavailable, DiskFull

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def written(where: Path) -> Iterator[None]:
    """Translate the operating system's errors while `where` is written to DiskFull or DatasetUnavailable."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno in _FULL:
            raise DiskFull(str(where), f"{why} while CIFAR-10 was stored", is_engines=False) from error
        raise DatasetUnavailable(f"{error.filename or where} can't be used: {why}") from error


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
