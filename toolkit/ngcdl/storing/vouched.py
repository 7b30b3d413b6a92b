"""Which records are as ngcdl wrote them: a digest of each, kept where no run can write. A run can write its record."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

_FOLDER = "vouched"  # beside the folder of all runs, which docker compose mounts


def put(root: Path, name: str, text: str) -> None:
    """Vouch for `text`, the record of `name`. If that fails, nothing vouches for it."""
    path = _path(root, name)
    with contextlib.suppress(OSError):
        path.parent.mkdir(exist_ok=True, mode=0o700)
        path.write_bytes(_digest(text))


def has(root: Path, name: str, text: str) -> bool:
    with contextlib.suppress(OSError):
        return _path(root, name).read_bytes() == _digest(text)
    return False


def drop(root: Path, name: str) -> None:
    with contextlib.suppress(OSError):
        _path(root, name).unlink()


def _path(root: Path, name: str) -> Path:
    return root.with_name(_FOLDER) / name


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
