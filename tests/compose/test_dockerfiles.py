"""Images that contain the trainer: built from the lab's images, and run as a user that they do not know."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker_client import Docker
from house import ROOT

BASES = {"tensorflow": "tensorflow:18.01-py2", "pytorch": "pytorch:26.07-py3"}


@pytest.fixture
def docker(lab: dict[str, Any], tmp_path: Path) -> Docker:
    client = Docker(lab, tmp_path / "docker")
    client.environment["DOCKER_BUILDKIT"] = "0"  # the classic builder, which every engine has
    client.login(lab["registry"]["key"])
    return client


@pytest.fixture(params=BASES)
def built(request: pytest.FixtureRequest, lab: dict[str, Any], docker: Docker) -> Iterator[tuple[str, str]]:
    """The names of a built image and of its base."""
    base = f"{lab['registry']['host']}/nvidia/{BASES[request.param]}"
    name = f"ngcdl-test-{request.param}:{os.getpid()}"
    file = ROOT / "containers" / request.param / "Dockerfile"
    docker("build", "-q", "-f", str(file), "--build-arg", f"BASE={base}", "-t", name, str(ROOT / "containers"))
    yield name, base
    docker("rmi", name)


@pytest.mark.lab
def test_an_image_with_the_trainer_keeps_the_bases_entrypoint_and_trains_as_anybody(
    built: tuple[str, str], docker: Docker, tmp_path: Path
) -> None:
    name, base = built
    config, below = (json.loads(docker("inspect", image))[0]["Config"] for image in built)
    assert config["Entrypoint"] == below["Entrypoint"]
    assert config["Entrypoint"]
    assert " ".join(config["Cmd"]) == "python -m trainer cifar10 --record --runs /ngcdl/runs --device gpu"
    assert config["Labels"]["org.opencontainers.image.base.name"] == base
    assert config["Labels"]["org.opencontainers.image.title"].startswith("ngcdl trainer on NVIDIA ")
    runs = tmp_path / ".local/state/ngcdl/runs"
    runs.mkdir(parents=True)
    user = 12345 if os.getuid() == 0 else os.getuid()
    if os.getuid() == 0:
        os.chown(runs, user, user)
    more = ["--device", "cpu", "--steps", "10", "--no-eval"]
    shown = docker(
        *("run", "--rm", "--init", "--user", f"{user}:{user}", "--volume", f"{runs}:/ngcdl/runs"),
        *(name, *config["Cmd"], *more),
    )
    assert "step 0, loss = " in shown
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_STATE_HOME": ""}
    done = subprocess.run(
        [sys.executable, "-m", "ngcdl", "show", "last", "--json"], env=environment, capture_output=True, text=True
    )
    run = json.loads(done.stdout)
    assert (run["status"], run["summary"]["steps"], run["image"]["reference"]) == ("finished", 10, base)
    assert {path.stat().st_uid for path in runs.rglob("*")} == {user}
    inside = docker("run", "--rm", "--entrypoint", "find", name, "/opt/ngcdl", "-name", "*.pyc")
    assert inside == ""


def test_no_dockerfile_sets_an_entrypoint_or_a_user() -> None:
    for name in BASES:
        text = (ROOT / "containers" / name / "Dockerfile").read_text()
        assert not re.search(r"^(ENTRYPOINT|USER)\b", text, re.MULTILINE), name
