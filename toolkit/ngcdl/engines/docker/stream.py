"""A container's output: from its open attachment, or from the log that the engine keeps; text exactly once."""

from __future__ import annotations

import os
import select
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

from ngcdl.engines.base import Chunk

_STREAMS = {1: "stdout", 2: "stderr"}
_HEAD_BYTES = 256


def attached(attachment: Any, tty: bool, is_running: Callable[[], bool]) -> Iterator[Chunk]:
    """Yield what arrives from an open attachment until it ends. Raise Torn if it breaks off."""
    read = _reader(attachment, is_running)
    if tty:
        yield from (Chunk("stdout", data) for data in read(65536, exact=False))
        return
    for header in read(8):
        kind, length = struct.unpack(">BxxxL", header)
        for data in read(length, once=True):
            yield Chunk(_STREAMS.get(kind, "stdout"), data)


def logged(client: Any, container: str, tty: bool, since: float | None = None) -> Iterator[Chunk]:
    """Yield the log of a container from its beginning, or from `since` (s since the epoch), and follow it.

    Raise Torn if it can't be read to its end. The SDK's own logs() does not tell the streams apart.
    https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Container/operation/ContainerLogs
    """
    import requests.exceptions
    import urllib3.exceptions

    query = {"stdout": 1, "stderr": 1, "follow": 1, **({"since": f"{since:.6f}"} if since else {})}
    address = f"{client.base_url}/v{client.api_version}/containers/{container}/logs"
    # A container may be silent for hours: only connecting has a timeout.
    try:
        with client.get(address, params=query, stream=True, timeout=(client.timeout, None)) as answer:
            answer.raise_for_status()
            if tty:
                yield from (Chunk("stdout", data) for data in answer.iter_content(None))
                return
            while len(header := answer.raw.read(8)) == 8:
                kind, length = struct.unpack(">BxxxL", header)
                yield Chunk(_STREAMS.get(kind, "stdout"), answer.raw.read(length))
    except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        raise Torn from error


class Torn(Exception):
    """The connection broke, or the engine can't read the log."""


class Shortened(Exception):
    """The log has lost its beginning (it is kept in two files of 50 MB), so what was seen can't be skipped by count."""


class Seen:
    """What has arrived on each stream: how many bytes, their beginning, and when the last ones arrived.

    The attachment passes all bytes on; the log has U+FFFD, three bytes, for each one that is not UTF-8. Of an output
    with such bytes `beyond` therefore repeats some: nothing is lost."""

    def __init__(self) -> None:
        self._bytes: dict[str, int] = {}
        self._heads: dict[str, bytes] = {}
        self.last = time.time()

    def noted(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """Pass `chunks` on, and take note of them."""
        for chunk in chunks:
            head = self._heads.get(chunk.stream, b"")
            self._heads[chunk.stream] = head + chunk.data[: _HEAD_BYTES - len(head)]
            self._bytes[chunk.stream] = self._bytes.get(chunk.stream, 0) + len(chunk.data)
            self.last = time.time()
            yield chunk

    def beyond(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """Skip what was already seen of `chunks`, which start at the beginning. Raise Shortened if they do not."""
        seen, heads, at = dict(self._bytes), dict(self._heads), dict.fromkeys(self._bytes, 0)
        for chunk in chunks:
            here = at.get(chunk.stream, 0)
            known = heads.get(chunk.stream, b"")[here : here + len(chunk.data)]
            if not chunk.data.startswith(known):
                raise Shortened
            at[chunk.stream] = here + len(chunk.data)
            new = chunk.data[max(0, seen.get(chunk.stream, 0) - here) :]
            if new:
                yield Chunk(chunk.stream, new)


def _reader(attachment: Any, is_running: Callable[[], bool]) -> Any:
    """Return a function that reads from the open stream: pieces of exactly n bytes until it ends.

    A stream can outlive its container (https://github.com/docker/docker-py/issues/3084): after 2 silent seconds the
    container's state is queried, and if it has ended, the stream is given up 2 s later.
    """
    descriptor = attachment.fileno()
    os.set_blocking(descriptor, True)  # the SDK's own timeout is not meant for a stream

    def some(limit: int) -> bytes:
        silent_after_end = 0
        while True:
            ready, _, _ = select.select([descriptor], [], [], 2.0)
            if ready:
                try:
                    return os.read(descriptor, limit)
                except ConnectionError as error:
                    raise Torn from error
            if not is_running():
                silent_after_end += 1
                if silent_after_end > 1:
                    return b""

    def read(length: int, exact: bool = True, once: bool = False) -> Iterator[bytes]:
        while True:
            data = some(length)
            while data and exact and len(data) < length:
                more = some(length - len(data))
                if not more:
                    raise Torn
                data += more
            if not data and length:
                if once:  # the header had arrived
                    raise Torn
                return
            yield data
            if once:
                return

    return read
