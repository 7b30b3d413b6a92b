"""Unpacks the archive into a folder: only the known files, written one by one.

tarfile's extractall is not used, not even with filter="data": https://nvd.nist.gov/vuln/detail/CVE-2025-4517
"""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path

from ngcdl import whole
from ngcdl.dataset import disk
from ngcdl.dataset.official import BINARY, TEXT_BYTES, Archive, Member
from ngcdl.errors import DatasetWrong

_TEMPORARY = ".unpacking-"
_OVERHEAD_BYTES = 1 << 20  # headers and padding of a tar of eight files
_BROKEN = (tarfile.TarError, zlib.error, EOFError, ValueError, OverflowError, gzip.BadGzipFile)


def unpack(path: Path, archive: Archive, into: Path) -> None:
    """Check the archive's hash, then unpack it to `into`/BINARY, or leave everything as it was.

    Raise DatasetWrong if anything in it is unexpected, DiskFull if there is no room.
    """
    with disk.written(into.parent):
        if disk.sha256(path) != archive.sha256:
            raise DatasetWrong(path, f"its sha256 is not {archive.sha256}")
        into.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=into.parent))
        try:
            batches = temporary / "new" / BINARY
            batches.mkdir(parents=True)
            _members(path, archive, batches)
            whole.sync_folder(batches)
            whole.sync_folder(batches.parent)
            if into.exists():
                into.rename(temporary / "old")
            batches.parent.rename(into)
            whole.sync_folder(into.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def sweep(cache: Path) -> None:
    """Remove what a killed process left behind. Call only with the cache's lock held."""
    for left in cache.glob(_TEMPORARY + "*"):
        shutil.rmtree(left, ignore_errors=True)


class _Bounded(gzip.GzipFile):
    """Unpacks at most `limit` bytes: a decompression bomb is stopped, whatever its headers say."""

    def __init__(self, path: Path, limit: int) -> None:
        super().__init__(path, "rb")
        self._limit = limit

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        if self.tell() > self._limit:
            raise tarfile.ReadError("it unpacks to more than CIFAR-10 is")
        return data


def _members(path: Path, archive: Archive, batches: Path) -> None:
    wanted = {f"{BINARY}/{member.name}": member for member in archive.members}
    seen: set[str] = set()
    try:
        # "r|": a stream, read in order, so that no header can point back or elsewhere.
        limit = archive.unpacked_bytes + _OVERHEAD_BYTES
        with _Bounded(path, limit) as plain, tarfile.open(fileobj=plain, mode="r|") as tar:
            for entry in tar:
                if entry.type == tarfile.DIRTYPE and entry.name == BINARY:
                    continue
                _refuse(entry, wanted.get(entry.name), entry.name in seen, path)
                seen.add(entry.name)
                _copy(tar, entry, batches / wanted[entry.name].name)
            while plain.read(1 << 20):  # read on to the checksum at the end
                pass
    except _BROKEN as error:
        raise DatasetWrong(path, f"it can't be unpacked: {error}") from error
    if missing := [name for name in wanted if name not in seen]:
        raise DatasetWrong(path, f"{missing[0]} is missing from it")


def _refuse(entry: tarfile.TarInfo, member: Member | None, again: bool, path: Path) -> None:
    """Raise DatasetWrong unless this entry is a known plain file of the known size, seen for the first time."""
    name = ascii(entry.name[:200])
    if member is None:
        raise DatasetWrong(path, f"it holds {name}, which does not belong there")
    if entry.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or entry.issparse():
        raise DatasetWrong(path, f"{name} in it is not a plain file")
    if again:
        raise DatasetWrong(path, f"it holds {name} twice")
    if member.bytes is None and entry.size > TEXT_BYTES:
        raise DatasetWrong(path, f"{name} in it has {entry.size} bytes, more than {TEXT_BYTES}")
    if member.bytes is not None and entry.size != member.bytes:
        raise DatasetWrong(path, f"{name} in it has {entry.size} bytes instead of {member.bytes}")


def _copy(tar: tarfile.TarFile, entry: tarfile.TarInfo, to: Path) -> None:
    source = tar.extractfile(entry)
    if source is None:
        raise tarfile.ReadError(f"no content of {entry.name}")
    with source, to.open("xb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
        file.flush()
        if file.tell() != entry.size:
            raise tarfile.ReadError(f"{entry.name} ends early")
        os.fsync(file.fileno())
