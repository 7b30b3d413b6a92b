"""How the cache is written: nothing half-written under a final name, and a full disk is reported as DiskFull."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ngcdl import whole
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
            raise DiskFull(str(where), f"{why} while CIFAR-10 was stored") from error
        raise DatasetUnavailable(f"{error.filename or where} can't be used: {why}") from error


def replace_text(path: Path, text: str) -> None:
    """Write a small file atomically: it has the old text or the new one, never half of it."""
    with whole.written(path, mode=0o666) as file:  # the cache may be shared: the umask decides who reads it
        file.write(text.encode())


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
