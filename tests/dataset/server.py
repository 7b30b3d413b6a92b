"""A real HTTP server on loopback that misbehaves on request: Range, cuts, pauses, wrong bytes, web pages, TLS."""

from __future__ import annotations

import re
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast


@dataclass
class Reply:
    """How one request is answered. With status 200 and `ranges`, Range is honoured as in RFC 9110."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    ranges: bool = True
    length: bool = True
    cut_after: int | None = None  # bytes of the body, then it is closed
    chunk: int = 1 << 16
    pause_seconds: float = 0  # between chunks
    stall_after: int | None = None  # bytes of the body, then silence
    go_on: threading.Event | None = None  # until it is set, the second half comes a byte at a time
    kind: str = "application/x-gzip"


class Server(ThreadingHTTPServer):
    """Answers the n-th request with replies[n], later ones with the last reply."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, *replies: Reply, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.scheme = "https" if tls else "http"
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.replies = list(replies)
        self.seen: list[dict[str, str]] = []
        self.over = threading.Event()
        self.lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}/cifar-10-binary.tar.gz"

    def stop(self) -> None:
        self.over.set()
        self.shutdown()
        self.server_close()
        self._thread.join()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay quiet when a client leaves: many tests do just that."""


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        server = cast(Server, self.server)
        with server.lock:
            reply = server.replies[min(len(server.seen), len(server.replies) - 1)]
            server.seen.append({name.lower(): value for name, value in self.headers.items()})
        body, status, extra = reply.body, reply.status, dict(reply.headers)
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if status == 200 and reply.ranges and wanted:
            start = int(wanted[1])
            if start >= len(body):
                status, body = 416, b""
                extra["Content-Range"] = f"bytes */{len(reply.body)}"
            else:
                extra["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
                status, body = 206, body[start:]
        self.send_response(status)
        self.send_header("Content-Type", reply.kind)
        if reply.length:
            self.send_header("Content-Length", str(len(body)))
        for name, value in extra.items():
            self.send_header(name, value)
        self.end_headers()
        self._send(body, reply, server)

    def _send(self, body: bytes, reply: Reply, server: Server) -> None:
        at = 0
        ends = [end for end in (reply.cut_after, reply.stall_after) if end is not None]
        until = min([len(body), *ends])
        while at < until:
            is_held = reply.go_on and at >= len(body) // 2 and not reply.go_on.wait(5)
            step = 1 if is_held else min(reply.chunk, until - at)
            self.wfile.write(body[at : at + step])
            self.wfile.flush()
            at += step
            if reply.pause_seconds and server.over.wait(reply.pause_seconds):
                return
        if reply.stall_after is not None:
            server.over.wait(60)
