"""Decompresses a layer while it still arrives, and limits how far tars are sent ahead of the engine's unpacking."""

from __future__ import annotations

import contextlib
import os
import threading
import zlib
from collections.abc import Iterable, Iterator

from ngcdl.pulling.blobs import Blob, Stopped

_READ_BYTES, _GIVE_BYTES = 1 << 16, 1 << 20
_GZIP = 31  # zlib's wbits for a gzip with its header: https://docs.python.org/3/library/zlib.html#zlib.decompress
_LARGEST_LEAD_BYTES = 4 << 30


class NoGzip(Exception):
    """The whole layer is not the gzip that its manifest says. Not for users: the engine accepts or refuses it as is."""


def pieces(blob: Blob) -> Iterator[bytes]:
    """Yield the tar, at most 1 MiB at a time. Raise NoGzip, or Stopped if the rest of the layer will not arrive.

    Raise Stopped also if an earlier download's part was damaged: the layer has been fetched again by then, so that the
    engine's next request succeeds.
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
    """Yield the decompressed bytes. A gzip may have several members, as those written by many threads do.

    Raise zlib.error or Stopped."""
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
        raise zlib.error("it is truncated")


def _read(blob: Blob) -> Iterator[bytes]:
    with contextlib.closing(blob.arriving(0)) as stretches:
        for file, begin, end in stretches:
            for at in range(begin, end, _READ_BYTES):
                wanted_bytes = min(_READ_BYTES, end - at)
                packed = os.pread(file, wanted_bytes, at)
                if len(packed) < wanted_bytes:  # the file was truncated: its bytes were wrong
                    raise Stopped
                yield packed


def lead_bytes() -> int:
    """Return how many bytes of tars may wait in the engine's folder to be unpacked: as many as memory easily holds.

    The engine writes tars to files and removes these once unpacked, within seconds, so that little reaches the disk.
    The kernel starts to write back at a tenth of the available memory:
    https://docs.kernel.org/admin-guide/sysctl/vm.html#dirty-background-ratio
    """
    return min(_LARGEST_LEAD_BYTES, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 16)


class Lead:
    """Holds tars back until the engine has unpacked earlier ones. `order` lists the tars in the engine's order of
    unpacking, lowest layer first.

    The lowest tar in progress is never held back, so that the engine always gets what it waits for. Other tars wait
    while those before them occupy all processors, or while more than `limit_bytes` were sent and not yet unpacked.
    If the engine asks for a tar again, it has given up its earlier request.
    """

    def __init__(self, order: Iterable[str], limit_bytes: int) -> None:
        self._order, self._limit = {digest: place for place, digest in enumerate(order)}, limit_bytes
        # One processor is left for the engine, which unpacks meanwhile.
        self._at_once = max(1, len(os.sched_getaffinity(0)) - 1)
        self._sent: dict[str, int] = {}
        self._whole: dict[str, int] = {}
        self._under_way: dict[str, object] = {}
        self._is_over = False
        self._changed = threading.Condition()

    def begin(self, digest: str) -> object:
        """Begin to send a tar; return the turn, which wait() and end() need to tell this request from a later one."""
        turn = object()
        with self._changed:
            self._sent[digest] = 0
            self._under_way[digest] = turn
            self._changed.notify_all()
        return turn

    def wait(self, digest: str, turn: object, more_bytes: int) -> None:
        """Wait until `more_bytes` more of a tar may be sent. Raise Stopped if the engine no longer waits for them."""
        with self._changed:
            self._changed.wait_for(lambda: not self._may_go_on(digest, turn) or not self._is_too_far(digest))
            if not self._may_go_on(digest, turn):
                raise Stopped
            self._sent[digest] += more_bytes

    def _may_go_on(self, digest: str, turn: object) -> bool:
        return not self._is_over and self._under_way.get(digest) is turn

    def _is_too_far(self, digest: str) -> bool:
        before = sum(self._order[other] < self._order[digest] for other in self._under_way)
        return before > 0 and (before >= self._at_once or sum(self._sent.values()) > self._limit)

    def sent_whole(self, digest: str) -> None:
        """Note that the whole tar was sent."""
        with self._changed:
            self._whole[digest] = self._sent[digest]

    def end(self, digest: str, turn: object) -> None:
        """Note that a tar is no longer being sent, whole or not."""
        with self._changed:
            if self._under_way.get(digest) is turn:
                del self._under_way[digest]
            self._changed.notify_all()

    def taken(self, digest: str) -> None:
        """Note that the engine has unpacked a tar."""
        with self._changed:
            self._sent.pop(digest, None)
            self._changed.notify_all()

    def size_bytes(self, digest: str) -> int | None:
        """Return the length of a tar that was sent whole, else None."""
        return self._whole.get(digest)

    def stop(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
