"""An image that was built on this engine, by its name in Docker's list: run and check accept it and ask no registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker_socket import Daemon, serving
from house import House
from ngc_server import NgcServer
from ngc_server import serving as serving_ngc

ID = "sha256:" + "1" * 64
MINE = "docker.io/library/mine:latest"
HELD = {"Id": ID, "Architecture": "amd64", "Config": {"Env": ["CUDA_VERSION=12.4.1.003"]}}
HOST = ("--host", "driver=575.57.08,gpu=H100")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A Docker with an image that was built there."""
    with serving(Daemon(tmp_path / "d.sock", images={MINE: HELD, ID: HELD})) as one:
        yield one


@pytest.fixture
def env(daemon: Daemon) -> dict[str, str]:
    return {"DOCKER_HOST": daemon.host, "NGCDL_REGISTRY": "127.0.0.1:1"}


def test_run_plans_with_it_and_says_whose_it_is_once(house: House, env: dict[str, str]) -> None:
    done = house.run("run", "mine", "--dry-run", "--", "python", "train.py", env=env)
    assert done.returncode == 0, done.stderr
    assert f"\n    {MINE} python train.py\n" in done.stdout
    assert done.stderr.count("mine: this engine's own image") == 1


def test_a_pull_of_it_has_nothing_to_do(house: House, env: dict[str, str]) -> None:
    done = house.run("pull", "mine", env=env)
    assert (done.returncode, done.stdout) == (0, "mine\n")
    assert done.stderr == "ngcdl: mine: this engine's own image, so there is nothing to pull\n"


def test_a_name_that_the_engine_lacks_is_still_the_registry_s(house: House, env: dict[str, str]) -> None:
    done = house.run("run", "mine:v2", "--dry-run", "--", "python", "train.py", env=env)
    assert "\n    127.0.0.1:1/nvidia/mine:v2 python train.py\n" in done.stdout
    assert "own image" not in done.stderr


def test_a_name_that_neither_the_engine_nor_the_registry_has_may_be_an_image_to_build(
    house: House, daemon: Daemon
) -> None:
    ngc = NgcServer(gated={"nvidia/mine"})
    with serving_ngc(ngc):
        env = {"DOCKER_HOST": daemon.host, "NGCDL_REGISTRY": ngc.host}
        done = house.run("run", "mine:v2", "--", "python", "train.py", env=env)
        pulled = house.run("pull", "mine:v2", env=env)
        theirs = house.run("run", "nvidia/mine:v2", "--", "python", "train.py", env=env)
    assert done.returncode == 125
    assert f"ngcdl: Docker has no image mine:v2 here, and {ngc.host} serves nvidia/mine only to users" in done.stderr
    assert "  If it is your own, build it:\n      docker build -t mine:v2 .\n" in done.stderr
    assert "docker build" not in theirs.stderr
    assert "docker build" not in pulled.stderr


def test_check_judges_it_by_its_own_configuration(house: House, env: dict[str, str]) -> None:
    for host, verdict in ((HOST, "runs"), (("--host", "driver=470.82.01,gpu=GTX 1080 Ti"), "no")):
        done = house.run("check", "mine", *host, "--json", env=env)
        said = json.loads(done.stdout)
        assert (said["image"], said["verdict"], said["known_from"], said["digest"], said["requests"]) == (
            MINE, verdict, "engine", None, 0,
        )  # fmt: skip
        assert done.stderr == "ngcdl: mine: this engine's own image\n"
    text = house.run("check", "mine", *HOST, env=env).stdout
    assert "inside       CUDA 12.4.1.003, for amd64\n" in text
    assert "known from   this engine's own image\n" in text


@pytest.mark.parametrize(
    "name", ["docker.io/pytorch/pytorch:2.5.0", "ghcr.io/me/mine:1", "localhost:5000/x:1", "localhost/mine:1"]
)
def test_a_name_with_its_registry_is_what_it_says(house: House, env: dict[str, str], name: str) -> None:
    done = house.run("run", name, "--dry-run", "--", "ls", env=env)
    assert done.returncode == 0, done.stderr
    assert f"\n    {name} ls\n" in done.stdout
    assert "own image" not in done.stderr


def test_an_own_image_can_be_the_default_one(house: House, env: dict[str, str]) -> None:
    argv = ("run", "--train", "cifar10", "--engine", "docker", "--data", "synthetic", "--dry-run")
    done = house.run(*argv, env=env | {"NGCDL_DEFAULT_IMAGE": "mine"})
    assert f"\n    {MINE} python -m trainer cifar10" in done.stdout, done.stderr
