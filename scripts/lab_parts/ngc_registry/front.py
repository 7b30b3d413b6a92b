"""Request handling of the registry and of its CDN.

REQUESTS.jsonl, one line per request: t, listener (registry|cdn), method, path (no query), query_scope, status, range,
authorization (none|basic|bearer), scope (of the bearer token), fault (its kind), bytes. Never a key, a token or a
password.
"""

from __future__ import annotations

import http.client
import json
import re
import secrets
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import tokens
from answers import DENIED, Gone, Refused, Reset
from faults import CHUNK, GOOD_DAY, Fault, Faults
from storage import Storage

PATH = re.compile(r"/v2/(?P<name>.+)/(?P<kind>manifests|blobs|tags)/(?P<rest>.+)")
KINDS = {"manifests": "manifest", "blobs": "blob", "tags": "tags"}
OF_THIS_LINE = {"authorization", "connection", "transfer-encoding", "expect"}  # these headers are not forwarded


@dataclass
class Front:
    """State shared by both listeners. `port` and `cdn_port` are set once both listen."""

    storage: Storage
    tokens: tokens.Tokens
    faults: Faults
    log_file: Path
    port: int = 0
    cdn_port: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def log(self, line: dict[str, Any]) -> None:
        with self.lock, self.log_file.open("a") as log:
            log.write(json.dumps(line) + "\n")


class Handler(BaseHTTPRequestHandler):
    """One connection; `server.front` is shared by all."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # as in Go servers; else each small answer waits 40 ms for an ACK
    listener = "registry"
    server: Any

    def handle(self) -> None:
        """Answer a TLS hello as a plain Go server does: only this answer makes containerd fall back to http."""
        if self.connection.recv(1, socket.MSG_PEEK) == b"\x16":
            self.connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
            return
        super().handle()

    def handle_any(self) -> None:
        self.front: Front = self.server.front
        self.token: tokens.Token | None = None
        address = urlsplit(self.path)
        self.plain_path = address.path
        self.query = {k: v[0] for k, v in parse_qs(address.query, keep_blank_values=True).items()}
        self.authorization = self.headers.get("Authorization", "")
        self.is_writing = self.command not in ("GET", "HEAD")
        self.kind, self.name, self.sent, self.status, self.struck, self.noted = "other", "", 0, 0, False, False
        try:
            self.serve()
        except Refused as refusal:
            self.answer(refusal.status, refusal.body, refusal.headers)
        except (Gone, ConnectionError, TimeoutError) as gone:
            self.note()
            self.close_connection = True
            if isinstance(gone, Reset):
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
        finally:
            self.note()

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = handle_any  # noqa: N815  # http.server's names

    # ---- requests ----

    def serve(self) -> None:
        path = self.plain_path
        if path in ("/proxy_auth", "/token"):
            self.kind = "token"
            self.strike()
            self.give_token()
            return
        found = PATH.fullmatch(path)
        if found:
            self.kind, self.name = KINDS[found["kind"]], found["name"]
        elif path in ("/v2/", "/v2"):
            self.kind = "ping"
        else:
            raise Refused(404, '{"errors":[{"code":"NOT_FOUND","message":"no such page"}]}')
        is_redirecting = self.kind == "blob" and not self.is_writing and self.front.faults.setting("redirect_blobs")
        fault = GOOD_DAY if self.is_writing or is_redirecting else self.strike()
        self.check_token()
        if is_redirecting and self.front.storage.status("HEAD", path) == 200:
            ticket = secrets.token_hex(8)
            raise Refused(307, "", {"Location": f"http://127.0.0.2:{self.front.cdn_port}/{ticket}{path}"})
        self.forward(self.path, fault)

    def strike(self) -> Fault:
        """Apply the part of this request's fault that comes before the answer, and return the fault, which also spoils
        the body."""
        fault = self.front.faults.of(self.kind, self.plain_path)
        self.struck = fault is not None
        fault = fault or GOOD_DAY
        fault.strike(self.connection)
        return fault

    def give_token(self) -> None:
        if self.command != "GET":
            raise Refused(405, "method not allowed")
        lifetime = self.front.faults.setting("token_lifetime", 300)
        has_moved = self.plain_path == "/token"
        text = self.front.tokens.give(self.authorization, self.query.get("scope", ""), lifetime, has_moved)
        self.answer(200, text, tokens.TEXT)

    def check_token(self) -> None:
        """Let the request through, or refuse it as nvcr.io does. Raise Refused."""
        self.token = self.front.tokens.of(self.authorization)
        if self.token is None:
            has_moved = tokens.is_bearer(self.authorization) and self.front.faults.setting("realm_moves")
            raise tokens.challenge(f"http://127.0.0.1:{self.front.port}", self.name, self.is_writing, has_moved)
        tokens.check(self.token, self.name, self.is_writing)

    # ---- forwarding ----

    def forward(self, path: str, fault: Fault) -> None:
        """Forward the request to docker-registry and its answer to the client, piece by piece."""
        headers: dict[str, str] = {}
        for key, value in self.headers.items():  # docker sends one Accept header per manifest type
            if key.lower() not in OF_THIS_LINE:
                headers[key] = f"{headers[key]}, {value}" if key in headers else value
        body = None
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            body, headers["Transfer-Encoding"] = self.chunks(), "chunked"
        elif self.headers.get("Content-Length"):
            body = self.pieces(int(self.headers["Content-Length"]))
        upstream = self.front.storage.ask(self.command, path, headers, body)
        is_pushing = self.token is not None and self.token.account == "push"
        if upstream.status == 404 and self.name and not (self.is_writing or is_pushing):
            self.refuse_missing()
        self.relay(upstream, fault)

    def refuse_missing(self) -> None:
        """Raise Refused (DENIED, as nvcr.io does) if the repository does not exist."""
        if self.front.storage.status("GET", f"/v2/{self.name}/tags/list") == 404:
            raise Refused(403, DENIED)

    def relay(self, upstream: http.client.HTTPResponse, fault: Fault) -> None:
        self.status = upstream.status
        self.send_response_only(upstream.status)
        for name, value in upstream.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "www-authenticate"):
                self.send_header(name, value)
        length = upstream.getheader("Content-Length")
        if length is None and self.command != "HEAD" and upstream.status not in (204, 304):
            body = upstream.read()
            self.send_header("Content-Length", str(len(body)))
            self.note(more=len(body))
            self.end_headers()
            self.send(body)
            return
        if self.command == "HEAD" or not int(length or 0):
            self.note()
            self.end_headers()
            return
        self.end_headers()
        for piece in fault.spoil(upstream.read, self.connection):
            if self.sent + len(piece) == int(length or 0):
                self.note(more=len(piece))
            self.send(piece)

    def chunks(self) -> Iterator[bytes]:
        """Read a chunked request body."""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield from self.pieces(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass

    def pieces(self, length: int) -> Iterator[bytes]:
        while length:
            piece = self.rfile.read(min(CHUNK, length))
            if not piece:
                raise Gone
            length -= len(piece)
            yield piece

    def send(self, piece: bytes) -> None:
        self.wfile.write(piece)
        self.sent += len(piece)

    def answer(self, status: int, body: str, headers: dict[str, str]) -> None:
        """Send a short answer; since a request body may be unread, close the connection after a write."""
        data = body.encode()
        self.status = status
        if self.is_writing:
            self.close_connection = True
        try:
            self.send_response_only(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Date", self.date_time_string(time.time() + self.front.faults.setting("skew_seconds", 0)))
            if self.close_connection:
                self.send_header("Connection", "close")
            self.note(more=len(data) if self.command != "HEAD" else 0)
            self.end_headers()
            if self.command != "HEAD":
                self.send(data)
        except OSError:
            self.close_connection = True

    def note(self, more: int = 0) -> None:
        """Log this request once, before its last bytes are sent, so that a client that has the answer finds it in the
        log."""
        if self.noted:
            return
        self.noted = True
        self.front.log({
            "t": round(time.time(), 3), "listener": self.listener, "method": self.command, "path": self.plain_path,
            "query_scope": self.query.get("scope"), "status": self.status, "range": self.headers.get("Range"),
            "authorization": self.authorization.partition(" ")[0].lower() or "none",
            "scope": self.token.scope if self.token else None,
            "fault": self.kind if self.struck else None, "bytes": self.sent + more,
        })  # fmt: skip

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing to stderr: dockerd's TLS attempts would flood it."""


class CdnHandler(Handler):
    """The target of blob redirects: needs no token, and the log shows whether the client sent one anyway."""

    listener = "cdn"

    def serve(self) -> None:
        self.kind = "blob"
        path = "/v2/" + self.plain_path.partition("/v2/")[2]
        self.forward(path, self.strike())
