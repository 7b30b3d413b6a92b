"""Podman behind Docker's API: what /info and /version of a real Podman 4.3.1 said, and what follows for GPUs.

That a newer Podman hands over CDI devices was read in Podman's code, and never tried.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from ngcdl.engines.docker import memlock
from ngcdl.engines.docker.engine import DockerEngine

INFO: dict[str, Any] = {
    "ServerVersion": "4.3.1",
    "ContainerdCommit": {"ID": "", "Expected": ""},
    "Runtimes": {"crun": {"path": "/usr/bin/crun"}, "nvidia": {"path": "/usr/bin/nvidia-container-runtime"}},
    "CDISpecDirs": None,
    "LiveRestoreEnabled": False,
}


@dataclass
class Podman:
    release: str = "4.3.1"
    component: str = "Podman Engine"
    info_there: dict[str, Any] = field(default_factory=lambda: INFO)
    base_url: str = "http+docker://localhost"
    asked: int = 0

    def info(self) -> dict[str, Any]:
        return {**self.info_there, "ServerVersion": self.release, "ID": str(uuid4())}

    def version(self) -> dict[str, Any]:
        self.asked += 1
        return {"Components": [{"Name": self.component, "Version": self.release}, {"Name": "Conmon"}]}


@pytest.fixture(autouse=True)
def _of_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NGCDL_GPU_WAY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


def test_podman_says_that_it_is_podman() -> None:
    engine = DockerEngine(Podman())
    assert engine.version == "Podman 4.3.1"
    assert engine.facts().version == "Podman 4.3.1"
    assert engine.facts().cdi_dirs == ("/etc/cdi",)
    assert engine.facts().live_restore is None, "containers outlive its service: there is nothing to switch on"


def test_it_is_the_same_engine_at_each_call_although_it_makes_up_a_new_id(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    there = {**INFO, "Name": "fedora", "DockerRootDir": "/var/lib/containers/storage"}
    first, second = (DockerEngine(Podman(info_there=there)) for _ in range(2))
    assert first.identity == second.identity
    memlock.remember_forbidden(first.info)
    assert memlock.is_known_forbidden(second.info)
    for other in ({"Name": "debian"}, {"DockerRootDir": "/home/me/.local/share/containers/storage"}):
        assert DockerEngine(Podman(info_there=there | other)).identity != first.identity
    docker = Podman("26.1.5", "Engine", there)
    assert DockerEngine(docker).identity != DockerEngine(docker).identity, "Docker's own ID is kept"


def test_what_one_engine_forbids_is_remembered_beside_what_another_does_and_until_the_next_boot(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rootless, system = {"ID": "1b2c"}, {"ID": "1b2c:d4"}
    boots = ["0" * 36, "1" * 36]
    for boot in boots:
        monkeypatch.setattr("ngcdl.processes.boot_id", lambda boot=boot: boot)
        assert not memlock.is_known_forbidden(rootless)
        memlock.remember_forbidden(rootless)
        memlock.remember_forbidden(system)
        assert memlock.is_known_forbidden(rootless)
        assert memlock.is_known_forbidden(system)
    assert len(list((tmp_path / "ngcdl").iterdir())) == 2, "what was true of the boot before is gone"


def test_where_the_cache_can_t_be_looked_into_no_limit_is_known_to_be_forbidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", f"/{'x' * 300}")  # an OSError, as of a folder that may not be entered
    assert not memlock.is_known_forbidden(DockerEngine(Podman()).info)


def test_its_runtime_nvidia_is_no_way_as_it_reads_neither_runtime_nor_number() -> None:
    way = DockerEngine(Podman("4.9.3")).gpu_way()
    assert (way.name, way.is_final) == ("none", True)
    assert way.why.startswith("Podman 4.9.3 leaves out GPUs that are asked for by Docker's API")


@pytest.mark.parametrize(
    ("release", "found"), [("5.3.2", "none"), ("5.4.0", "cdi"), ("6.0.0-dev", "cdi"), ("?", "cdi")]
)
def test_a_newer_one_takes_the_gpus_that_cdi_describes(release: str, found: str) -> None:
    there = {**INFO, "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=all"}]}
    way = DockerEngine(Podman(release, info_there=there)).gpu_way()
    assert (way.name, way.described) == (found, ("all",) if found == "cdi" else ())


def test_without_a_description_no_other_way_is_tried() -> None:
    way = DockerEngine(Podman("5.6.0")).gpu_way()
    assert (way.name, way.is_final) == ("none", True)
    assert way.why == "Podman 5.6.0 takes GPUs by CDI alone, and neither /etc/cdi nor /var/run/cdi describes one"


def test_before_5_6_a_description_below_var_run_is_none_for_it() -> None:
    assert DockerEngine(Podman("5.6.0")).facts().cdi_dirs == ("/etc/cdi", "/var/run/cdi")
    engine = DockerEngine(Podman("5.5.2"))
    assert engine.facts().cdi_dirs == ("/etc/cdi",)
    assert engine.gpu_way().why == (
        "Podman 5.5.2 takes GPUs by CDI alone, and /etc/cdi, where alone it looks before 5.6, describes none"
    )


def test_docker_is_not_asked_twice_and_keeps_its_words() -> None:
    there = {**INFO, "ContainerdCommit": {"ID": "7c4c8b8f"}}
    docker = Podman("26.1.5", "Engine", there)
    engine = DockerEngine(docker)
    assert (engine.version, engine.gpu_way().name, docker.asked) == ("26.1.5", "runtime", 0)
    unsure = Podman("20.10.24", "Engine")
    assert (DockerEngine(unsure).gpu_way().name, unsure.asked) == ("runtime", 1)
