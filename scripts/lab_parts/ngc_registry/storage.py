"""A client, over its Unix socket, of the plain docker-registry behind the front, which stores blobs and manifests."""

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
        """Send one request and return the response. A body is sent piece by piece, chunked if the headers say so."""
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
