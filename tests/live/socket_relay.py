"""A Unix socket in front of the engine's, which can hold or cut requests at the point that a test needs."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path


class Relay:
    """Listens at `path`. `hold(pattern)` withholds matching requests; `hold_answer` forwards them, but not the answer.

    `cut` closes the open connections whose request matches; `freeze` stops forwarding anything.
    """

    def __init__(self, path: Path, engine: str) -> None:
        self.path, self._engine = path, engine.removeprefix("unix://")
        self._pattern: re.Pattern[bytes] | None = None
        self._answer_too = False
        self._open: dict[socket.socket, bytes] = {}
        self._frozen = threading.Event()
        self.held = threading.Event()
        self._closed = threading.Event()
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen(32)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"unix://{self.path}"

    def hold(self, pattern: bytes) -> None:
        self._pattern, self._answer_too = re.compile(pattern), False

    def hold_answer(self, pattern: bytes) -> None:
        self._pattern, self._answer_too = re.compile(pattern), True

    def cut(self, pattern: bytes) -> None:
        cut = [client for client, request in list(self._open.items()) if re.search(pattern, request)]
        assert cut, "no such request is open"
        for client in cut:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def freeze(self) -> None:
        self._frozen.set()

    def close(self) -> None:
        self._closed.set()
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._closed.is_set():
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        engine = socket.socket(socket.AF_UNIX)
        muted = False
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.suppress(OSError))
            stack.enter_context(client)
            stack.enter_context(engine)
            stack.callback(self._open.pop, client, None)
            engine.connect(self._engine)
            open_ends = {client: engine, engine: client}
            while open_ends and not self._closed.is_set():
                if self._frozen.wait(0):
                    self._closed.wait(0.2)
                    continue
                for source in select.select(list(open_ends), [], [], 0.2)[0]:
                    data = source.recv(65536)
                    target = open_ends[source]
                    if source is client and re.match(rb"[A-Z]+ /", data):
                        self._open[client] = data
                    if source is client and self._pattern and self._pattern.search(data):
                        muted = True
                        if self._answer_too:
                            engine.sendall(data)
                            self._await_answer(client, engine)
                        self.held.set()
                    elif not data:
                        del open_ends[source]
                        with contextlib.suppress(OSError):
                            target.shutdown(socket.SHUT_WR)
                        if source is client and muted:
                            return
                    elif not muted:
                        target.sendall(data)

    def _await_answer(self, client: socket.socket, engine: socket.socket) -> None:
        """Wait until the engine has answered, however slow its disk is. Meanwhile pass on the rest of the request: its
        body comes after its head, often in another piece, and without it the engine would wait, too."""
        while not self._closed.is_set():
            ready = select.select([client, engine], [], [], 0.2)[0]
            if engine in ready:
                return
            if client in ready:
                if not (rest := client.recv(65536)):
                    return
                engine.sendall(rest)


@contextlib.contextmanager
def relay_to(engine: str, folder: Path) -> Iterator[Relay]:
    relay = Relay(folder / "docker.sock", engine)
    try:
        yield relay
    finally:
        relay.close()
