"""A Docker that has an image, and what is asked of it, for the tests of what happens before a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from docker_socket import Daemon, serving
from fakes import IMAGE

from ngcdl import settings
from ngcdl.planning.asked import Asked
from ngcdl.spec import GpuRequest, Workload
from ngcdl.storing.store import Store

DIGEST = "sha256:" + "5" * 64
NONE = GpuRequest("none")


@pytest.fixture
def config(tmp_path: Path) -> settings.Settings:
    return settings.load({"HOME": str(tmp_path)})


@pytest.fixture
def store(config: settings.Settings) -> Store:
    return Store(config.runs)


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """A Docker that has the image."""
    monkeypatch.setenv("HOME", str(tmp_path))
    one = Daemon(tmp_path / "d.sock")
    one.images[str(IMAGE)] = {"Id": "sha256:" + "1" * 64, "RepoDigests": [f"{IMAGE.name}@{DIGEST}"]}
    one.images[IMAGE.pinned(DIGEST)] = one.images[str(IMAGE)]
    with serving(one):
        monkeypatch.setenv("DOCKER_HOST", one.host)
        yield one


def training(**more: object) -> Asked:
    asked = Asked("docker", IMAGE, NONE, Workload("cifar10", data="synthetic"))
    return replace(asked, **more)  # type: ignore[arg-type]  # fields of Asked
