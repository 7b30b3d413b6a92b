"""A user without a key, and a registry with two images."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from images_asked import ENVIRON
from ngc_server import NgcServer, serving

from ngcdl.registry import wire


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that does not answer is asked again at once: tests/registry/test_wire.py looks at the pauses."""
    monkeypatch.setattr(wire, "PAUSE_SECONDS", 0.0)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without any key."""
    for name in [name for name in os.environ if name.startswith(("NGC", "XDG", "DOCKER"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home/.docker").mkdir(parents=True)
    return tmp_path / "home"


@pytest.fixture
def cache(tmp_path: Path, home: Path) -> Path:
    return tmp_path / "cache/ngcdl"


@pytest.fixture
def ngc() -> Iterator[NgcServer]:
    server = NgcServer()
    server.add_image("nvidia/tensorflow", "18.01-py2", environ=ENVIRON)
    server.add_image("nvidia/tensorflow", "25.02-tf2-py3", ("linux/amd64", "linux/arm64"), ("CUDA_VERSION=12.8.0.038",))
    with serving(server):
        yield server
