"""A registry, a home folder and helpers for the tests of ngcdl.registry."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ngc_server import NgcServer, serving
from registry_asker import GOOD


@pytest.fixture
def ngc() -> Iterator[NgcServer]:
    """nvcr.io on this machine, with one public image."""
    server = NgcServer()
    server.add_image("nvidia/tensorflow", "18.01-py2", environ=("CUDA_VERSION=9.0.176",))
    with serving(server):
        yield server


@pytest.fixture
def naps() -> list[float]:
    """How long a client would have slept each time, in seconds."""
    return []


@pytest.fixture
def registry(ngc: NgcServer, naps: list[float]) -> Iterator[Any]:
    """The registry, used anonymously."""
    from ngcdl.registry.client import Registry

    with Registry(ngc.host, sleep=naps.append, timeout_seconds=(20, 20)) as registry:
        yield registry


@pytest.fixture
def signed_in(ngc: NgcServer, naps: list[float]) -> Iterator[Any]:
    """The registry, used with a valid key."""
    from ngcdl.registry.client import Registry

    with Registry(ngc.host, GOOD, sleep=naps.append, timeout_seconds=(20, 20)) as registry:
        yield registry


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """The environment of a user with an empty home folder, and with helpers in bin/."""
    (tmp_path / "home").mkdir()
    (tmp_path / "bin").mkdir()
    return {"HOME": str(tmp_path / "home"), "PATH": f"{tmp_path / 'bin'}:{os.defpath}:/usr/local/bin"}


@pytest.fixture
def config(home: dict[str, str]) -> Callable[[str | bytes], Path]:
    """Return a function that writes ~/.docker/config.json and returns its path."""

    def write(content: str | bytes) -> Path:
        path = Path(home["HOME"]) / ".docker" / "config.json"
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(0o600)
        return path

    return write


@pytest.fixture
def helper(home: dict[str, str]) -> Callable[[str, str], Path]:
    """Return a function that installs docker-credential-NAME, a real program, from the text of a shell script."""

    def install(name: str, script: str) -> Path:
        path = Path(home["PATH"].split(":")[0]) / f"docker-credential-{name}"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        return path

    return install
