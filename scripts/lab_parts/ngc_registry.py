"""nvcr.io on the loopback: its token protocol, its refusals, and every fault of a bad day, in front of a plain
docker-registry.

    ngc_registry.py --upstream REGISTRY.sock --accounts ACCOUNTS.json --faults FAULTS.json --log REQUESTS.jsonl [--port
    N] [--cdn-port N] [--ready FILE]

Listens on 127.0.0.1:PORT (the registry) and 127.0.0.2:CDN_PORT (where blobs redirect to). Port 0 takes a free one;
FILE then holds both as JSON. A test that wants faults for itself starts a front of its own: all of them can share one
docker-registry. Protocol of the real one, as people have met it:
  * `/v2/...` without a valid token: 401, `Bearer
    realm="http://127.0.0.1:PORT/proxy_auth",scope="repository:NAME:pull"`, never a `service`; at `/v2/`
    itself the scope is empty. Basic straight at /v2/ is 401 too. POST at the realm is 405.
  * `/proxy_auth`: anonymous or Basic `$oauthtoken:KEY`; the answer is JSON but calls itself text/plain. An unknown or
    revoked key is 401, and so is
    the anonymous caller who asks for a repository that needs a key.
  * A key without the right, a gated repository, and a repository that does not exist: 403 DENIED at the manifest and
    at the tag list.
  * Only the pushing account may write, anywhere.
Tokens are opaque, live in memory and are forgotten when this program ends.

ACCOUNTS.json: {"keys": {KEY: "valid" | "revoked" | "no-rights"}, "push": {"user": ..., "password": ...}}

FAULTS.json (read again for each request; absent or {} is a good day):
  {KIND: FAULT or [FAULT, ...], "token_lifetime": SECONDS, "realm_moves": true, "redirect_blobs": true,
   "missing_tag_status": 403}
  KIND is token, manifest, blob, tags or ping (`/v2/`); blob faults strike where the bytes are served, so at the CDN
  when blobs redirect. Writing (push) meets no faults.
  FAULT, all of it optional and combined as one likes:
    "status": 429             answer this instead, with "body": TEXT, "content_type": "text/html",
                              "headers": {"Retry-After": "2"}
    "delay": SECONDS          wait first
    "hang": true              no answer until the client goes
    "reset": true             cut the connection with RST before any answer
    "corrupt": true           flip the first byte of the body
    "cut_after": BYTES        promise all, send so many, cut
    "stall_after": BYTES      send so many, then nothing until the client goes
    "bytes_per_second": N     send slowly
    "times": N                strike N times, counted since the file last changed; without it, always
    "match": TEXT             only where the request's path holds TEXT
    "skip": N                 let N requests through first
  "realm_moves": an invalid or expired token is answered by
  `realm="http://127.0.0.1:PORT/token",service="registry",error="invalid_token"`, where an anonymous refresh is 401 (a
  key is accepted there).

REQUESTS.jsonl, one line a request: t, listener (registry|cdn), method, path (no query), query_scope, status, range,
authorization (none|basic|bearer), scope (what the bearer's token is for), fault (its kind), bytes. Never a key, a
token or a password.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import re
import secrets
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

NEEDS_KEY = {"nvidia/tensorflow", "nvidia/pytorch", "nvidia/gated"}
GATED = {"nvidia/gated"}
DENIED = '{"errors":[{"code":"DENIED","message":"Access Denied"}]}'
UNAUTHORIZED = '{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}'
NO_TOKEN = (
    "authentication required\n"  # the body of the realm's own 401: docker shows such text behind "unauthorized: "
)
CHUNK = 256 * 1024
PATH = re.compile(r"/v2/(?P<name>.+)/(?P<kind>manifests|blobs|tags)/(?P<rest>.+)")


@dataclass
class Token:
    account: str  # anonymous, valid, no-rights or push
    scope: str
    expires: float


@dataclass
class Front:
    """What both listeners share: the settings, the tokens given out, the faults and the log."""

    upstream: str
    accounts: dict[str, Any]
    faults_file: Path
    log_file: Path
    port: int = 0
    cdn_port: int = 0
    tokens: dict[str, Token] = field(default_factory=dict)
    struck: dict[tuple[Any, ...], int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def settings(self) -> dict[str, Any]:
        try:
            return json.loads(self.faults_file.read_text() or "{}")
        except FileNotFoundError:
            return {}

    def fault(self, kind: str, path: str) -> dict[str, Any]:
        """Return the fault that strikes this request, counting it; {} on a good day."""
        faults = self.settings().get(kind) or []
        for position, fault in enumerate([faults] if isinstance(faults, dict) else faults):
            if fault.get("match", "") not in path:
                continue
            stat = self.faults_file.stat()
            with self.lock:
                key = (kind, position, stat.st_mtime_ns, stat.st_ino)
                seen = self.struck[key] = self.struck.get(key, 0) + 1
            skip = fault.get("skip", 0)
            if seen > skip and (fault.get("times") is None or seen <= skip + fault["times"]):
                return fault
        return {}

    def log(self, line: dict[str, Any]) -> None:
        with self.lock, self.log_file.open("a") as log:
            log.write(json.dumps(line) + "\n")

    def ask(self, method: str, path: str, headers: dict[str, str], body: Any = None) -> http.client.HTTPResponse:
        """Send one request to docker-registry over its Unix socket."""
        connection = http.client.HTTPConnection("localhost", timeout=120)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(self.upstream)
        connection.request(method, path, body=body, headers=headers, encode_chunked=False)
        answer = connection.getresponse()
        answer.lab_connection = connection  # type: ignore[attr-defined]  # keeps the socket open
        return answer


class Refused(Exception):
    """An answer instead of the one asked for."""

    def __init__(self, status: int, body: str, headers: dict[str, str] | None = None) -> None:
        self.status, self.body, self.headers = status, body, headers or {}


class Gone(Exception):
    """The connection was cut on purpose, or by the client."""


class Handler(BaseHTTPRequestHandler):
    """One connection; `server.front` is what it shares with the others."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # as a Go server; else each small answer waits 40 ms for an acknowledgement
    listener = "registry"
    server: Any

    def handle(self) -> None:
        """Answer TLS as a Go server without it does: containerd goes on to http only when it hears that this is it."""
        if self.connection.recv(1, socket.MSG_PEEK) == b"\x16":
            self.connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
            return
        super().handle()

    def handle_any(self) -> None:
        self.front: Front = self.server.front
        self.token: Token | None = None
        address = urlsplit(self.path)
        self.plain_path = address.path
        self.query = {k: v[0] for k, v in parse_qs(address.query, keep_blank_values=True).items()}
        self.kind, self.name, self.sent, self.status, self.struck, self.noted = "other", "", 0, 0, False, False
        try:
            self.serve()
        except Refused as refusal:
            self.answer(refusal.status, refusal.body, refusal.headers)
        except (Gone, ConnectionError, TimeoutError):
            self.close_connection = True
        finally:
            self.note()

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = handle_any  # noqa: N815  # http.server's names

    # ---- who asks for what ----

    def serve(self) -> None:
        path = self.plain_path
        if path in ("/proxy_auth", "/token"):
            self.kind = "token"
            self.strike()
            self.give_token(moved=path == "/token")
            return
        found = PATH.fullmatch(path)
        if found:
            self.name = found["name"]
            self.kind = {"manifests": "manifest", "blobs": "blob", "tags": "tags"}[found["kind"]]
        elif path in ("/v2/", "/v2"):
            self.kind = "ping"
        else:
            raise Refused(404, '{"errors":[{"code":"NOT_FOUND","message":"no such page"}]}')
        writing = self.command not in ("GET", "HEAD")
        redirecting = bool(self.kind == "blob" and not writing and self.front.settings().get("redirect_blobs"))
        fault = {} if writing or redirecting else self.strike()
        self.check_token(writing)
        if redirecting and self.front.ask("HEAD", path, {}).status == 200:
            ticket = secrets.token_hex(8)
            location = f"http://127.0.0.2:{self.front.cdn_port}/{ticket}{path}"
            raise Refused(307, "", {"Location": location})
        self.forward(self.path, fault)

    def give_token(self, moved: bool) -> None:
        if self.command != "GET":
            raise Refused(405, "method not allowed")
        account = self.basic_account()
        if account in (None, "revoked"):
            raise Refused(401, NO_TOKEN, {"Content-Type": "text/plain; charset=utf-8"})
        scope = self.query.get("scope", "")
        name = scope.split(":")[1] if scope.count(":") >= 2 else ""
        if account == "anonymous" and (moved or name in NEEDS_KEY):
            raise Refused(401, NO_TOKEN, {"Content-Type": "text/plain; charset=utf-8"})
        lifetime = self.front.settings().get("token_lifetime", 300)
        text = secrets.token_urlsafe(48)
        self.front.tokens[text] = Token(str(account), scope, time.monotonic() + lifetime)
        self.answer(
            200, json.dumps({"token": text, "expires_in": lifetime}), {"Content-Type": "text/plain; charset=utf-8"}
        )

    def basic_account(self) -> str | None:
        """Return whose key came with the request; None for a wrong one."""
        kind, _, value = self.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "basic":
            return "anonymous"
        try:
            user, _, password = base64.b64decode(value).decode().partition(":")
        except ValueError:
            return None
        push = self.front.accounts["push"]
        if (user, password) == (push["user"], push["password"]):
            return "push"
        return self.front.accounts["keys"].get(password) if user == "$oauthtoken" else None

    def check_token(self, writing: bool) -> None:
        """Let the request through, or refuse it as nvcr.io does."""
        kind, _, text = self.headers.get("Authorization", "").partition(" ")
        token = self.front.tokens.get(text) if kind.lower() == "bearer" else None
        here = f"http://127.0.0.1:{self.front.port}"
        if token is None or token.expires < time.monotonic():
            if kind.lower() == "bearer" and self.front.settings().get("realm_moves"):
                challenge = f'Bearer realm="{here}/token",service="registry",error="invalid_token"'
            else:
                scope = f"repository:{self.name}:{'pull,push' if writing else 'pull'}" if self.name else ""
                challenge = f'Bearer realm="{here}/proxy_auth",scope="{scope}"'
            raise Refused(401, UNAUTHORIZED, {"Www-Authenticate": challenge})
        self.token = token
        if not self.name or token.account == "push":
            return
        if writing or (self.name in NEEDS_KEY and token.account != "valid") or self.name in GATED:
            raise Refused(403, DENIED)

    # ---- what goes wrong ----

    def strike(self) -> dict[str, Any]:
        """Let the fault of this request happen, as far as it comes before the answer; return it for the rest."""
        fault = self.front.fault(self.kind, self.plain_path)
        self.struck = bool(fault)
        if fault.get("delay"):
            time.sleep(fault["delay"])
        if fault.get("hang"):
            self.wait_until_client_goes()
        if fault.get("reset"):
            self.note()
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            raise Gone
        if "status" in fault:
            headers = {"Content-Type": fault.get("content_type", "application/json"), **fault.get("headers", {})}
            raise Refused(fault["status"], fault.get("body", ""), headers)
        return fault

    def wait_until_client_goes(self) -> None:
        self.connection.settimeout(1)
        while True:
            try:
                if not self.connection.recv(1, socket.MSG_PEEK):
                    raise Gone
                time.sleep(1)  # the client sent more and still waits
            except TimeoutError:
                continue

    # ---- passing on ----

    def forward(self, path: str, fault: dict[str, Any]) -> None:
        """Send the request to docker-registry and its answer to the client, piece by piece."""
        dropped = {"authorization", "connection", "transfer-encoding", "expect"}
        headers: dict[str, str] = {}
        for key, value in self.headers.items():  # docker sends one Accept header for each kind of manifest
            if key.lower() not in dropped:
                headers[key] = f"{headers[key]}, {value}" if key in headers else value
        body: Any = None
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            body, headers["Transfer-Encoding"] = self.chunks(), "chunked"
        elif self.headers.get("Content-Length"):
            body = self.pieces(int(self.headers["Content-Length"]))
        upstream = self.front.ask(
            self.command, path, headers, _rechunked(body) if "Transfer-Encoding" in headers else body
        )
        pushing = self.token is not None and self.token.account == "push"
        if upstream.status == 404 and self.name and self.command in ("GET", "HEAD") and not pushing:
            self.refuse_missing()
        self.relay(upstream, fault)

    def refuse_missing(self) -> None:
        """A repository that does not exist is DENIED, as at nvcr.io; a missing tag may be."""
        tags = self.front.ask("GET", f"/v2/{self.name}/tags/list", {})
        if tags.status == 404:
            raise Refused(403, DENIED)
        status = self.front.settings().get("missing_tag_status", 404)
        if self.kind == "manifest" and status != 404:
            raise Refused(status, DENIED)

    def relay(self, upstream: http.client.HTTPResponse, fault: dict[str, Any]) -> None:
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
        limit = fault.get("cut_after", fault.get("stall_after"))
        while piece := upstream.read(
            CHUNK if not fault.get("bytes_per_second") else max(1, min(CHUNK, fault["bytes_per_second"] // 10))
        ):
            if fault.get("corrupt") and self.sent == 0:
                piece = bytes([piece[0] ^ 0xFF]) + piece[1:]
            if limit is not None and self.sent + len(piece) >= limit:
                self.send(piece[: limit - self.sent])
                if "stall_after" in fault:
                    self.wait_until_client_goes()
                raise Gone
            if self.sent + len(piece) == int(length or 0):
                self.note(more=len(piece))
            self.send(piece)
            if fault.get("bytes_per_second"):
                time.sleep(len(piece) / fault["bytes_per_second"])

    def chunks(self) -> Any:
        """Read a chunked request body."""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield from self.pieces(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass

    def pieces(self, length: int) -> Any:
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
        """Give a short answer; a request body that nobody read ends the connection."""
        data = body.encode()
        self.status = status
        if self.command not in ("GET", "HEAD"):
            self.close_connection = True
        try:
            self.send_response_only(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            if self.close_connection:
                self.send_header("Connection", "close")
            self.note(more=len(data) if self.command != "HEAD" else 0)
            self.end_headers()
            if self.command != "HEAD":
                self.send(data)
        except OSError:
            self.close_connection = True

    def note(self, more: int = 0) -> None:
        """Write this request's line, once, before its last bytes go out: whoever has the answer finds it in the log."""
        if self.noted:
            return
        self.noted = True
        kind = self.headers.get("Authorization", "").partition(" ")[0].lower()
        self.front.log({
            "t": round(time.time(), 3), "listener": self.listener, "method": self.command, "path": self.plain_path,
            "query_scope": self.query.get("scope"), "status": self.status, "range": self.headers.get("Range"),
            "authorization": kind or "none", "scope": self.token.scope if self.token else None,
            "fault": self.kind if self.struck else None, "bytes": self.sent + more,
        })  # fmt: skip

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing on stderr: dockerd's TLS attempts would fill it."""


class CdnHandler(Handler):
    """Where blobs redirect to: no token asked, and the log says whether one came all the same."""

    listener = "cdn"

    def serve(self) -> None:
        self.kind = "blob"
        path = "/v2/" + self.plain_path.partition("/v2/")[2]
        self.forward(path, self.strike())


def _rechunked(body: Any) -> Any:
    for piece in body:
        yield b"%x\r\n%s\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


def listen(address: str, port: int, handler: type[Handler], front: Front) -> ThreadingHTTPServer:
    """Bind the port, or a free one where it is taken or 0."""
    for attempt in (port, 0):
        try:
            server = ThreadingHTTPServer((address, attempt), handler)
            break
        except OSError:
            if attempt == 0:
                raise
    server.daemon_threads = True
    server.front = front  # type: ignore[attr-defined]
    return server


def main() -> None:
    parser = argparse.ArgumentParser(description="nvcr.io on the loopback")
    for name in ("upstream", "accounts", "faults", "log"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--port", type=int, default=5443)
    parser.add_argument("--cdn-port", type=int, default=5444)
    parser.add_argument("--ready")
    options = parser.parse_args()
    accounts = json.loads(Path(options.accounts).read_text())
    front = Front(options.upstream, accounts, Path(options.faults), Path(options.log))
    registry = listen("127.0.0.1", options.port, Handler, front)
    cdn = listen("127.0.0.2", options.cdn_port, CdnHandler, front)
    front.port, front.cdn_port = registry.server_address[1], cdn.server_address[1]
    threading.Thread(target=cdn.serve_forever, daemon=True).start()
    ready = json.dumps({"port": front.port, "cdn_port": front.cdn_port, "pid": os.getpid()})
    if options.ready:
        Path(options.ready + ".draft").write_text(ready)
        Path(options.ready + ".draft").replace(options.ready)
    else:
        print(ready, flush=True)
    registry.serve_forever()


if __name__ == "__main__":
    main()
