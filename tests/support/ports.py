"""A port of this machine where nobody listens."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silent_port(host: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """Hold a port, by default any that is free, without listening: else another process may get it meanwhile, or Linux
    may connect it to itself."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((host, port))
        yield int(held.getsockname()[1])
