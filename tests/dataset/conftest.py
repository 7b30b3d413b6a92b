"""A user, and servers that end with each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ports import silent_port

from . import small
from .host import Host
from .server import Reply, Server


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "cache")


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*replies: Reply) -> Server:
        servers.append(Server(*(replies or (Reply(small.PACKED),))))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def refused() -> Iterator[str]:
    """An address with no listener."""
    with silent_port() as port:
        yield f"http://127.0.0.1:{port}/cifar-10-binary.tar.gz"
