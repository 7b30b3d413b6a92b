"""A spec's request, and the docker command for people, checked against golden text.

To accept an intended change: NGCDL_WRITE_GOLDEN=1 pytest tests/engines/test_request.py, and read the diff.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ngcdl.engines.docker.reasons import reasons
from ngcdl.engines.docker.request import Terms, command_line, create_body
from ngcdl.engines.values import Order
from ngcdl.spec import GpuRequest, ImageRef, Mount, Port, RunSpec, Workload

GOLDEN = Path(__file__).parents[1] / "golden"
IMAGE = ImageRef.parse("tensorflow:18.01-py2")
TARGET = IMAGE.pinned("sha256:" + "0123456789abcdef" * 4)
TRAINING = RunSpec(
    image=IMAGE,
    command=("python", "-m", "trainer", "cifar10", "--out", "/ngcdl/run", "--data", "/ngcdl/data"),
    gpus=GpuRequest("devices", devices=("GPU-1", "GPU-2")),
    mounts=(Mount("/srv/ngcdl/trainer", "/ngcdl/trainer"), Mount("/home/me/.cache/ngcdl/cifar10", "/ngcdl/data")),
    environment=(("PYTHONUNBUFFERED", "1"),),
    user="1000:1000",
    workdir="/ngcdl",
    workload=Workload("cifar10"),
)
SHELL = RunSpec(
    image=IMAGE,
    gpus=GpuRequest("none"),
    mounts=(Mount("/home/me/a b, c", "/work dir", True), Mount("models", "/models")),
    environment=(("HF_TOKEN", "hush"), ("GREETING", "it's me")),
    ports=(Port(8888, 8888), Port(None, 6006, "::1"), Port(53, 53, protocol="udp")),
    shm_bytes=64 << 20,
    ulimits=(("stack", 1),),
    cpu_limit=1.5,
    memory_bytes=8 << 30,
    workdir="/work dir",
    tty=True,
    stdin=True,
)
ORDERS = {
    "training-runtime": (TRAINING, "runtime"),
    "training-device-request": (TRAINING, "device-request"),
    "training-cdi": (TRAINING, "cdi"),
    "shell-no-gpu": (SHELL, "none"),
}


CACHE = Path("/home/me/.cache/ngcdl/inside/nvcr.io+nvidia+tensorflow")


def order(spec: RunSpec, way: str) -> Order:
    cache = CACHE if spec.user else None
    return Order(spec, "20180216-182126-cifar10-beef", Path("/home/me/runs/x"), TARGET, way, cache=cache)


def held(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("NGCDL_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), f"tests/golden/{name}"


@pytest.mark.parametrize("name", ORDERS)
def test_the_request_is_the_golden_one(name: str) -> None:
    held(f"request-{name}.json", json.dumps(create_body(order(*ORDERS[name])), indent=1) + "\n")


@pytest.mark.parametrize("name", ORDERS)
def test_the_docker_line_is_the_golden_one_without_secrets(name: str) -> None:
    text = command_line(order(*ORDERS[name]))
    assert "hush" not in text
    held(f"docker-run-{name}.txt", text + "\n")


def test_a_share_of_a_cpu_is_asked_for_in_docker_s_billionths() -> None:
    host = create_body(order(SHELL, "none"))["HostConfig"]
    assert (host["NanoCpus"], host["Memory"]) == (1_500_000_000, 8 << 30)
    unlimited = create_body(order(TRAINING, "none"))["HostConfig"]
    assert not {"NanoCpus", "Memory"} & unlimited.keys(), "0 would do, but the record of what was asked is shorter"


@pytest.mark.parametrize("name", ORDERS)
def test_the_docker_line_is_one_that_a_shell_takes_apart_as_meant(name: str) -> None:
    spec, way = ORDERS[name]
    words = shlex.split(command_line(order(spec, way)).replace("\\\n", ""))
    at = words.index(TARGET)
    assert words[:3] == ["docker", "run", "--rm"]
    assert words[at + 1 :] == list(spec.command)
    if spec is SHELL:
        assert "--workdir=/work dir" in words
        assert 'type=bind,"source=/home/me/a b, c",target=/work dir' in words
        assert "[::1]::6006" in words


@pytest.mark.parametrize("name", ORDERS)
def test_each_flag_of_the_docker_line_that_does_not_speak_for_itself_has_a_reason(name: str) -> None:
    terms = Terms((4321,), remaps_users=True, shows_all=True, has_selinux=True)
    _, *lines, _ = command_line(order(*ORDERS[name]), terms).split(" \\\n")
    plain = re.compile(r"-it|--name |--mount |--workdir=|'--workdir=|-p |-e HF_TOKEN|-e 'GREETING=")
    unexplained = [one for one in lines if reasons(one) == "# why:"]
    assert [one for one in unexplained if not plain.match(one.strip())] == []
    title, first, *more = reasons("docker run --rm --init \\\n    -e HOMES=/x").splitlines()
    assert (title, first.split(":")[0]) == ("# why:", "#   --init")
    assert all(line.startswith("#     ") for line in more), "only that of --init"
    assert max(map(len, (first, *more))) < 80, "a terminal breaks none amid a word"


@pytest.mark.parametrize(
    ("gpus", "way", "flag"),
    [
        (GpuRequest("all"), "device-request", "--gpus all"),
        (GpuRequest("count", 2), "device-request", "--gpus 2"),
        (GpuRequest("devices", devices=("0",)), "device-request", """--gpus '"device=0"'"""),
        (GpuRequest(), "device-request", "--gpus all"),
        (GpuRequest("all"), "cdi", "--device nvidia.com/gpu=all"),
        (GpuRequest("all"), "runtime", "--runtime=nvidia"),
    ],
)
def test_each_way_has_its_flag(gpus: GpuRequest, way: str, flag: str) -> None:
    assert f" {flag} " in command_line(order(replace(TRAINING, gpus=gpus), way))


@pytest.mark.parametrize(("gpus", "way"), [(GpuRequest("none"), "runtime"), (GpuRequest("all"), "none")])
def test_without_a_gpu_the_image_s_own_wish_for_all_is_undone(gpus: GpuRequest, way: str) -> None:
    body = create_body(order(replace(TRAINING, gpus=gpus), way))
    assert "NVIDIA_VISIBLE_DEVICES=void" in body["Env"]
    assert "Runtime" not in body["HostConfig"]
    assert "DeviceRequests" not in body["HostConfig"]


def environment(gpus: GpuRequest, way: str, terms: Terms, typed: tuple[tuple[str, str], ...] = ()) -> dict[str, str]:
    body = create_body(order(replace(TRAINING, gpus=gpus, environment=typed), way), terms)
    return dict(variable.split("=", 1) for variable in body["Env"])


CARD, INDEX = GpuRequest("devices", devices=("GPU-1",)), GpuRequest("devices", devices=("0",))


@pytest.mark.parametrize("way", ["runtime", "cdi", "device-request"])
def test_where_a_container_sees_every_card_programs_in_it_are_kept_to_those_that_are_named(way: str) -> None:
    wsl = Terms(shows_all=True)
    assert environment(CARD, way, wsl)["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert "CUDA_DEVICE_ORDER" not in environment(CARD, way, wsl)
    assert environment(INDEX, way, wsl)["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"  # or 0 is the fastest card
    for terms, gpus in ((Terms(), CARD), (wsl, GpuRequest("all")), (wsl, GpuRequest())):
        assert "CUDA_VISIBLE_DEVICES" not in environment(gpus, way, terms)
    assert environment(CARD, way, wsl, (("CUDA_VISIBLE_DEVICES", ""),))["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize(
    ("described", "asked", "visible"),
    [
        ((), ["GPU-1"], None),
        (("all", "GPU-1"), ["GPU-1"], None),
        (("all",), ["all"], "GPU-1"),
        (("all", "0"), ["all"], "GPU-1"),
        (("0",), ["GPU-1"], None),  # the daemon says what it lacks
    ],
)
def test_a_card_that_cdi_does_not_describe_is_had_with_all_of_them(
    described: tuple[str, ...], asked: list[str], visible: str | None
) -> None:
    terms = Terms(cdi_devices=described)
    host = create_body(order(replace(TRAINING, gpus=CARD), "cdi"), terms)["HostConfig"]
    assert host["DeviceRequests"][0]["DeviceIDs"] == [f"nvidia.com/gpu={name}" for name in asked]
    assert environment(CARD, "cdi", terms).get("CUDA_VISIBLE_DEVICES") == visible


def test_a_mig_device_s_index_means_nothing_to_cuda_and_is_left_to_the_daemon() -> None:
    spec = replace(TRAINING, gpus=GpuRequest("devices", devices=("0:1",)))
    line = command_line(order(spec, "cdi"), Terms(cdi_devices=("all", "0")))
    assert "--device nvidia.com/gpu=0:1 " in line
    assert "CUDA_VISIBLE_DEVICES" not in line


def test_what_was_typed_wins_over_what_ngcdl_sets() -> None:
    body = create_body(order(replace(TRAINING, environment=(("HOME", "/mine"),)), "runtime"))
    assert [variable for variable in body["Env"] if variable.startswith("HOME=")] == ["HOME=/mine"]


def cached(spec: RunSpec = TRAINING, **more: Any) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Return the variables, and what is mounted at or below the folder of the caches."""
    body = create_body(replace(order(spec, "runtime"), **more))
    mounts = [mount for mount in body["HostConfig"]["Mounts"] if mount["Target"].startswith("/ngcdl/cache")]
    return dict(variable.split("=", 1) for variable in body["Env"]), mounts


def test_added_packages_are_read_only_and_their_programs_come_after_the_image_s() -> None:
    added = replace(order(TRAINING, "none"), packages=Path("/home/me/.cache/ngcdl/packages/beef/packages"))
    body = create_body(added, Terms(path="/opt/bin:/usr/bin"))
    mount = {"Type": "bind", "Source": str(added.packages), "Target": "/ngcdl/packages", "ReadOnly": True}
    assert mount in body["HostConfig"]["Mounts"]
    assert {"PYTHONUSERBASE=/ngcdl/packages", "PATH=/opt/bin:/usr/bin:/ngcdl/packages/bin"} <= set(body["Env"])
    without_path = create_body(added)["Env"]
    assert not [variable for variable in without_path if variable.startswith("PATH=")]


def test_caches_lie_in_a_folder_that_outlives_the_run_and_home_does_not() -> None:
    variables, mounts = cached()
    assert mounts == [{"Type": "bind", "Source": str(CACHE), "Target": "/ngcdl/cache", "ReadOnly": False}]
    assert (variables["HOME"], variables["XDG_CACHE_HOME"]) == ("/ngcdl/run/home", "/ngcdl/cache")
    assert variables["CUDA_CACHE_PATH"] == "/ngcdl/cache/nv"


def test_what_was_built_for_one_image_is_not_handed_to_another_of_its_repository() -> None:
    names = {"PIP_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"}
    one, other = cached()[0], cached(target=IMAGE.pinned("sha256:" + "9" * 64))[0]
    assert {name for name in one if one[name] != other[name]} == names
    assert all(other[name].startswith("/ngcdl/cache/built/" + "9" * 20 + "/") for name in names)
    planned = cached(target=str(IMAGE))[0]
    assert planned["TRITON_CACHE_DIR"] == "/ngcdl/cache/built/18.01-py2/triton"


def test_the_lock_that_a_killed_build_of_a_torch_extension_leaves_is_lost_with_the_run() -> None:
    assert cached()[0]["TORCH_EXTENSIONS_DIR"].startswith("/ngcdl/run/home/")


def test_without_such_a_folder_nothing_speaks_of_one() -> None:
    variables, mounts = cached(cache=None)
    assert mounts == []
    assert not [name for name in variables if "CACHE" in name or "/ngcdl/cache" in variables[name]]


def test_what_was_typed_wins_over_the_caches_that_ngcdl_keeps() -> None:
    typed = Mount("/mine", "/ngcdl/cache/", writable=True)
    spec = replace(TRAINING, mounts=(typed,), environment=(("CUDA_CACHE_PATH", "/tmp/nv"),))
    variables, mounts = cached(spec)
    assert [mount["Source"] for mount in mounts] == ["/mine"]
    assert (variables["CUDA_CACHE_PATH"], variables["XDG_CACHE_HOME"]) == ("/tmp/nv", "/ngcdl/cache")


def test_what_engine_and_caller_add_is_in_the_request_and_in_the_docker_line() -> None:
    terms = Terms(groups=(27, 4321), remaps_users=True)
    host = create_body(order(TRAINING, "runtime"), terms)["HostConfig"]
    assert (host["GroupAdd"], host["UsernsMode"]) == (["27", "4321"], "host")
    lines = command_line(order(TRAINING, "runtime"), terms).split(" \\\n    ")
    at = lines.index("--userns=host")
    assert lines[at : at + 4] == ["--userns=host", "--user=1000:1000", "--group-add=27", "--group-add=4321"]


def test_where_selinux_would_keep_the_caller_s_folders_from_it_a_container_has_no_labels() -> None:
    terms = Terms(has_selinux=True)
    for spec, options in ((TRAINING, ["no-new-privileges", "label=disable"]), (SHELL, ["label=disable"])):
        assert create_body(order(spec, "none"), terms)["HostConfig"]["SecurityOpt"] == options
        assert " --security-opt=label=disable " in command_line(order(spec, "none"), terms)


def test_proxies_are_in_the_request_unless_others_were_typed_and_never_in_the_docker_line() -> None:
    terms = Terms(proxies={"HTTP_PROXY": "http://me:hush@proxy", "http_proxy": "http://me:hush@proxy"})
    typed = order(replace(TRAINING, environment=(("HTTP_PROXY", "http://mine"),)), "runtime")
    asked = [variable for variable in create_body(typed, terms)["Env"] if "proxy" in variable]
    assert asked == ["http_proxy=http://me:hush@proxy"]
    assert "HTTP_PROXY=http://mine" in create_body(typed, terms)["Env"]
    assert "hush" not in command_line(typed, terms)


def test_the_image_s_entrypoint_is_never_overridden() -> None:
    assert all("Entrypoint" not in create_body(order(*one)) for one in ORDERS.values())
