"""A request to Docker, written as a service for docker compose, asks for the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ngcdl.engines.docker.compose import service
from ngcdl.engines.values import Order
from ngcdl.planning import plan
from ngcdl.spec import GpuRequest, ImageRef, Mount, Port, RunSpec, Workload

IMAGE = ImageRef.parse("nvcr.io/nvidia/pytorch:26.07-py3")
TARGET = "nvcr.io/nvidia/pytorch@sha256:" + "a" * 64
OWN = RunSpec(IMAGE, ("python", "train.py"), user="1000:1000")


def _made(spec: RunSpec, way: str = "none", *groups: int) -> dict[str, Any]:
    text = service(Order(spec, "20260707-1", Path("/runs/1"), TARGET, way), str(IMAGE), groups)
    assert text.startswith("# The run 20260707-1 of ngcdl (nvcr.io/nvidia/pytorch:26.07-py3), for docker compose.\n")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def _service(spec: RunSpec, way: str = "none", *groups: int) -> dict[str, Any]:
    (made,) = _made(spec, way, *groups)["services"].values()
    assert isinstance(made, dict)
    return made


def test_a_command_gets_the_documented_flags_and_a_folder_of_its_own() -> None:
    made = _service(OWN, "none", 27, 44)
    assert made.pop("image") == TARGET
    assert made.pop("command") == ["python", "train.py"]
    assert made.pop("volumes") == [
        {"type": "bind", "source": "${NGCDL_RUN:-./run}", "target": "/ngcdl/run", "bind": {"create_host_path": False}}
    ]
    assert made.pop("environment") == {
        "USER": "ngcdl", "LOGNAME": "ngcdl", "NGCDL_RUN": "/ngcdl/run", "HOME": "/ngcdl/run",
        "NVIDIA_VISIBLE_DEVICES": "void",
    }  # fmt: skip
    assert made == {
        "user": "${NGCDL_USER:-1000:1000}", "group_add": ["27", "44"], "shm_size": 1 << 30, "init": True,
        "ulimits": {"memlock": "${NGCDL_MEMLOCK:--1}", "stack": 67108864}, "pids_limit": 32768,
        "security_opt": ["no-new-privileges", "label=disable"], "network_mode": "bridge",
        "logging": {"driver": "json-file", "options": {"max-size": "50m", "max-file": "2"}},
        "labels": {"ngcdl.image": "nvcr.io/nvidia/pytorch:26.07-py3"},
    }  # fmt: skip


def test_each_run_is_a_project_of_its_own_with_a_name_that_compose_takes() -> None:
    assert _made(OWN)["name"] == "ngcdl-20260707-1"
    text = service(Order(OWN, "20260707-Lr.3é-a6", Path("/runs/1"), TARGET, "none"), str(IMAGE))
    assert (
        yaml.safe_load(text)["name"] == "ngcdl-20260707-lr-3--a6"
    )  # https://docs.docker.com/reference/compose-file/version-and-name/


def test_limits_ports_folders_and_volumes_are_there() -> None:
    mounts = (Mount("/home/me/x", "/work", writable=True), Mount("/d", "/data"), Mount("kept", "/kept", writable=True))
    ports = (Port.parse("127.0.0.1:8888:8888"), Port.parse("6006"))
    made = _made(replace(OWN, mounts=mounts, ports=ports, workdir="/work", cpu_limit=1.5, memory_bytes=2 << 30))
    run = made["services"]["run"]
    assert [(one["type"], one["source"], one.get("read_only", False)) for one in run["volumes"][:3]] == [
        ("bind", "/home/me/x", False), ("bind", "/d", True), ("volume", "kept", False),
    ]  # fmt: skip
    assert made["volumes"] == {"kept": {"name": "kept"}}
    assert (run["ports"], run["working_dir"]) == (["127.0.0.1:8888:8888", ":6006"], "/work")
    assert (run["cpus"], run["mem_limit"]) == (1.5, 2 << 30)


def test_a_dollar_is_one_for_compose_too_and_a_secret_is_asked_of_the_shell() -> None:
    variables = (("A", "$HOME ${B}"), ("API_KEY", "***"), ("TOKEN", "nvapi-CANARY-0123456789"))
    mounts = (Mount("/a$b", "/data"),)
    made = _service(replace(OWN, command=("sh", "-c", "echo $A"), environment=variables, mounts=mounts))
    assert made["command"] == ["sh", "-c", "echo $$A"]
    assert made["volumes"][0]["source"] == "/a$$b"
    assert made["environment"]["A"] == "$$HOME $${B}"
    assert made["environment"]["API_KEY"] == "${API_KEY:?its value was not recorded}"
    assert made["environment"]["TOKEN"] == "${TOKEN:?its value was not recorded}"


def test_a_training_is_named_like_itself_and_has_time_for_a_checkpoint() -> None:
    spec = plan.training(IMAGE, Workload("cifar10", device="cpu"), GpuRequest("none"), None, None)
    made = _made(replace(spec, user="1000:1000"))["services"]["cifar10"]
    assert made["stop_grace_period"] == "60s"
    assert made["command"][:6] == ["python", "-m", "trainer", "cifar10", "--out", "/ngcdl/run"]
    assert made["labels"] == {"ngcdl.image": str(IMAGE), "ngcdl.workload": "cifar10"}


def test_a_shell_has_its_terminal_and_the_image_s_own_command() -> None:
    made = _service(replace(OWN, command=(), tty=True, stdin=True))
    assert (made["tty"], made["stdin_open"], "command" in made) == (True, True, False)
    assert "docker compose -f FILE run --rm run\n" in service(
        Order(replace(OWN, tty=True), "1", Path("/r"), TARGET, "none"), "x"
    )


@pytest.mark.parametrize(
    ("way", "gpus", "expected"),
    [
        ("device-request", GpuRequest("count", count=2), {"driver": "nvidia", "count": 2, "capabilities": ["gpu"]}),
        ("device-request", GpuRequest("all"), {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}),
        ("runtime", GpuRequest("all"), "nvidia"),
        ("cdi", GpuRequest("devices", devices=("0", "1")), ["nvidia.com/gpu=0", "nvidia.com/gpu=1"]),
    ],
)
def test_gpus_get_in_as_they_did(way: str, gpus: GpuRequest, expected: object) -> None:
    made = _service(replace(OWN, gpus=gpus), way)
    keys = {"device-request": "deploy", "runtime": "runtime", "cdi": "devices"}
    found = made.pop(keys.pop(way))
    assert not {*keys.values()} & {*made}
    assert (found["resources"]["reservations"]["devices"] if way == "device-request" else found) == (
        [expected] if way == "device-request" else expected
    )
    assert made["environment"]["NVIDIA_VISIBLE_DEVICES"] == ("void" if way == "cdi" else "all")
