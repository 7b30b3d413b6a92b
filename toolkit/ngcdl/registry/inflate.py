"""The tar in a layer, while the layer still arrives, and how far that may run ahead of the engine that takes it."""

from __future__ import annotations

import contextlib
import os
import threading
import zlib
from collections.abc import Iterable, Iterator

from ngcdl.registry.blobs import Blob, Stopped

_READ_BYTES, _GIVE_BYTES = 1 << 16, 1 << 20
_GZIP = 31  # zlib's word for a gzip with its header: https://docs.python.org/3/library/zlib.html#zlib.decompress
_LARGEST_LEAD_BYTES = 4 << 30


class NoGzip(Exception):
    """The layer, whole, is not what its manifest calls it. Not for users: the engine takes it as it is, or says so."""


def pieces(blob: Blob) -> Iterator[bytes]:
    """Give the tar, at most 1 MiB at a time. Raises NoGzip, or Stopped where the rest of the layer will not come.

    Stopped, too, where a half of another day turned out to be damaged: it has come anew then, for whoever asks again.
    """
    try:
        yield from _inflated(blob)
    except zlib.error as error:
        blob.until_whole()
        try:
            for _piece in _inflated(blob):
                pass
        except zlib.error:
            raise NoGzip(f"{blob.digest}: {error}") from error
        raise Stopped from error


def _inflated(blob: Blob) -> Iterator[bytes]:
    """Raises zlib.error, or Stopped. A gzip may be several, one after the other: those that many threads packed are."""
    unpacker = zlib.decompressobj(_GZIP)
    for packed in _read(blob):
        while packed:
            if unpacker.eof:
                unpacker = zlib.decompressobj(_GZIP)
            piece = unpacker.decompress(packed, _GIVE_BYTES)
            if piece:
                yield piece
            packed = unpacker.unconsumed_tail or unpacker.unused_data
    if piece := unpacker.flush():
        yield piece
    if not unpacker.eof:
        raise zlib.error("it ends within")


def _read(blob: Blob) -> Iterator[bytes]:
    with contextlib.closing(blob.arriving(0)) as stretches:
        for file, begin, end in stretches:
            for at in range(begin, end, _READ_BYTES):
                wanted_bytes = min(_READ_BYTES, end - at)
                packed = os.pread(file, wanted_bytes, at)
                if len(packed) < wanted_bytes:  # the file was emptied: its bytes were wrong
                    raise Stopped
                yield packed


def lead_bytes() -> int:
    """How much of what the engine has not unpacked yet may lie in its folder as tars: what memory holds easily.

    It writes them to files, and takes them away when they are unpacked: within seconds, so that few reach the disk.
    The kernel begins to write at a tenth of the memory that is available:
    https://docs.kernel.org/admin-guide/sysctl/vm.html#dirty-background-ratio
    """
    return min(_LARGEST_LEAD_BYTES, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 16)


class Lead:
    """What was sent and is not taken yet. `order` are the tars, the lowest layer first, as the engine takes them.

    Of those under way the lowest is never held up: whatever the engine waits for, it gets on. Others wait while those
    before them leave them no processor, or `limit_bytes` are not taken yet. An engine that asks again has given up what
    it asked for before.
    """

    def __init__(self, order: Iterable[str], limit_bytes: int) -> None:
        self._order, self._limit = {digest: place for place, digest in enumerate(order)}, limit_bytes
        # The engine unpacks meanwhile, by one processor.
        self._at_once = max(1, len(os.sched_getaffinity(0)) - 1)
        self._sent: dict[str, int] = {}
        self._whole: dict[str, int] = {}
        self._under_way: dict[str, object] = {}
        self._is_over = False
        self._changed = threading.Condition()

    def begin(self, digest: str) -> object:
        """Send it from its beginning. What this gives, the others want."""
        turn = object()
        with self._changed:
            self._sent[digest] = 0
            self._under_way[digest] = turn
            self._changed.notify_all()
        return turn

    def wait(self, digest: str, turn: object, more_bytes: int) -> None:
        """Wait until so much more of it may be sent. Raises Stopped."""
        with self._changed:
            while self._may_go_on(digest, turn) and self._is_too_far(digest):
                self._changed.wait()
            if not self._may_go_on(digest, turn):
                raise Stopped
            self._sent[digest] += more_bytes

    def _may_go_on(self, digest: str, turn: object) -> bool:
        return not self._is_over and self._under_way.get(digest) is turn

    def _is_too_far(self, digest: str) -> bool:
        before = sum(self._order[other] < self._order[digest] for other in self._under_way)
        return before > 0 and (before >= self._at_once or sum(self._sent.values()) > self._limit)

    def is_whole(self, digest: str) -> None:
        """All of it was sent."""
        with self._changed:
            self._whole[digest] = self._sent[digest]

    def end(self, digest: str, turn: object) -> None:
        """It is not under way any more, whole or not."""
        with self._changed:
            if self._under_way.get(digest) is turn:
                del self._under_way[digest]
            self._changed.notify_all()

    def taken(self, digest: str) -> None:
        """The engine has unpacked it."""
        with self._changed:
            self._sent.pop(digest, None)
            self._changed.notify_all()

    def size_bytes(self, digest: str) -> int | None:
        """How long a tar is that was sent whole."""
        return self._whole.get(digest)

    def stop(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
