"""The plain docker-registry behind the front, which has the blobs and manifests: asked over its Unix socket."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterable, Iterator


class Storage:
    def __init__(self, address: str) -> None:
        self._address = address

    def ask(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: Iterable[bytes] | None = None
    ) -> http.client.HTTPResponse:
        """Send one request. A body goes in the pieces that it comes in, chunked where the headers say so."""
        headers = headers or {}
        connection = http.client.HTTPConnection("localhost", timeout=120)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(self._address)
        if body is not None and "Transfer-Encoding" in headers:
            body = _chunked(body)
        connection.request(method, path, body=body, headers=headers, encode_chunked=False)
        return connection.getresponse()

    def status(self, method: str, path: str) -> int:
        return self.ask(method, path).status


def _chunked(body: Iterable[bytes]) -> Iterator[bytes]:
    for piece in body:
        yield b"%x\r\n%s\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"
