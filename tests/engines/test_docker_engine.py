"""What the engine is asked to do, and its properties as the daemon reports them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import docker
import docker.errors
import pytest
import requests.exceptions

from ngcdl.engines.base import TRAINING_GRACE_SECONDS
from ngcdl.engines.docker import passwd
from ngcdl.engines.docker.engine import DockerEngine
from ngcdl.engines.docker.job import HURRY_SECONDS, PATIENCE_SECONDS
from ngcdl.engines.values import Order
from ngcdl.errors import DiskFull, EngineHangs, EngineRefused
from ngcdl.running.signals import Interrupted
from ngcdl.spec import GpuRequest, ImageRef, Port, RunSpec, Workload


@dataclass
class Daemon:
    """A daemon with only info()."""

    said: dict[str, Any] = field(default_factory=dict)
    base_url: str = "http+docker://localhost"

    def info(self) -> dict[str, Any]:
        return self.said


@dataclass
class Maker(Daemon):
    """A daemon that creates and starts a container; `asked` has each call with its timeout."""

    timeout: float | None = 60
    asked: list[tuple[str, float | None]] = field(default_factory=list)
    body: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] | None = None

    def create_container_from_config(self, body: dict[str, Any], name: str) -> dict[str, Any]:
        self.asked.append((name, self.timeout))
        self.body = body
        return {"Id": "c0ffee", "Warnings": self.warnings}

    def get_archive(self, identity: str, path: str) -> None:
        raise docker.errors.NotFound(path)

    def attach_socket(self, identity: str, params: dict[str, int]) -> None:
        self.asked.append(("attach", self.timeout))

    def start(self, identity: str) -> None:
        self.asked.append(("start", self.timeout))

    def inspect_container(self, identity: str) -> dict[str, Any]:
        return {"State": {}}


def _engine(**said: Any) -> DockerEngine:
    return DockerEngine(Daemon(said))


def _order(user: str | None) -> Order:
    spec = RunSpec(ImageRef.parse("tensorflow:18.01-py2"), ("true",), GpuRequest.parse("none"), user=user)
    return Order(spec, "id", Path("/runs/id"), "image", "none")


def test_a_limit_that_docker_does_not_keep_is_said() -> None:
    """By a rootless engine, and by a kernel without memory control."""
    lost = "Your kernel does not support memory limit capabilities or the cgroup is not mounted. Limitation discarded."
    swap = "Your kernel does not support swap limit capabilities or the cgroup is not mounted. Memory limited without "
    started = DockerEngine(Maker(warnings=[f"{swap}swap.", lost])).start(_order(None)).started
    assert started.notes == started.news == (f"Docker said: {lost}",)
    assert DockerEngine(Maker()).start(_order(None)).started.notes == ()


@dataclass
class Publisher(Maker):
    """A daemon that has chosen a port of the host's."""

    def inspect_container(self, identity: str) -> dict[str, Any]:
        given = [{"HostIp": "127.0.0.1", "HostPort": "32769"}, {"HostIp": "::", "HostPort": "32770"}]
        return {"State": {}, "NetworkSettings": {"Ports": {"80/tcp": given, "81/tcp": given[:1]}}}


def test_a_port_that_docker_chose_is_said_and_noted() -> None:
    order = _order(None)
    ports = tuple(Port.parse(text) for text in ("127.0.0.1::80", "32769:81"))
    started = DockerEngine(Publisher()).start(replace(order, spec=replace(order.spec, ports=ports))).started
    chosen = [f"The container's port 80/tcp is published on {one}." for one in ("127.0.0.1:32769", "[::]:32770")]
    assert started.notes == started.news == tuple(chosen)
    assert DockerEngine(Publisher()).start(order).started.notes == ()


OURS = f"{os.getuid()}:{os.getgid()}"


@pytest.mark.parametrize(("options", "user"), [
    (None, OURS), (["name=seccomp,profile=builtin"], OURS), (["name=seccomp", "name=rootless"], "0:0"),
])  # fmt: skip
def test_files_stay_the_caller_s_who_is_root_inside_a_rootless_engine(options: list[str] | None, user: str) -> None:
    assert _engine(SecurityOptions=options).caller() == user


def test_root_inside_a_rootless_engine_has_the_run_s_home_and_no_line_of_ours() -> None:
    body = _engine(ID="x").request(_order("0:0"))
    assert body["User"] == "0:0"
    assert "HOME=/ngcdl/run/home" in body["Env"]
    passwd.add_caller(None, "c0ffee", "0:0")


HERE = os.uname().nodename


@pytest.mark.parametrize(
    ("user", "name", "options", "given"),
    [
        (OURS, HERE, [], ["27", "4321"]),
        (OURS, HERE, ["name=userns"], ["27", "4321"]),
        (OURS, "docker-desktop", [], None),
        ("0:0", HERE, ["name=rootless"], None),
        (None, HERE, [], None),  # --root
    ],
)
def test_a_container_has_the_caller_s_groups_where_it_runs_as_the_caller(
    monkeypatch: pytest.MonkeyPatch, user: str | None, name: str, options: list[str], given: list[str] | None
) -> None:
    monkeypatch.setattr(os, "getgroups", lambda: [4321, os.getgid(), 27, 27])
    engine = _engine(Name=name, SecurityOptions=options)
    assert engine.request(_order(user))["HostConfig"].get("GroupAdd") == given
    assert ("--group-add=4321" in engine.command_line(_order(user))) == (given is not None)


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        (None, None),
        (["name=rootless", "name=seccomp,profile=builtin"], None),
        (["name=cgroupns", "name=userns"], "host"),
    ],
)
def test_a_daemon_that_remaps_users_is_asked_to_leave_the_caller_s_as_they_are(
    options: list[str] | None, mode: str | None
) -> None:
    engine = _engine(SecurityOptions=options)
    assert engine.request(_order(OURS))["HostConfig"].get("UsernsMode") == mode
    assert ("--userns=host" in engine.command_line(_order(OURS))) == (mode is not None)


@pytest.mark.parametrize(
    ("options", "labelled"),
    [
        (None, True),
        (["name=apparmor", "name=seccomp,profile=builtin"], True),
        (["name=seccomp", "name=selinux"], False),
    ],
)
def test_only_an_engine_with_selinux_is_asked_to_leave_its_labels(options: list[str] | None, labelled: bool) -> None:
    engine = _engine(SecurityOptions=options)
    assert ("label=disable" not in engine.request(_order(OURS))["HostConfig"]["SecurityOpt"]) == labelled
    assert ("--security-opt=label=disable" not in engine.command_line(_order(OURS))) == labelled


@pytest.mark.parametrize(
    ("hook", "way"), [("nvidia-container-runtime-hook", "device-request"), ("nvidia-cdi-hook", "none")]
)
def test_the_hook_of_cdi_is_no_way_where_cdi_describes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: str, way: str
) -> None:
    monkeypatch.delenv("NGCDL_GPU_WAY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / hook).touch(mode=0o755)
    assert _engine(Name=HERE).gpu_way().name == way


def _described(folder: Path, text: str) -> DockerEngine:
    (folder / "nvidia.yaml").write_text(text)
    return _engine(Name=HERE, CDISpecDirs=[str(folder)])


def test_a_gpu_that_cdi_describes_is_a_way_and_one_that_a_text_speaks_of_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NGCDL_GPU_WAY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    engine = _described(tmp_path, "kind: nvidia.com/gpu\ndevices:\n- name: all\n- name: GPU-1\n")
    assert (engine.gpu_way().name, engine.cdi_devices) == ("cdi", ("all", "GPU-1"))
    other = _described(tmp_path, "# not nvidia.com/gpu\nkind: example.com/gpu\ndevices:\n- name: all\n")
    assert (other.gpu_way().name, other.cdi_devices) == ("none", ())
    told = _engine(DiscoveredDevices=[{"Source": "cdi", "ID": "nvidia.com/gpu=0"}])
    assert (told.gpu_way().name, told.cdi_devices) == ("cdi", ("0",))


def test_under_wsl_programs_are_kept_to_the_cards_that_were_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = GpuRequest("devices", devices=("GPU-1",))
    order = replace(_order(OURS), spec=replace(_order(OURS).spec, gpus=gpus), way="cdi")
    engine = _described(tmp_path, "kind: nvidia.com/gpu\ndevices:\n- name: GPU-1\n")
    monkeypatch.setattr("ngcdl.engines.docker.engine.DXG", tmp_path / "dxg")
    assert "CUDA_VISIBLE_DEVICES=GPU-1" not in engine.request(order)["Env"]
    (tmp_path / "dxg").touch()
    assert "CUDA_VISIBLE_DEVICES=GPU-1" in engine.request(order)["Env"]
    far = DockerEngine(Daemon({}, "http://far:2375"))
    assert "CUDA_VISIBLE_DEVICES=GPU-1" not in far.request(order)["Env"]


SNAP = {"DockerRootDir": "/var/snap/docker/common/var-lib-docker"}


def test_docker_from_snap_starts_containers_without_what_its_confinement_forbids() -> None:
    order = _order(OURS)
    usual, confined = _engine(), _engine(**SNAP)
    assert "no-new-privileges" in usual.request(order)["HostConfig"]["SecurityOpt"]
    assert "--init" in usual.command_line(order)
    host = confined.request(order)["HostConfig"]
    assert (host["Init"], host["SecurityOpt"]) == (False, [])
    line = confined.command_line(order)
    assert line.startswith("docker run --rm \\\n")
    assert "no-new-privileges" not in line


@pytest.mark.parametrize("named", [None, "runtime"])
def test_the_toolkit_of_docker_s_snap_knows_cards_by_index(monkeypatch: pytest.MonkeyPatch, named: str | None) -> None:
    monkeypatch.delenv("NGCDL_GPU_WAY", raising=False)
    if named:
        monkeypatch.setenv("NGCDL_GPU_WAY", named)
    runtimes = {"Runtimes": {"nvidia": {}}}
    assert [_engine(**runtimes, **of).gpu_way().by_index for of in (SNAP, {})] == [True, False]


def test_only_what_may_take_minutes_has_all_the_time() -> None:
    client = Maker()
    DockerEngine(client).start(_order(OURS))
    assert client.asked == [("ngcdl-id", None), ("attach", 60), ("start", None)]
    assert client.timeout == 60


def test_a_training_s_output_is_waited_for_as_long_as_a_daemon_that_restarts_may_stop_it() -> None:
    order = _order(OURS)
    training = replace(order, spec=replace(order.spec, workload=Workload("cifar10")))
    patience = [DockerEngine(Maker()).start(each).patience_seconds for each in (order, training)]
    assert patience == [PATIENCE_SECONDS, PATIENCE_SECONDS + TRAINING_GRACE_SECONDS]


class Observed(Maker):
    """Notes what the engine says it is waiting for, at each call that may take long."""

    def see(self, engine: DockerEngine) -> list[str | None]:
        self.engine, self.seen = engine, list[str | None]()
        return self.seen

    def create_container_from_config(self, body: dict[str, Any], name: str) -> dict[str, Any]:
        self.seen.append(self.engine.waits_for)
        return super().create_container_from_config(body, name)

    def start(self, identity: str) -> None:
        self.seen.append(self.engine.waits_for)


def test_what_a_start_waits_for_can_be_told() -> None:
    client = Observed()
    engine = DockerEngine(client)
    assert engine.waits_for is None
    seen = client.see(engine)
    engine.start(_order(OURS))
    assert seen == ["the Docker engine to create the container", "the Docker engine to start the container"]


@dataclass
class Failing(Maker):
    """A daemon whose container start fails with `error`; `removed` lists what it was asked to remove."""

    error: BaseException = field(default_factory=KeyboardInterrupt)
    removed: list[str] = field(default_factory=list)

    def start(self, identity: str) -> None:
        raise self.error

    def remove_container(self, identity: str, force: bool, v: bool) -> None:
        self.removed.append(identity)


REFUSED = docker.errors.APIError("x", explanation="no such device")
SILENT = requests.exceptions.ReadTimeout("UnixHTTPConnectionPool: Read timed out. (read timeout=60)")


@pytest.mark.parametrize(("error", "removed"), [(REFUSED, ["c0ffee"]), (SILENT, []), (Interrupted(2), [])])
def test_a_failed_start_is_taken_back_by_an_engine_that_answers_and_is_not_waited_for_otherwise(
    error: BaseException, removed: list[str]
) -> None:
    client = Failing(error=error)
    with pytest.raises((EngineRefused, EngineHangs, Interrupted)):
        DockerEngine(client).start(_order(OURS))
    assert client.removed == removed


@dataclass
class Hanging(Failing):
    """A daemon whose start hangs: only its list of containers still works."""

    def containers(self, *, all: bool, filters: dict[str, str]) -> list[dict[str, str]]:
        return [{"Id": "c0ffee", "State": "created"}]

    def inspect_container(self, identity: str) -> dict[str, Any]:
        raise AssertionError("this would wait for the start")


def test_a_container_whose_start_hangs_is_found_and_its_removal_not_waited_for() -> None:
    patient, quick = Hanging(), Hanging()
    job = DockerEngine(patient, lambda: quick).find("id")
    assert job
    job.remove()
    assert (quick.removed, quick.timeout) == (["c0ffee"], HURRY_SECONDS)
    assert (patient.removed, patient.timeout) == ([], 60)


def test_a_container_has_docker_s_proxies_and_no_password_of_theirs_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = "http://me:hush@proxy:3128"
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"proxies": {"default": {"httpProxy": proxy, "noProxy": ".lan"}}}))
    client = Maker()
    engine = DockerEngine(client)
    engine.start(_order(OURS))
    wanted = {f"HTTP_PROXY={proxy}", f"http_proxy={proxy}", "NO_PROXY=.lan", "no_proxy=.lan"}
    assert {variable for variable in client.body["Env"] if "proxy=" in variable.lower()} == wanted
    shown = engine.request(_order(OURS))["Env"]
    assert {variable for variable in shown if "proxy=" in variable} == {"http_proxy=***", "no_proxy=.lan"}
    assert "proxy" not in engine.command_line(_order(OURS))


@dataclass
class Full(Maker):
    """A daemon whose disk is full."""

    def create_container_from_config(self, body: dict[str, Any], name: str) -> dict[str, Any]:
        raise docker.errors.APIError("x", explanation="mkdir /data/x: no space left on device")

    def pull(self, *_: Any, **__: Any) -> Any:
        return iter([{"error": "write /data/x: disk quota exceeded"}])


@pytest.mark.parametrize(
    ("info", "folder"),
    [
        ({"DockerRootDir": "/data/my docker"}, "'/data/my docker'"),
        (
            {"DockerRootDir": "/d", "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]},
            "/var/lib/containerd",
        ),
        ({}, "\"$(docker info --format '{{.DockerRootDir}}')\""),
    ],
)
def test_a_disk_that_is_full_is_named_by_the_engine_s_folder(info: dict[str, Any], folder: str) -> None:
    engine = DockerEngine(Full({"ID": "x", **info}))
    with pytest.raises(DiskFull) as started:
        engine.start(_order(OURS))
    with pytest.raises(DiskFull) as pulled:
        engine.pull(ImageRef.parse("tensorflow:18.01-py2"), lambda _: None)
    for error in (started.value, pulled.value):
        assert f"\n    df -h {folder}\n    df -i {folder}\n" in error.hint
        assert "/data/x: " in error.message
