"""A registry on this machine's loopback that has one image, and hands its layers on while they still arrive.

The engine pulls the layers from here, by digest, and checks them as it always does. It gets what Docker's own download
lacks: layers that outlive a killed client, tokens renewed in mid pull, patience with 429 and 5xx, and one download for
two pulls. A path of 128 random bits stands in for a password: another user of this machine can't guess it, and without
it there is nothing here. Nothing is logged, and no key comes near: it stays with `registry.client`.

dockerd takes plain http from 127.0.0.0/8 without being told to:
https://docs.docker.com/reference/cli/dockerd/#insecure-registries

What it costs beside `docker pull`, by scripts/benchmarks/pull.py: 302 MB in 12 layers, a registry on the loopback that
is a Python program itself, 2 cores shared with other work (load 3 to 6), Python 3.11, 2026-11-21; median (least..most):
    cold, line without a limit      Docker 26.1  1.31 (1.28..1.75) x, the engine's own pull by ngcdl 1.21 (1.13..1.30) x
                                    Docker 20.10 1.22 (1.10..1.39) x, the engine's own pull by ngcdl 1.14 (1.01..1.19) x
    cold, 12 MB/s each connection   Docker 26.1  0.79 (0.77..0.82) x, the engine's own pull by ngcdl 1.05 (1.05..1.06) x
    killed at 99 % of the bytes     0.4 (0.1..0.7) % travel again; with docker all of them
So each MB costs about 2 ms of a processor, which a slower line hides. More connections than Docker's three are a gain
wherever each has a limit: 3, 4, 6 and 8 of them took 1.10, 0.94, 0.79 and 0.73 x there, and without a limit 1.42, 1.38,
1.31 and 1.40 x. Six it is: eight gain little, and the registry has other guests.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol, Self

from ngcdl.registry.blobs import Blob, Body, Stopped
from ngcdl.spec import ImageRef

log = logging.getLogger(__name__)

CONNECTIONS = 6
_SHOWN_SECONDS = 0.1
_LOOK_SECONDS = 0.05  # between two looks of the server whether it shall end
_TLS_HANDSHAKE = b"\x16"
_OWN = re.compile(r"ngcdl-[0-9a-f]{32}/")
_RANGE = re.compile(r"bytes=(\d+)-")


class Source(Protocol):
    """Where blobs come from; one for each thread, as connections are not shared."""

    def open(self, repository: str, digest: str, start: int = 0) -> Body: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Offer:
    """The image: its manifest as the registry gave it, and the blobs that it names, the lowest layer first."""

    image: ImageRef  # by digest
    media_type: str
    manifest: bytes = field(repr=False)
    blobs: tuple[Blob, ...]


def is_relays(name: ImageRef) -> bool:
    """Is it a name that a relay gave, now or some day?"""
    return name.registry.startswith("127.0.0.1:") and bool(_OWN.match(name.repository))


class Relay:
    """Serves from `with` on to its end. `grown` hears of each blob as it arrives; it is called by several threads.

    `ahead` are the blobs that are fetched before the engine asks for them, `connections` at a time; the others when it
    asks. `failure` is what the registry or the disk ended it with; from then on the engine gets nothing more.
    """

    def __init__(
        self,
        offer: Offer,
        connect: Callable[[], Source],
        grown: Callable[[Blob], object],
        *,
        ahead: Iterable[Blob] | None = None,
        connections: int = CONNECTIONS,
    ) -> None:
        self.failure: Exception | None = None
        self.was_asked = False
        self._offer, self._connect, self._grown, self._connections = offer, connect, grown, connections
        self._waiting = deque(offer.blobs if ahead is None else ahead)
        self._wanted: deque[Blob] = deque()
        self._begun: set[str] = set()  # nobody has to see to these any more
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._token = f"ngcdl-{secrets.token_hex(16)}"
        self._server = _Server(("127.0.0.1", 0), type("_Bound", (_Handler,), {"relay": self}))

    @property
    def name(self) -> ImageRef:
        """What the engine pulls."""
        port = self._server.server_port
        image = self._offer.image
        return ImageRef(f"127.0.0.1:{port}", f"{self._token}/{image.repository}", None, image.digest)

    @property
    def came_bytes(self) -> int:
        """How many bytes of blobs the registry has sent."""
        return sum(blob.came_bytes for blob in self._offer.blobs)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(_LOOK_SECONDS,), daemon=True).start()
        for _connection in range(self._connections):
            threading.Thread(target=self._fetch, daemon=True).start()
        return self

    def __exit__(self, *_about: object) -> None:
        """Stop. The threads end by themselves, at the latest when the registry sends nothing for a while."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    # -- fetching ---------------------------------------------------------------------------------------------------

    def _fetch(self) -> None:
        try:
            with contextlib.closing(self._connect()) as source:
                while (blob := self._next()) is not None:
                    self._fill(blob, source)
        except Stopped:
            return
        except Exception as error:  # a thread ends here: `failure` carries it to whoever waits
            self._fail(error)

    def _next(self) -> Blob | None:
        """Wait for a blob to fetch; None at the end."""
        with self._changed:
            while not (self._wanted or self._waiting):
                if self._is_over():
                    return None
                self._changed.wait()
            if self._is_over():
                return None
            blob = (self._wanted or self._waiting).popleft()
            self._begun.add(blob.digest)
            return blob

    def _is_over(self) -> bool:
        return self._stopping.is_set() or self.failure is not None

    def _fill(self, blob: Blob, source: Source) -> None:
        shown = 0.0

        def grown() -> None:
            nonlocal shown
            if self._is_over():
                raise Stopped
            if time.monotonic() - shown > _SHOWN_SECONDS:
                shown = time.monotonic()
                self._grown(blob)

        def open_at(start: int) -> Body:
            return source.open(self._offer.image.repository, blob.digest, start)

        grown()
        blob.fill(open_at, self._stopping.wait, grown)
        self._grown(blob)

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self.failure = self.failure or error
            self._changed.notify_all()
        for blob in self._offer.blobs:
            if not blob.is_whole:
                blob.fail(error)

    def want(self, digest: str) -> Blob | None:
        """Give a blob that is fetched, or will be next; None where there is none, or no more."""
        for blob in self._offer.blobs:
            if blob.digest == digest and (blob.is_whole or not self._is_over()):
                with self._changed:
                    if digest not in self._begun:
                        with contextlib.suppress(ValueError):
                            self._waiting.remove(blob)
                        self._wanted.append(blob)
                        self._begun.add(digest)
                        self._changed.notify()
                return blob
        return None

    def manifest(self, path: str) -> tuple[str, bytes] | None:
        self.was_asked = True
        return (self._offer.media_type, self._offer.manifest) if path == self._path("manifests") else None

    def blob(self, path: str) -> Blob | None:
        folder, _, digest = path.rpartition("/")
        return self.want(digest) if folder == self._path("blobs").rpartition("/")[0] else None

    def _path(self, kind: str) -> str:
        return f"/v2/{self.name.repository}/{kind}/{self._offer.image.digest}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 32

    def handle_error(self, request: Any, client_address: Any) -> None:
        """An engine that goes away is none of ours."""


class _Handler(BaseHTTPRequestHandler):
    """The part of the registry's API that a pull needs: https://distribution.github.io/distribution/spec/api/"""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    relay: Relay

    def handle(self) -> None:
        # Docker tries TLS first, and goes on to http only when it hears that this is none: no line end may ever come.
        if self.connection.recv(1, socket.MSG_PEEK) == _TLS_HANDSHAKE:
            self.connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
            return
        super().handle()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path in ("/v2/", "/v2"):
            self._send(200, b"{}")
        elif found := self.relay.manifest(path):
            self._send(200, found[1], found[0], self.relay.name.digest)
        elif blob := self.relay.blob(path):
            self._blob(blob)
        else:
            self._send(404, json.dumps({"errors": [{"code": "BLOB_UNKNOWN", "message": "not here"}]}).encode())

    do_HEAD = do_GET  # noqa: N815  # http.server's name

    def _send(self, status: int, body: bytes, kind: str = "application/json", digest: str | None = None) -> None:
        self._head(status, len(body), kind, digest)
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: int, length: int, kind: str, digest: str | None, *more: tuple[str, str]) -> None:
        self.send_response_only(status)
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        for name, value in more:
            self.send_header(name, value)
        self.end_headers()

    def _blob(self, blob: Blob) -> None:
        size = blob.size_bytes
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        start = int(asked[1]) if asked and int(asked[1]) < size else 0
        more = [("Content-Range", f"bytes {start}-{size - 1}/{size}")] if start else []
        self._head(206 if start else 200, size - start, "application/octet-stream", blob.digest, *more)
        if self.command == "HEAD":
            return
        try:
            self._body(blob, start)
        except (Stopped, OSError):
            self.close_connection = True

    def _body(self, blob: Blob, position: int) -> None:
        """Send what is there, wait for more, send that: straight from the file, not through this process's memory."""
        file = blob.reader()
        try:
            while position < blob.size_bytes:
                there = blob.after(position)
                while position < there:
                    sent = os.sendfile(self.connection.fileno(), file, position, there - position)
                    if not sent:  # the file was emptied: its bytes were wrong
                        raise Stopped
                    position += sent
        finally:
            os.close(file)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the address holds the path that nobody else may know."""
