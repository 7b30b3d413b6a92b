"""Layers on this host: each has its own file, is verified when complete, and is fetched by one process at a time.

    FOLDER/sha256-<hex>.part    what has arrived so far
    FOLDER/sha256-<hex>         complete, with the digest verified

A process holds an exclusive flock on a blob's file while it fetches the blob, and a shared one while it passes the blob
on to an engine. If a process is killed, the kernel releases its locks, and the next process continues after the last
byte written. No file ever replaces another, so a process that has a blob open keeps the same file even after a rename
or removal. Nothing is synced to disk: after a power cut the engine's own check of each digest finds what was lost.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngcdl.engines.values import PullEvent, short_id
from ngcdl.errors import DigestMismatch, NgcdlError, RateLimited, RegistryAnswer, RegistryUnreachable

if TYPE_CHECKING:
    from ngcdl.registry.wire import Stream

TRIES = 5  # as Docker does: https://docs.docker.com/reference/cli/dockerd/#daemon-configuration-file
PROGRESS_BYTES = 1 << 20  # if this much arrives between two faults, the count of tries starts again
CHUNK_BYTES = 1 << 20
PATIENCE_SECONDS = 300.0  # the longest wait that a registry may ask for
LOOK_SECONDS = 0.1  # between two looks at the size of a file that another process fetches
# Errors after which a retry may succeed: the connection was cut, the registry is silent or overloaded. Others, such as
# a refusal or a missing blob, are final.
_PASSING = (RegistryUnreachable, RegistryAnswer, RateLimited)

Sleep = Callable[[float], object]
Patient = Callable[[NgcdlError, float], object]
Open = Callable[[int], "Stream"]  # from the byte of that number on, or from an earlier one


class FolderTrouble(Exception):
    """The blobs' folder can't be written (any more). Not for users: the engine may still pull by itself."""


class Stopped(Exception):
    """Nobody wants the blob any longer. Not for users."""


class Blob:
    """One layer or configuration. Many threads may read a blob while one fills it. Close it when all have ended."""

    def __init__(
        self, folder: Path, digest: str, size_bytes: int, patient: Patient = lambda _error, _seconds: None
    ) -> None:
        """Open the part of the blob that is on this disk, or an empty file. Raise FolderTrouble.

        Before a wait that the registry has asked for, `patient` is called with its error and the seconds to wait.
        """
        self._patient = patient
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

    def event(self) -> PullEvent:
        """Return how much of the blob is here, as an engine's pull would report it."""
        status = "Download complete" if self.is_whole else "Downloading"
        return PullEvent(short_id(self.digest), status, self._have, self.size_bytes)

    def _open(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            return os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        return os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    # -- filling ----------------------------------------------------------------------------------------------------

    def fill(self, open_at: Open, sleep: Sleep = time.sleep, grown: Callable[[], object] = lambda: None) -> None:
        """Complete the blob: from disk, from another ngcdl's download, or with `open_at` from the first missing byte.

        Call `grown` after each piece. Raise the registry's errors, DigestMismatch, FolderTrouble or Stopped.
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
        """Tell all readers that the rest of the blob will not come."""
        with self._changed:
            self.failure = error
            self._changed.notify_all()

    def _is_checked(self) -> bool:
        """Return whether some process has verified the file.

        The file then has its final name, or no name, because that process's engine has the layer and the file was
        removed.
        """
        about = os.fstat(self._file)
        return about.st_size == self.size_bytes and (about.st_nlink == 0 or _is_at(self._path, about))

    def _lock(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    def _settle(self, open_at: Open, sleep: Sleep, grown: Callable[[], object]) -> None:
        """With the lock held: check what other processes did to the file meanwhile, and do what remains to be done."""
        about = os.fstat(self._file)
        if self._is_checked():
            self._become_whole()
        elif _is_at(self._path, about):
            self._path.unlink()  # the file system lost a part of it
            self._reopen()
        elif about.st_nlink == 0 or self._path.exists():
            self._reopen()  # swept or found corrupt; or completed since we opened it
        else:
            try:
                self._fetch(open_at, sleep, grown)
            except BaseException:
                fcntl.flock(self._file, fcntl.LOCK_UN)
                raise

    def _reopen(self) -> None:
        """Replace the file descriptor's file by the one that has the blob's name now."""
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
            # An earlier download's part may be to blame: after a power cut it may hold zeros. Retry once, from scratch.
            checksum = self._checksum(self._empty())
            self._download(open_at, checksum, sleep, grown)
        if not self._is_right(checksum):
            self._empty()
            self._part.unlink(missing_ok=True)
            raise DigestMismatch(f"the layer {self.digest} hashes to {checksum.hexdigest()}")
        self._part.rename(self._path)
        self._become_whole()

    def _checksum(self, have: int) -> Any:
        """Hash the first `have` bytes of the file, which an earlier download left."""
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
        """Truncate the file for every process that has it open: its bytes are wrong."""
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
                sleep(self._pause(error, 2.0 ** (tries - 1)))

    def _pause(self, error: RegistryUnreachable | RegistryAnswer | RateLimited, usual_seconds: float) -> float:
        """Return the seconds until the next try: as many as the registry asks for, within PATIENCE_SECONDS."""
        asked = None if isinstance(error, RegistryUnreachable) else error.seconds
        if asked is None or asked <= usual_seconds:
            return usual_seconds
        seconds = min(asked, PATIENCE_SECONDS)
        self._patient(error, seconds)
        return seconds

    def _once(self, open_at: Open, checksum: Any, grown: Callable[[], object]) -> None:
        """Send one request, and keep what arrives. It needs no If-Range, because the checksum names the content. What
        has another length, such as a proxy's page, is not kept: the download would only be known to be wrong at its
        end."""
        with contextlib.closing(open_at(self._have)) as body:
            if body.whole_bytes not in (None, self.size_bytes):
                what = f"it sends {body.whole_bytes:,} bytes where {self.size_bytes:,} belong."
                raise RegistryAnswer(body.host, what)
            skip = self._have - body.start  # bytes that are here already and arrive again
            if skip < 0:
                raise RegistryAnswer(body.host, f"it sends byte {body.start} on where {self._have} was requested.")
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
        self._go_on()  # last, so that what has arrived is kept even on Stopped

    def _grow(self, have: int) -> None:
        with self._changed:
            self._have = min(have, self.size_bytes)
            self._changed.notify_all()

    # -- reading ----------------------------------------------------------------------------------------------------

    def read(self) -> bytes:
        """Return the content of a complete blob. Only for configurations, which are small."""
        return os.pread(self._file, self.size_bytes, 0)

    def arriving(self, position: int) -> Generator[tuple[int, int, int]]:
        """Yield (file, from, to) repeatedly: a descriptor to read from, and the range of newly arrived bytes.

        Raise Stopped if the rest will not arrive. If a range can't be read in full, the file was truncated.
        """
        file = None
        try:
            while position < self.size_bytes:
                there = self._after(position)
                # Not before bytes have arrived: until then, fill() may switch to another file of the blob's name.
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
        """Wait until more than `position` bytes are here, and return the number of bytes that are."""
        with self._changed:
            while self._have <= position:
                if self.failure is not None or self._is_closed:
                    raise Stopped
                self._changed.wait()
            return self._have

    def until_whole(self) -> None:
        """Wait until the blob is complete and verified. Raise Stopped if it will not be."""
        with self._changed:
            while not self.is_whole:
                if self.failure is not None or self._is_closed:
                    raise Stopped
                self._changed.wait()

    # -- the end ----------------------------------------------------------------------------------------------------

    def close(self, keep: bool = True) -> None:
        """Release the file; harmless twice. Without `keep`, remove it unless another process still needs it."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed, self._is_kept = True, keep
            self._changed.notify_all()
            self._release()

    def _release(self) -> None:
        if self._is_filled_now or not self._is_closed:  # a thread that still fills the blob releases it
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
