"""Atomic file writes: the old file stays until all of the new one is written, and if that fails."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import shutil
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

DRAFT = ".ngcdl-"  # the prefix of drafts; one whose writer was killed stays until something else is written beside it
_DRAFTS = DRAFT + 16 * "[0-9a-f]"
_FRESH_SECONDS = 60.0  # a draft this new may not be locked yet


@contextmanager
def written(path: Path, mode: int = 0o600, sync: bool = True, is_new: bool = False) -> Iterator[IO[bytes]]:
    """Yield a draft beside `path` that replaces it when the block ends. Raise OSError.

    If the block or a system call fails, the draft is removed. It has `mode`, less the umask, before its first byte.
    `sync`: its bytes are on disk before the rename, so a power cut leaves the old file or the new one; sync_folder
    makes the rename durable, too. A link at `path` is replaced, not followed. `is_new`: raise FileExistsError if `path`
    exists, and leave it alone.
    """
    own = f"{DRAFT}{zlib.crc32(os.fsencode(path.name)):08x}"
    draft = path.with_name(own + os.urandom(4).hex())  # unique: two threads may write the same file
    way = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    remove_dead(path.parent, _DRAFTS)
    if is_new:  # a dead one may have gigabytes, and of two writers at once one fails anyway
        remove_dead(path.parent, f"{own}*", older_seconds=-math.inf)
    try:
        with os.fdopen(os.open(draft, way, mode), "wb") as file:
            with contextlib.suppress(OSError):  # a file system without locks: drafts there stay
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
            if not (is_new and _linked(draft, path)):  # while it is locked, so that nobody takes it for a dead one
                draft.replace(path)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def remove_dead(folder: Path, drafts: str, *, older_seconds: float = _FRESH_SECONDS, folders: bool = False) -> None:
    """Remove the files in `folder`, and with `folders` the folders, too, that match `drafts`, that nobody has locked,
    and that nobody has changed for `older_seconds`: their writers were killed. One of an import may have gigabytes."""
    with contextlib.suppress(OSError):
        for draft in folder.glob(drafts):
            # RecursionError: of folders nested a thousand deep
            with contextlib.suppress(OSError, RecursionError), _opened(draft, _way(draft)) as descriptor:
                state = os.fstat(descriptor)
                if time.time() - state.st_mtime > older_seconds:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if not stat.S_ISDIR(state.st_mode):
                        draft.unlink()
                    elif folders:
                        shutil.rmtree(draft)


@contextmanager
def kept(draft: Path) -> Iterator[None]:
    """Keep a draft, a file or folder, from being taken for a dead one while the block lasts, unless its file system has
    no locks: drafts that are left there stay."""
    with _opened(draft, _way(draft)) as descriptor:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def _way(draft: Path) -> int:
    """Return the flags by which to open a draft to lock it: a file on NFS needs to be open for writing.
    https://man7.org/linux/man-pages/man2/flock.2.html"""
    is_folder = stat.S_ISDIR(os.lstat(draft).st_mode)
    return (os.O_RDONLY | os.O_DIRECTORY if is_folder else os.O_RDWR) | os.O_NOFOLLOW | os.O_NONBLOCK


@contextmanager
def _opened(path: Path, way: int) -> Iterator[int]:
    descriptor = os.open(path, way | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _linked(draft: Path, path: Path) -> bool:
    """Link `path` to `draft`: unlike a rename, this fails if `path` exists. Return False if `path` is free, but its
    file system (FAT, exFAT) has no hard links: another file may take the name between this check and the rename. Raise
    OSError."""
    try:
        os.link(draft, path)
    except OSError as error:
        if isinstance(error, FileExistsError) or error.errno in (errno.ENOENT, errno.ENOSPC, errno.EROFS):
            raise
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
        return False
    return True


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` survive a power cut. Raise OSError as sync does."""
    with _opened(folder, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        sync(descriptor)


def sync(descriptor: int) -> None:
    """Make what was written to an open file, or the names in a folder, survive a power cut. Raise OSError, but not on a
    file system that can't do that, such as VirtualBox's shared ones for folders:
    https://github.com/torvalds/linux/blob/master/fs/sync.c (vfs_fsync_range)"""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise


def sync_all(folder: Path) -> None:
    """Bring all that was written on the file system of `folder` to its disk, faster than thousands of fsyncs would.
    os.sync waits for every file system, and for one of a network that is away without end. Raise OSError."""
    import ctypes

    with _opened(folder, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
