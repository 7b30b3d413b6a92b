"""An engine that is missing, old, hanging, Podman, rootless or from snap: what is told, and what to type."""

from __future__ import annotations

from dataclasses import replace

import pytest

from doctor.sick import SICK
from doctor.sights import (
    HEALTHY,
    KERNEL,
    PROGRAMS,
    UPGRADE,
    commands,
    engine,
    found,
)
from ngcdl.doctor.chain import from_error
from ngcdl.doctor.sight import Programs, Trouble
from ngcdl.engines.values import GpuWay
from ngcdl.errors import (
    EngineAbsent,
    EngineHangs,
)


def test_without_systemd_the_engine_is_started_in_the_older_way() -> None:
    sight = replace(SICK["engine absent"], programs=Programs(frozenset({"dockerd"})))
    assert commands(found(sight)["engine"]) == ["sudo service docker start"]


RHEL = "sudo curl -fsSL -o /etc/yum.repos.d/docker-ce.repo https://download.docker.com/linux/rhel/docker-ce.repo"
CENTOS = RHEL.replace("/rhel/", "/centos/")
CE = "sudo dnf install docker-ce docker-ce-cli containerd.io"
START = "sudo systemctl enable --now docker"
ENGINES = [
    ("apt-get", ("debian",), ["sudo apt-get install docker.io"]),
    ("dnf", ("fedora",), ["sudo dnf install moby-engine", START]),
    ("dnf", ("amzn", "fedora"), ["sudo dnf install docker", START]),
    ("dnf", ("rhel", "fedora"), [RHEL, CE, START]),
    ("dnf", ("almalinux", "rhel", "centos", "fedora"), [RHEL, CE, START]),
    ("dnf", ("rocky", "rhel", "centos", "fedora"), [RHEL, CE, START]),
    ("dnf", ("centos", "rhel", "fedora"), [CENTOS, CE, START]),
    ("dnf", ("ol", "fedora"), []),  # unknown packages
    ("zypper", ("opensuse-leap", "suse", "opensuse"), ["sudo zypper install docker", START]),
    ("pacman", ("arch",), ["sudo pacman -S docker", START]),
    ("apk", ("alpine",), []),
]


@pytest.mark.parametrize(("manager", "distribution", "typed"), ENGINES)
def test_an_engine_that_is_not_installed_is_installed_as_its_distribution_has_it_and_started(
    manager: str, distribution: tuple[str, ...], typed: list[str]
) -> None:
    programs = Programs(frozenset({manager, "systemctl"}))
    kernel = replace(KERNEL, distribution=distribution)
    finding = found(replace(SICK["engine absent"], programs=programs, kernel=kernel))["engine"]
    assert (commands(finding), finding.source) == (typed, "https://docs.docker.com/engine/install/")
    without = "Without it, ngcdl run --train cifar10 and ngcdl run -- python3 train.py run on this host"
    assert finding.cause == f"It is not installed. {without}"
    programs_and_podman = replace(programs, names=programs.names | {"podman"})
    finding = found(replace(SICK["engine absent"], programs=programs_and_podman, kernel=kernel))["engine"]
    socket = "export DOCKER_HOST=unix://$XDG_RUNTIME_DIR/podman/podman.sock"
    assert commands(finding) == ["systemctl --user enable --now podman.socket", socket]
    assert [step.by_hand for step in finding.remedy] == [False, True], "only this shell can set its variable"
    of_snap = replace(engine(is_snap=True), way=GpuWay("none", ""))
    snap = found(replace(HEALTHY, engine=of_snap, programs=programs, kernel=kernel))["gpu-way"]
    instead = ["sudo snap remove docker", *typed] if typed else []
    assert commands(snap) == ["sudo snap refresh docker", *instead], "nothing is removed for nothing"
    assert all(step.by_hand for step in snap.remedy), "images, containers and volumes are lost with it"


@pytest.mark.parametrize(("manager", "distribution", "typed"), [
    ("apt-get", ("ubuntu", "debian"), [f"{UPGRADE} containerd.io", f"{UPGRADE} docker-ce"]),
    ("dnf", ("fedora",), ["sudo dnf upgrade runc", "sudo dnf upgrade moby-engine"]),
    ("dnf", ("amzn", "fedora"), ["sudo dnf upgrade runc", "sudo dnf upgrade docker"]),
    ("dnf", ("rocky", "rhel", "centos", "fedora"), ["sudo dnf upgrade containerd.io", "sudo dnf upgrade docker-ce"]),
    ("zypper", ("opensuse-leap", "suse"), ["sudo zypper update runc", "sudo zypper update docker"]),
])  # fmt: skip
def test_an_upgrade_names_the_packages_of_the_engine_that_is_installed_here(
    manager: str, distribution: tuple[str, ...], typed: list[str]
) -> None:
    sight = replace(
        HEALTHY,
        engine=engine(runc_version="1.1.11", version="28.0.0"),
        programs=replace(PROGRAMS, names=frozenset({manager, "systemctl"})),
        kernel=replace(KERNEL, distribution=distribution),
    )
    links = found(sight)
    assert commands(links["runc"]) + commands(links["docker"]) == typed


@pytest.mark.parametrize("error", [EngineHangs, None])
@pytest.mark.parametrize(("address", "typed"), [
    ("unix:///srv/docker.sock", ["sudo journalctl -u docker -n 50", "sudo systemctl restart docker"]),
    (
        "unix:///run/user/1000/docker.sock",
        ["journalctl --user -u docker -n 50", "systemctl --user restart docker"],
    ),
    ("unix:///home/me/.docker/desktop/docker.sock", []),
    ("unix:///run/user/1000/docker-gpubox.sock", []),  # a tunnel's end
    ("tcp://gpubox:2376", []),
    ("gpubox:2375", []),
    ("http+docker://ssh", []),
])  # fmt: skip
def test_only_a_daemon_of_this_machine_is_restarted_when_it_hangs(
    address: str, typed: list[str], error: type[EngineHangs] | None
) -> None:
    late = replace(HEALTHY, engine=Trouble("no answer within 12 s", is_late=True), address=address)
    trouble = Trouble("", error(address, 10) if error else None)
    finding = found(replace(HEALTHY, engine=trouble) if error else late)["engine"]
    assert (finding.state, commands(finding)) == ("broken", typed)
    assert ("where it runs" in (finding.cause or "")) == (not typed)
    if trouble.error is not None:
        assert commands(from_error("engine", trouble.error)) == typed


@pytest.mark.parametrize("variable", ["DOCKER_HOST", "DOCKER_CONTEXT"])
def test_an_address_that_a_variable_names_is_not_mended_by_a_start(variable: str) -> None:
    error = EngineAbsent("tcp://10.0.0.1:2375", "the connection was refused", is_default=False, named_by=variable)
    finding = found(replace(HEALTHY, engine=Trouble("", error), context="gone"))["engine"]
    assert [step.command for step in finding.remedy if step.command.startswith("unset")] == [f"unset {variable}"]
    assert "go back to the default. A bundled training" in (finding.cause or ""), "the commands stand apart"
    assert all(step.by_hand for step in finding.remedy)


@pytest.mark.parametrize(("version", "typed"), [
    ("Podman 4.9.3", []), ("Podman 5.6.0", ["sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"]),
])  # fmt: skip
def test_podman_is_not_told_to_register_a_runtime(version: str, typed: list[str]) -> None:
    podman = replace(engine(version=version), way=GpuWay("none", "by CDI alone", is_final=True))
    finding = found(replace(HEALTHY, engine=podman))["gpu-way"]
    assert (finding.state, finding.found, commands(finding)) == ("broken", "by CDI alone", typed)
    assert ("Update Podman" in (finding.cause or "")) is (not typed)


def test_podman_is_not_judged_by_docker_s_holes() -> None:
    links = found(replace(HEALTHY, engine=engine(version="Podman 4.3.1")))
    assert links["engine"].found.startswith("Podman 4.3.1 at ")
    assert "docker" in found(HEALTHY)
    assert "docker" not in links


def test_rootless_docker_is_configured_as_its_own_user() -> None:
    rootless = replace(engine(is_rootless=True), way=GpuWay("none", ""))
    finding = found(replace(HEALTHY, engine=rootless))["gpu-way"]
    typed = commands(finding)
    assert typed[0] == "nvidia-ctk runtime configure --runtime=docker --config=$HOME/.config/docker/daemon.json"
    (of_the_host,) = [step for step in finding.remedy if "no-cgroups" in step.command]
    assert of_the_host.by_hand, "it takes the GPUs from Docker as root: no --fix for that"
    assert typed[-1] == "systemctl --user restart docker"


def test_docker_from_snap_that_hands_over_gpus_is_left_alone_but_what_it_does_not_see_is_said() -> None:
    links = found(replace(HEALTHY, engine=engine(is_snap=True)))
    engine_s = links["engine"]
    assert (engine_s.state, engine_s.source, links["gpu-way"].state) == (
        "warning", "https://docs.docker.com/engine/install/", "ok"
    )  # fmt: skip
    assert commands(engine_s) == ["export XDG_STATE_HOME=$HOME/ngcdl-state XDG_CACHE_HOME=$HOME/ngcdl-cache"]
    assert all(step.by_hand for step in engine_s.remedy)
    # the snap has its own toolkit, whose settings are not known
    assert links["daemon-reload"].state == "unchecked"
