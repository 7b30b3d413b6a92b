"""What the engine is, by what the daemon says of itself."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ngcdl.engines.base import Order
from ngcdl.engines.docker import passwd
from ngcdl.engines.docker.engine import DockerEngine
from ngcdl.spec import GpuRequest, ImageRef, RunSpec


@dataclass
class Client:
    """A daemon that knows itself only."""

    said: dict[str, Any] = field(default_factory=dict)
    base_url: str = "http+docker://localhost"

    def info(self) -> dict[str, Any]:
        return self.said


def _engine(**said: Any) -> DockerEngine:
    return DockerEngine(Client(said))


OURS = f"{os.getuid()}:{os.getgid()}"


@pytest.mark.parametrize(("options", "user"), [
    (None, OURS), (["name=seccomp,profile=builtin"], OURS), (["name=seccomp", "name=rootless"], "0:0"),
])  # fmt: skip
def test_files_stay_the_caller_s_who_is_root_inside_a_rootless_engine(options: list[str] | None, user: str) -> None:
    assert _engine(SecurityOptions=options).caller() == user


def test_root_inside_a_rootless_engine_has_the_run_s_home_and_no_line_of_ours() -> None:
    spec = RunSpec(ImageRef.parse("tensorflow:18.01-py2"), ("true",), GpuRequest.parse("none"), user="0:0")
    body = _engine(ID="x").request(Order(spec, "id", Path("/runs/id"), "image", "none"))
    assert body["User"] == "0:0"
    assert "HOME=/ngcdl/run/home" in body["Env"]
    passwd.add_caller(None, "c0ffee", "0:0", "/ngcdl/run/home")
