"""A registry that speaks like nvcr.io, on 127.0.0.1, with every fault that a test asks for.

Real HTTP on a real port. `seen` keeps what arrived, so that a test can check who was shown a key.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

KEY = "nvapi-CANARY-c2VjcmV0LWtleQ-0123456789"
DENIED = {"errors": [{"code": "DENIED", "message": "Access Denied"}]}
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
V2 = "application/vnd.docker.distribution.manifest.v2+json"
SCHEMA_1 = "application/vnd.docker.distribution.manifest.v1+prettyjws"


def digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


@dataclass
class Fault:
    """Answer requests whose path matches with `act`, `times` times (None: always)."""

    path: str
    act: Callable[[Handler], None]
    times: int | None = None


@dataclass
class Seen:
    method: str
    path: str
    authorization: str | None
    body: bytes
    range: str | None = None


@dataclass
class NgcServer:
    """A repository in `gated` can be pulled with KEY only, one in `denied` never, any other without a key."""

    gated: set[str] = field(default_factory=lambda: {"nim/gated"})
    denied: set[str] = field(default_factory=lambda: {"nvaie/denied"})
    keys: set[str] = field(default_factory=lambda: {KEY})
    challenges: bool = True
    page: int = 1000
    expires_in: object = 300
    realm: str = ""
    token_field: str = "token"
    cdn: str = ""
    tags: dict[str, dict[str, str]] = field(default_factory=dict)
    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    expired: set[str] = field(default_factory=set)
    faults: list[Fault] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    seen: list[Seen] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    host: str = ""

    def add_image(
        self, repository: str, tag: str, platforms: tuple[str, ...] = (), environ: tuple[str, ...] = ()
    ) -> bytes:
        """Add an image, as an index if platforms are named; return the last config blob."""
        entries, config = [], b""
        for platform in platforms or ("linux/amd64",):
            system, _, architecture = platform.partition("/")
            config = json.dumps({"architecture": architecture, "os": system, "config": {"Env": list(environ)}}).encode()
            self.blobs[digest(config)] = config
            layers = [{"digest": digest(str(n).encode()), "size": n} for n in (1000, 200, 30)]
            body = json.dumps(
                {"schemaVersion": 2, "mediaType": V2, "config": {"digest": digest(config), "size": 1}, "layers": layers}
            ).encode()
            self.manifests[digest(body)] = (V2, body)
            entries.append({"digest": digest(body), "platform": {"os": system, "architecture": architecture}})
        name = digest(body)
        if platforms:
            index = json.dumps({"schemaVersion": 2, "manifests": [_attestation(), *entries]}).encode()
            name = digest(index)
            self.manifests[name] = (OCI_INDEX, index)
        self.tags.setdefault(repository, {})[tag] = name
        return config

    def fail(self, path: str, act: Callable[[Handler], None], times: int | None = None) -> None:
        self.faults.append(Fault(path, act, times))

    def fault_of(self, path: str) -> Fault | None:
        """Return the first fault for this path that has times left, which are one less then."""
        with self.lock:
            for fault in self.faults:
                if re.search(fault.path, path) and fault.times != 0:
                    fault.times = None if fault.times is None else fault.times - 1
                    return fault
        return None

    def expire(self) -> None:
        """Let every token expire."""
        self.expired |= set(self.tokens)


def _attestation() -> dict[str, Any]:
    return {"digest": digest(b"attestation"), "platform": {"os": "unknown", "architecture": "unknown"}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65536  # headers and body leave together: no 40 ms pause of Nagle and delayed ACK
    ngc: NgcServer

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        self.ngc.seen.append(
            Seen(self.command, self.path, self.headers.get("Authorization"), body, self.headers.get("Range"))
        )
        fault = self.ngc.fault_of(self.path)
        if fault:
            return fault.act(self)
        if self.path.startswith("/proxy_auth"):
            return self._token(body)
        return self._registry()

    do_POST = do_GET  # noqa: N815

    def send(self, status: int, body: bytes | dict[str, Any], **headers: str) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _token(self, body: bytes) -> None:
        form = parse_qs(body.decode())
        scope = (parse_qs(urlsplit(self.path).query).get("scope") or form.get("scope") or [""])[0]
        repository = scope.split(":")[1] if scope else ""
        key = self._key() or (form.get("refresh_token") or [None])[0]
        if key is not None and key not in self.ngc.keys:
            return self.send(401, {"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]})
        if repository in self.ngc.denied and key:
            return self.send(403, b"<html><body><h1>403 Forbidden</h1></body></html>", Content_Type="text/html")
        if repository in self.ngc.gated | self.ngc.denied and not key:
            return self.send(401, b"", Content_Type="text/plain")
        token = f"token-{len(self.ngc.tokens)}"
        self.ngc.tokens[token] = repository
        answer = {self.ngc.token_field: token, "expires_in": self.ngc.expires_in}
        return self.send(200, answer, Content_Type="text/html")

    def _key(self) -> str | None:
        scheme, _, text = (self.headers.get("Authorization") or "").partition(" ")
        if scheme != "Basic":
            return None
        username, _, key = base64.b64decode(text).decode().partition(":")
        return key if username == "$oauthtoken" else "wrong user name"

    def _registry(self) -> None:
        path = urlsplit(self.path).path
        match = re.fullmatch(r"/v2/(.+)/(tags/list|manifests/[^/]+|blobs/[^/]+)", path)
        repository = match[1] if match else ""
        scheme, _, token = (self.headers.get("Authorization") or "").partition(" ")
        if self.ngc.challenges:
            if scheme == "Bearer" and token in self.ngc.expired:
                return self._challenge(
                    'realm="https://authn.nvidia.com/token",service="registry",error="invalid_token"'
                )
            if scheme != "Bearer" or token not in self.ngc.tokens:
                scope = f"repository:{repository}:pull" if repository else ""
                realm = self.ngc.realm or f"http://{self.ngc.host}/proxy_auth"
                return self._challenge(f'realm="{realm}",scope="{scope}"')
        if path == "/v2/":
            return self.send(200, {})
        if not match:
            return self.send(404, b"<html>no page</html>", Content_Type="text/html")
        if repository not in self.ngc.tags:
            return self.send(404, {"errors": [{"code": "NAME_UNKNOWN", "message": "repository name not known"}]})
        kind, _, name = match[2].partition("/")
        return {"tags": self._tags, "manifests": self._manifest, "blobs": self._blob}[kind](repository, name)

    def _challenge(self, parameters: str) -> None:
        self.send(401, {"errors": [{"code": "UNAUTHORIZED"}]}, Www_Authenticate=f"Bearer {parameters}")

    def _tags(self, repository: str, _name: str) -> None:
        names = sorted(self.ngc.tags[repository])
        last = parse_qs(urlsplit(self.path).query).get("last", [""])[0]
        rest = [name for name in names if name > last]
        page, headers = rest[: self.ngc.page], {}
        if len(rest) > len(page):
            headers["Link"] = f'</v2/{repository}/tags/list?last={page[-1]}&n={self.ngc.page}>; rel="next"'
        self.send(200, {"name": repository, "tags": page or None}, **headers)

    def _manifest(self, repository: str, name: str) -> None:
        name = self.ngc.tags[repository].get(name, name)
        if name not in self.ngc.manifests:
            return self.send(404, {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]})
        kind, body = self.ngc.manifests[name]
        return self.send(200, body, Content_Type=kind, Docker_Content_Digest=name)

    def _blob(self, _repository: str, name: str) -> None:
        if self.ngc.cdn:
            return self.send(307, b"", Location=f"{self.ngc.cdn}/signed/{name}?X-Signature=abc%2Fdef")
        return self.send(200, self.ngc.blobs[name], Content_Type="application/octet-stream")


def html(status: int) -> Callable[[Handler], None]:
    page = b"<html><title>Sign in</title><script>var x = 1;</script><body>\x1b[31m\x07Corporate portal</body></html>"
    return lambda handler: handler.send(status, page, Content_Type="text/html")


def status(code: int, **headers: str) -> Callable[[Handler], None]:
    return lambda handler: handler.send(code, {"errors": [{"code": "TROUBLE"}]}, **headers)


def denied(handler: Handler) -> None:
    handler.send(403, DENIED)


def reset(handler: Handler) -> None:
    """Reset the connection."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.close_connection = True
    handler.connection.close()


def silent(handler: Handler) -> None:
    """Take the request and never answer."""
    handler.ngc.stopping.wait(60)
    handler.close_connection = True


def short(handler: Handler) -> None:
    """Promise more than is sent."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"tags":')
    handler.close_connection = True


@contextmanager
def serving(ngc: NgcServer, address: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> Iterator[NgcServer]:
    """Serve on a free port until the block ends."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # many tests have clients that disconnect

    server = Server((address, 0), type("Bound", (Handler,), {"ngc": ngc}))
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    ngc.host = f"{address}:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield ngc
    finally:
        ngc.stopping.set()
        server.shutdown()
        server.server_close()
        thread.join()
