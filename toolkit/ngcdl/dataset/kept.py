"""The unpacked data set in the cache, and the check that it is still what was unpacked.

CACHE/cifar-10/cifar-10-batches-bin/   the files; CACHE/cifar-10 is what gets mounted
CACHE/cifar-10.json                    the stamp, format 1: {"format", "archive": sha256, "training_sha256",
                                       "checked": s since the epoch,
                                       "files": {name: {"bytes", "sha256", "mtime_ns", "ctime_ns"}}}
CACHE/cifar-10.lock                    held while any of this changes
CACHE/cifar-10-binary.tar.gz           kept, so that a damaged file needs no second download; .part: the part so far
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ngcdl import whole
from ngcdl.dataset import disk
from ngcdl.dataset.official import BINARY, Archive, is_training
from ngcdl.frozen import dataclass

_FORMAT = 1
_TRUST_SECONDS = 24 * 3600.0  # after a day the files are read again: bits can rot without a change of date


@dataclass(frozen=True)
class CachedArchive:
    """The archive in the cache, the files unpacked from it, and their stamp. `clock` returns s since the epoch."""

    cache: Path
    archive: Archive
    clock: Callable[[], float] = time.time

    @property
    def folder(self) -> Path:
        return self.cache / "cifar-10"

    @property
    def lock(self) -> Path:
        return self.cache / "cifar-10.lock"

    @property
    def packed(self) -> Path:
        return self.cache / self.archive.name

    @property
    def _stamp(self) -> Path:
        return self.cache / "cifar-10.json"

    def check(self) -> tuple[str | None, str | None]:
        """Return the training files' sha256 and None if the set is intact, None and what is wrong if it is damaged.

        Return None and None if there is no set.

        If sizes and dates match the stamp, this costs a few stats; otherwise every byte is read.
        """
        stamp = self._load()
        if stamp is None:
            return None, None
        training: str = stamp["training_sha256"]
        try:
            dates = self._dates()
            fresh = 0 <= self.clock() - stamp["checked"] < _TRUST_SECONDS
            if fresh and all(dates[name].items() <= file.items() for name, file in stamp["files"].items()):
                return training, None
            for name, file in stamp["files"].items():
                if disk.sha256(self.folder / BINARY / name) != file["sha256"]:
                    return None, f"{name} has changed since it was unpacked"
        except OSError as error:
            return None, f"{error.filename}: {error.strerror}"
        with contextlib.suppress(OSError):  # in a cache that can't be written, every byte is read each time
            self._save({name: file["sha256"] for name, file in stamp["files"].items()}, dates, training)
        return training, None

    def stamp(self) -> str:
        """Write the stamp of the freshly unpacked files, and return the training files' sha256."""
        training = hashlib.sha256()
        digests = {}
        dates = self._dates()
        for member in self.archive.members:
            content = (self.folder / BINARY / member.name).read_bytes()
            digests[member.name] = hashlib.sha256(content).hexdigest()
            if is_training(member.name):
                training.update(content)
        self._save(digests, dates, training.hexdigest())
        return training.hexdigest()

    def _save(self, digests: dict[str, str], dates: dict[str, dict[str, int]], training: str) -> None:
        stamp = {
            "format": _FORMAT,
            "archive": self.archive.sha256,
            "training_sha256": training,
            "checked": float(self.clock()),
            "files": {name: {"sha256": digest, **dates[name]} for name, digest in digests.items()},
        }
        with whole.written(self._stamp, mode=0o666) as file:  # the cache may be shared: the umask decides who reads it
            file.write((json.dumps(stamp, indent=1) + "\n").encode())

    def _load(self) -> dict[str, Any] | None:
        try:
            stamp = json.loads(self._stamp.read_text(encoding="utf-8"))
            known = stamp["format"] == _FORMAT and stamp["archive"] == self.archive.sha256
            known = known and set(stamp["files"]) == {member.name for member in self.archive.members}
            known = known and len(stamp["training_sha256"]) == 64 and isinstance(stamp["checked"], float)
            known = known and all(isinstance(file["sha256"], str) for file in stamp["files"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return stamp if known else None

    def _dates(self) -> dict[str, dict[str, int]]:
        """Return each file's size and dates, as the stamp has them."""
        found = {}
        for member in self.archive.members:
            it = (self.folder / BINARY / member.name).stat()
            # ctime too: unlike mtime it can't be set back.
            found[member.name] = {"bytes": it.st_size, "mtime_ns": it.st_mtime_ns, "ctime_ns": it.st_ctime_ns}
        return found
