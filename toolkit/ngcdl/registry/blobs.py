"""Layers on this host: each grows in a file of its own, is checked when whole, and is fetched by one process at a time.

    FOLDER/sha256-<hex>.part    what has come so far
    FOLDER/sha256-<hex>         whole, and found to be what its name promises

Whoever fetches a blob holds the exclusive flock of its file; whoever needs it for an engine, a shared one. The kernel
lets go of both when a process is killed, so the next one goes on from the last byte written. A file is never written
in place of another, so what a second process has open stays what it was, also after it was renamed or removed. Nothing
is synced to the disk: after a power cut the engine's own check of each digest finds what was lost.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Protocol

from ngcdl.errors import DigestMismatch, RateLimited, RegistryAnswer, RegistryUnreachable

log = logging.getLogger(__name__)

TRIES = 5  # as Docker has it: https://docs.docker.com/reference/cli/dockerd/#daemon-configuration-file
PROGRESS_BYTES = 1 << 20  # so much between two faults, and the count of tries begins anew
CHUNK_BYTES = 1 << 20
LOOK_SECONDS = 0.1  # between two looks at what another process fetches
# What another try may mend: cut, silent, overloaded. What is refused or missing stays so.
_PASSING = (RegistryUnreachable, RegistryAnswer, RateLimited)

Sleep = Callable[[float], object]


class Body(Protocol):
    """What comes over the wire; `status` 206 where it begins at the byte that was asked for, 200 at the first."""

    @property
    def status(self) -> int: ...

    @property
    def host(self) -> str: ...

    def read(self, limit_bytes: int) -> bytes: ...

    def close(self) -> None: ...


Open = Callable[[int], Body]


class FolderTrouble(Exception):
    """The folder of the blobs takes nothing (more). Not for users: the engine may still pull by itself."""


class Stopped(Exception):
    """Nobody wants the blob any longer. Not for users."""


class Blob:
    """One layer or configuration. Many threads may read it while one fills it; close it when none does."""

    def __init__(self, folder: Path, digest: str, size_bytes: int) -> None:
        """Open what is here of it, or an empty file. Raises FolderTrouble."""
        self.digest, self.size_bytes = digest, size_bytes
        self.came_bytes = 0  # from the registry, by this process
        self.failure: Exception | None = None
        self.is_whole = False
        self._path = folder / digest.replace(":", "-")
        self._part = self._path.with_name(self._path.name + ".part")
        self._changed = threading.Condition()
        self._is_closed, self._is_kept, self._is_filled_now = False, True, False
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = self._open()
            self._have = min(os.fstat(self._file).st_size, size_bytes)
        except OSError as error:
            raise FolderTrouble(f"{folder}: {error.strerror}") from error

    @property
    def have_bytes(self) -> int:
        return self._have

    def _open(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            return os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        return os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    # -- filling ----------------------------------------------------------------------------------------------------

    def fill(self, open_at: Open, sleep: Sleep = time.sleep, grown: Callable[[], object] = lambda: None) -> None:
        """Get all of it: from this disk, from another ngcdl that is at it, or by `open_at` from the first byte missing.

        `grown` is called after each piece. Raises what the registry says, DigestMismatch, FolderTrouble or Stopped.
        """
        with self._changed:
            if self._is_closed:
                raise Stopped
            self._is_filled_now = True
        try:
            while not self.is_whole:
                self._go_on()
                if self._is_checked():
                    self._become_whole()
                elif self._lock():
                    self._settle(open_at, sleep, grown)
                else:
                    self._grow(os.fstat(self._file).st_size)
                    grown()
                    sleep(LOOK_SECONDS)
        except OSError as error:
            raise FolderTrouble(f"{self._part}: {error.strerror}") from error
        finally:
            with self._changed:
                self._is_filled_now = False
                self._release()

    def _go_on(self) -> None:
        if self._is_closed:
            raise Stopped

    def fail(self, error: Exception) -> None:
        """Tell all readers that the rest will not come."""
        with self._changed:
            self.failure = error
            self._changed.notify_all()

    def _is_checked(self) -> bool:
        """Has somebody found it whole and right? Where it has no name any more, that one's engine has it."""
        about = os.fstat(self._file)
        return about.st_size == self.size_bytes and (about.st_nlink == 0 or _is_at(self._path, about))

    def _lock(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    def _settle(self, open_at: Open, sleep: Sleep, grown: Callable[[], object]) -> None:
        """With the lock held: find out what became of the file meanwhile, and do what is left to do."""
        about = os.fstat(self._file)
        if self._is_checked():
            self._become_whole()
        elif _is_at(self._path, about):
            self._path.unlink()  # the file system lost a part of it
            self._reopen()
        elif about.st_nlink == 0 or self._path.exists():
            self._reopen()  # swept, or found wrong; or whole since we looked for it
        else:
            try:
                self._fetch(open_at, sleep, grown)
            except BaseException:
                fcntl.flock(self._file, fcntl.LOCK_UN)
                raise

    def _reopen(self) -> None:
        """Take what has the name now."""
        new = self._open()
        os.dup2(new, self._file, inheritable=False)
        os.close(new)
        self._grow(0)

    def _fetch(self, open_at: Open, sleep: Sleep, grown: Callable[[], object]) -> None:
        have = os.fstat(self._file).st_size
        if have > self.size_bytes:
            have = self._empty()
        checksum = self._checksum(have)
        self._grow(have)
        self._download(open_at, checksum, sleep, grown)
        if not self._is_right(checksum) and have:
            # Another day's half may be to blame: after a power cut it may hold zeros. One clean try.
            checksum = self._checksum(self._empty())
            self._download(open_at, checksum, sleep, grown)
        if not self._is_right(checksum):
            self._empty()
            self._part.unlink(missing_ok=True)
            raise DigestMismatch(f"the layer {self.digest} hashes to {checksum.hexdigest()}")
        self._part.rename(self._path)
        self._become_whole()

    def _checksum(self, have: int) -> Any:
        """Hash the first `have` bytes, which came on another day."""
        checksum = hashlib.new(self.digest.partition(":")[0])
        at = 0
        while at < have and (piece := os.pread(self._file, min(CHUNK_BYTES, have - at), at)):
            checksum.update(piece)
            at += len(piece)
            self._go_on()
        return checksum

    def _is_right(self, checksum: Any) -> bool:
        return bool(checksum.hexdigest() == self.digest.partition(":")[2])

    def _empty(self) -> int:
        """Take the bytes away from every process that has the file open: they are wrong."""
        os.ftruncate(self._file, 0)
        self._grow(0)
        return 0

    def _become_whole(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_SH)
        self._grow(self.size_bytes)
        with self._changed:
            self.is_whole = True
            self._changed.notify_all()

    def _download(self, open_at: Open, checksum: Any, sleep: Sleep, grown: Callable[[], object]) -> None:
        tries = 0
        while self._have < self.size_bytes:
            self._go_on()
            before = self._have
            try:
                self._once(open_at, checksum, grown)
            except _PASSING as error:
                tries = 1 if self._have - before >= PROGRESS_BYTES else tries + 1
                if tries >= TRIES:
                    raise
                log.info("%s at byte %d: %s", self.digest, self._have, error)
                sleep(2.0 ** (tries - 1))

    def _once(self, open_at: Open, checksum: Any, grown: Callable[[], object]) -> None:
        """Send one request, and keep what comes. Content needs no If-Range where its name is its checksum."""
        with contextlib.closing(open_at(self._have)) as body:
            skip = self._have if body.status == 200 else 0  # no Range there: what is here comes once more
            while self._have < self.size_bytes:
                piece = body.read(CHUNK_BYTES)
                if not piece:
                    raise RegistryUnreachable(body.host, f"the connection was cut at byte {self._have}")
                self.came_bytes += len(piece)
                piece, skip = piece[skip:], max(0, skip - len(piece))
                self._append(piece[: self.size_bytes - self._have], checksum)
                grown()

    def _append(self, piece: bytes, checksum: Any) -> None:
        checksum.update(piece)
        begin = at = self._have
        while at < begin + len(piece):
            at += os.pwrite(self._file, piece[at - begin :], at)
        self._grow(at)
        self._go_on()  # what has come is kept, also at the end

    def _grow(self, have: int) -> None:
        with self._changed:
            self._have = min(have, self.size_bytes)
            self._changed.notify_all()

    # -- reading ----------------------------------------------------------------------------------------------------

    def read(self) -> bytes:
        """Give all of a blob that is whole: a configuration, which is small."""
        return os.pread(self._file, self.size_bytes, 0)

    def arriving(self, position: int) -> Generator[tuple[int, int, int]]:
        """Give (file, from, to) again and again: a descriptor to read from, and which bytes are there since.

        Raises Stopped where the rest will not come. Whoever finds a byte missing knows that the file was emptied.
        """
        file = None
        try:
            while position < self.size_bytes:
                there = self._after(position)
                # Not before something is there: until it is filled, the file may give way to one of that name.
                file = self._reader() if file is None else file
                yield file, position, there
                position = there
        finally:
            if file is not None:
                os.close(file)

    def _reader(self) -> int:
        with self._changed:
            if self._is_closed:
                raise Stopped
            return os.dup(self._file)

    def _after(self, position: int) -> int:
        """Wait until there is more than `position`, and tell how much."""
        with self._changed:
            while self._have <= position:
                if self.failure is not None or self._is_closed:
                    raise Stopped
                self._changed.wait()
            return self._have

    def until_whole(self) -> None:
        """Wait until all of it is here, and found to be right. Raises Stopped where that will not be."""
        with self._changed:
            while not self.is_whole:
                if self.failure is not None or self._is_closed:
                    raise Stopped
                self._changed.wait()

    # -- the end ----------------------------------------------------------------------------------------------------

    def close(self, keep: bool = True) -> None:
        """Let go of it; harmless twice. Without `keep` it is removed, unless another process needs it still."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed, self._is_kept = True, keep
            self._changed.notify_all()
            self._release()

    def _release(self) -> None:
        if self._is_filled_now or not self._is_closed:  # whoever fills it lets go of it, once it is closed
            return
        with contextlib.suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_UN)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            about = os.fstat(self._file)
            for path in (self._path, self._part):
                if (not self._is_kept or about.st_size == 0) and _is_at(path, about):
                    path.unlink()
        os.close(self._file)


def _is_at(path: Path, about: os.stat_result) -> bool:
    try:
        there = path.stat()
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (about.st_dev, about.st_ino)
