"""A stand-in for a Docker daemon: it answers ping, version, info, images, and about one container that has ended."""

from __future__ import annotations

import contextlib
import json
import os
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import unquote


@dataclass
class Daemon:
    """`images` maps names (also by digest) to inspect's output; `asked` lists every requested path.

    `state` is how the one container ended; `log` is its output as the engine sends it (None: it can't be read);
    `cuts_log` breaks the connection within it; the container stays unless the engine `can_remove` it.
    `pulled` is a pull's output, in JSON lines."""

    path: Path
    info: dict[str, Any] = field(default_factory=lambda: {"Name": os.uname().nodename, "ServerVersion": "29.1.0"})
    images: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    port: int | None = None  # of this machine, to serve it like a remote daemon
    state: dict[str, Any] | None = None
    log: bytes | None = None
    cuts_log: bool = False
    pulled: bytes = b""
    component: str = "Engine"
    can_remove: bool = True
    why_not: str = "unlinkat: device or resource busy"

    @property
    def host(self) -> str:
        return f"tcp://127.0.0.1:{self.port}" if self.port else f"unix://{self.path}"

    def answer(self, path: str) -> tuple[int, Any]:
        self.asked.append(path)
        if path.endswith("/_ping"):
            return 200, "OK"
        if path.endswith("/version"):
            said = {"ApiVersion": "1.47", "MinAPIVersion": "1.24", "Version": "29.1.0"}
            return 200, said | {"Components": [{"Name": self.component, "Version": self.info.get("ServerVersion")}]}
        if path.endswith("/info"):
            return 200, self.info
        if "/images/create?" in path:
            return 200, self.pulled
        if "/containers/json" in path:
            return 200, [{"Id": "c0ffee"}] if self.state else []
        if path.endswith("/containers/c0ffee/json"):
            return 200, {"State": self.state, "Config": {"Tty": False}}
        if "/containers/c0ffee/logs" in path:
            return (500, {"message": "the log is broken"}) if self.log is None else (200, self.log)
        name = unquote(path.partition("/images/")[2].removesuffix("/json"))
        if name in self.images:
            return 200, self.images[name]
        return 404, {"message": f"No such image: {name}"}


@contextlib.contextmanager
def serving(daemon: Daemon, over_tcp: bool = False) -> Iterator[Daemon]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:  # for http.server
            self._send(*daemon.answer(self.path))

        def do_DELETE(self) -> None:
            if not daemon.state:
                self._send(404, {"message": "No such container: c0ffee"})
            elif not daemon.can_remove:
                self._send(500, {"message": daemon.why_not})
            else:
                daemon.state = None
                self._send(204, "")

        def _send(self, code: int, content: Any) -> None:
            content = content.encode() if isinstance(content, str) else content
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if daemon.cuts_log and data == daemon.log:
                data, self.close_connection = data[: len(data) // 2], True
            self.wfile.write(data)

        do_HEAD = do_POST = do_GET  # noqa: N815

        def address_string(self) -> str:
            return "unix"

        def log_message(self, *_: object) -> None: ...

    class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        daemon_threads = True
        request_queue_size = 128  # a full one refuses at once

    class TcpServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
        daemon_threads = True

    with TcpServer(("127.0.0.1", 0), Handler) if over_tcp else Server(str(daemon.path), Handler) as server:
        daemon.port = server.server_address[1] if isinstance(server, TcpServer) else None
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield daemon
        finally:
            server.shutdown()
            thread.join()
