"""Adds members to a tar without what a file has here: no owner, no group, no link."""

from __future__ import annotations

import hashlib
import io
from tarfile import TarFile, TarInfo
from typing import IO


def add(tar: TarFile, name: str, content: bytes, *, mode: int = 0o644, changed: float = 0.0) -> None:
    """Add a file that has `content`, and was changed then."""
    tar.addfile(_entry(name, len(content), mode, changed), io.BytesIO(content))


def add_hashed(
    tar: TarFile,
    name: str,
    file: IO[bytes],
    size_bytes: int,
    algorithm: str = "sha256",
    *,
    mode: int = 0o644,
    changed: float = 0.0,
) -> str:
    """Add `size_bytes` of `file`, and return the hash of what was read, in hexadecimal digits."""
    content = _Hashed(file, algorithm)
    tar.addfile(_entry(name, size_bytes, mode, changed), content)
    return content.checksum.hexdigest()


def _entry(name: str, size_bytes: int, mode: int, changed: float) -> TarInfo:
    entry = TarInfo(name)
    entry.size, entry.mode, entry.mtime = size_bytes, mode, int(changed)
    return entry


class _Hashed(io.RawIOBase):
    """Reads a file, and hashes what was read."""

    def __init__(self, file: IO[bytes], algorithm: str) -> None:
        self._file, self.checksum = file, hashlib.new(algorithm)

    def read(self, limit_bytes: int = -1) -> bytes:
        piece = self._file.read(limit_bytes)
        self.checksum.update(piece)
        return piece
