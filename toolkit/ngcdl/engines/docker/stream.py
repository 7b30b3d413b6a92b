"""A container's output, from its open attachment or from the log that the engine keeps; text arrives exactly once."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from ngcdl.engines.values import Chunk

_STREAMS = {1: "stdout", 2: "stderr"}
_HEAD_BYTES = 256
_TLS = threading.Lock()  # OpenSSL can't read and write on one connection at once
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
SILENT_SECONDS = 2.0  # until the container's state is queried


def attached(attachment: Any, tty: bool, is_running: Callable[[], bool]) -> Iterator[Chunk]:
    """Yield what arrives from an open attachment until it ends. Raise Torn if it breaks off."""
    some = _reader(attachment, is_running)
    if tty:
        while data := some(65536):
            yield Chunk("stdout", data)
    else:
        yield from _frames(some)


def logged(
    client: Any, container: str, tty: bool, since: float | None = None, tail: int | None = None
) -> Iterator[Chunk]:
    """Yield the log of a container from its beginning, or from `since` (s since the epoch), or its last `tail` lines,
    and follow it.

    Raise Torn if it can't be read to its end. The SDK's own logs() does not tell the streams apart.
    https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Container/operation/ContainerLogs
    """
    import requests.exceptions
    import urllib3.exceptions

    query = {"stdout": 1, "stderr": 1, "follow": 1, **({"since": f"{since:.6f}"} if since else {})}
    if tail is not None:
        query["tail"] = tail
    address = f"{client.base_url}/v{client.api_version}/containers/{container}/logs"
    # A container may be silent for hours: only connecting has a timeout.
    try:
        with client.get(address, params=query, stream=True, timeout=(client.timeout, None)) as answer:
            answer.raise_for_status()
            if tty:
                yield from (Chunk("stdout", data) for data in answer.iter_content(None))
            else:
                yield from _frames(answer.raw.read)
    except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        raise Torn from error


class Torn(Exception):
    """The connection broke, or the engine can't read the log."""


class Shortened(Exception):
    """The log has lost its beginning (it is kept in two files of 50 MB), so what was seen can't be skipped by count."""


class Seen:
    """What has arrived on each stream: how many bytes, their beginning, and when the last ones arrived.

    The attachment passes all bytes on; the log has U+FFFD, three bytes, for each byte that is not UTF-8. If an output
    has such bytes, `beyond` therefore repeats a part of it, but loses nothing."""

    def __init__(self) -> None:
        self._bytes: dict[str, int] = {}
        self._heads: dict[str, bytes] = {}
        self.last = time.time()

    def noted(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """Pass `chunks` on, and count them as seen."""
        for chunk in chunks:
            head = self._heads.get(chunk.stream, b"")
            self._heads[chunk.stream] = head + chunk.data[: _HEAD_BYTES - len(head)]
            self._bytes[chunk.stream] = self._bytes.get(chunk.stream, 0) + len(chunk.data)
            self.last = time.time()
            yield chunk

    def beyond(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """Yield the part of `chunks` that was not seen yet. They must start at the output's beginning: if not, raise
        Shortened."""
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


def _frames(some: Callable[[int], bytes]) -> Iterator[Chunk]:
    """Yield the frames in which the engine sends output without a terminal; `some` reads at most n bytes of them. Raise
    Torn if the output ends within a frame."""
    while header := _exactly(8, some):
        kind, length = struct.unpack(">BxxxL", header)
        data = _exactly(length, some)
        if len(data) < length:
            raise Torn
        yield Chunk(_STREAMS.get(kind, "stdout"), data)


def _exactly(length: int, some: Callable[[int], bytes]) -> bytes:
    """Read `length` bytes with `some`; return b"" if the stream has ended. Raise Torn if it ends before `length`."""
    data = b""
    while len(data) < length and (more := some(length - len(data))):
        data += more
    if 0 < len(data) < length:
        raise Torn
    return data


def _reader(attachment: Any, is_running: Callable[[], bool]) -> Callable[[int], bytes]:
    """Return a function that reads at most n bytes from the open stream, b"" at its end.

    A stream can outlive its container (https://github.com/docker/docker-py/issues/3084): once it is silent for
    SILENT_SECONDS, the container's state is queried, and if it has ended, the stream is given up as long after that.
    """
    early = _read_early(attachment)
    os.set_blocking(attachment.fileno(), False)

    def some(limit: int) -> bytes:
        nonlocal early
        if early:
            data, early = early[:limit], early[limit:]
            return data
        silent_after_end = 0
        while True:
            try:
                return _read(attachment, limit)
            except _NOT_NOW:
                ready, _, _ = select.select([attachment], [], [], SILENT_SECONDS)
            except (ConnectionError, ssl.SSLError) as error:
                raise Torn from error
            if not ready:
                silent_after_end = 0 if is_running() else silent_after_end + 1
                if silent_after_end > 1:
                    return b""

    return some


def _read(attachment: Any, limit: int) -> bytes:
    if not isinstance(attachment, ssl.SSLSocket):
        return os.read(attachment.fileno(), limit)
    with _TLS:
        attachment.settimeout(0)
        return attachment.recv(limit)


def _write(attachment: Any, data: memoryview) -> int:
    if not isinstance(attachment, ssl.SSLSocket):
        return os.write(attachment.fileno(), data)
    with _TLS:
        attachment.settimeout(0)  # the SDK's own would be waited for with the lock held
        return attachment.send(data)


def _read_early(attachment: Any) -> bytes:
    """Return what was read of the stream together with the answer's header: the SDK passes on the bare socket, or the
    one of TLS, without the buffer. https://github.com/docker/docker-py/blob/7.2.0/docker/api/client.py
    (_get_raw_response_socket)"""
    answer, line = getattr(attachment, "_response", None), getattr(attachment, "_sock", attachment)
    if answer is None:
        return b""
    line.settimeout(0)  # `peek` is not to wait for more
    try:
        with _TLS:
            early: bytes = answer.raw._fp.fp.peek()
    except ssl.SSLWantReadError:
        return b""
    except (ConnectionError, ssl.SSLError) as error:
        raise Torn from error
    return early


def send(attachment: Any, data: bytes) -> None:
    """Write all of `data` to an open attachment. Raise OSError."""
    view = memoryview(data)
    while view:
        try:
            view = view[_write(attachment, view) :]
        except _NOT_NOW:
            select.select([], [attachment], [])


def shut(attachment: Any, how: int = socket.SHUT_WR) -> None:
    """Let the program at the other end find the end of its input; its output goes on, except with SHUT_RDWR."""
    with contextlib.suppress(OSError):
        # SocketIO has no shutdown(); a duplicate of its socket has.
        half = socket.socket(fileno=os.dup(attachment.fileno()))
        with half:
            half.shutdown(how)


def close(attachment: Any) -> None:
    """Close an open attachment, with its connection. The SDK keeps that in an answer that refers to the attachment, and
    the attachment to the answer: it would stay open until Python looks for such circles."""
    if answer := getattr(attachment, "_response", None):
        answer.close()
    attachment.close()
