"""What the relay answers an engine: the part of the registry API that a pull needs.

https://distribution.github.io/distribution/spec/api/
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from ngcdl.pulling.blobs import Blob, Stopped
from ngcdl.pulling.inflate import NoGzip, pieces

if TYPE_CHECKING:
    from ngcdl.pulling.relay import Relay

_TLS_HANDSHAKE = b"\x16"
_RANGE = re.compile(r"bytes=(\d+)-")


def server(relay: Relay) -> ThreadingHTTPServer:
    """Bind a loopback port and return the server; it answers nothing before serve_forever()."""
    return _Server(("127.0.0.1", 0), type("_Bound", (_Handler,), {"relay": relay}))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 32

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore an engine that goes away."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    relay: Relay

    def handle(self) -> None:
        # Docker tries TLS first, and falls back to http only after an answer. Reading a request line could wait
        # forever, because a TLS handshake need not contain a line end.
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
        elif found_blob := self.relay.blob(path):
            blob, digest = found_blob
            if digest == blob.digest:
                self._blob(blob)
            else:
                self._tar(blob, digest)
        else:
            self._send(404, json.dumps({"errors": [{"code": "BLOB_UNKNOWN", "message": "not here"}]}).encode())

    do_HEAD = do_GET  # noqa: N815  # http.server's name

    def _send(self, status: int, body: bytes, kind: str = "application/json", digest: str | None = None) -> None:
        self._head(status, len(body), kind, digest)
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: int, length: int | None, kind: str, digest: str | None, *more: tuple[str, str]) -> None:
        self.send_response_only(status)
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        self.send_header("Content-Type", kind)
        if length is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length))
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        for name, value in more:
            self.send_header(name, value)
        self.end_headers()

    def _start(self) -> int:
        """Return the offset of the first byte of the requested range."""
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        return int(asked[1]) if asked else 0

    def _blob(self, blob: Blob) -> None:
        size, start = blob.size_bytes, self._start()
        start = start if start < size else 0
        more = [("Content-Range", f"bytes {start}-{size - 1}/{size}")] if start else []
        self._head(206 if start else 200, size - start, "application/octet-stream", blob.digest, *more)
        if self.command == "HEAD":
            return
        try:
            self._body(blob, start)
        except (Stopped, OSError):
            self.close_connection = True

    def _body(self, blob: Blob, position: int) -> None:
        """Send what has arrived, wait for more, and repeat: straight from the file, bypassing this process's memory."""
        with contextlib.closing(blob.arriving(position)) as stretches:
            for file, begin, end in stretches:
                while begin < end:
                    sent = os.sendfile(self.connection.fileno(), file, begin, end - begin)
                    if not sent:  # the file was truncated: its bytes were wrong
                        raise Stopped
                    begin += sent

    def _tar(self, blob: Blob, digest: str) -> None:
        """Send a layer decompressed, from its beginning. Answer a range request with an empty 200 and nothing else.

        Docker then asks for the whole layer. If the answer to its range request is not a 206, Docker neither reads nor
        closes it, so that sending a body would never end.
        """
        if self._start():
            self._head(200, 0, "application/octet-stream", digest)
            return
        self._head(200, None, "application/octet-stream", digest)
        if self.command == "HEAD":
            return
        lead = self.relay.lead
        turn = lead.begin(digest)
        try:
            for piece in pieces(blob):
                lead.wait(digest, turn, len(piece))
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            lead.sent_whole(digest)  # before the engine can report that it has unpacked the tar
            self.wfile.write(b"0\r\n\r\n")
        except NoGzip as error:
            self.relay.fail(error)
            self.close_connection = True
        except (Stopped, OSError):
            self.close_connection = True
        finally:
            lead.end(digest, turn)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the URL contains the path that serves as the password."""
