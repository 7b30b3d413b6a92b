"""Engines that this host's driver may not see: of another machine, Docker Desktop, WSL; and drivers that are silent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from choosing import FIRST, NVIDIA, choose
from choosing import bare as bare  # a fixture
from choosing import cards as cards  # a fixture
from choosing import daemon as daemon  # a fixture
from docker_socket import Daemon, serving
from telemetry.stand_in import Host

from ngcdl.catalog import releases


def test_for_an_engine_elsewhere_it_is_the_newest_whatever_this_host_has(bare: Host, daemon: Daemon) -> None:
    daemon.info |= {"Name": os.uname().nodename + "-vm"} | NVIDIA
    newest = releases.tags("pytorch")[0]
    it = choose(bare, image="pytorch", docker=daemon.host)
    assert it["image"] == f"nvcr.io/nvidia/pytorch:{newest}"
    assert it["why"].startswith(f"pytorch: {newest}, the newest that ngcdl knows; ")


def test_a_driver_that_can_t_be_asked_is_not_the_same_as_none(cards: Host) -> None:
    cards.set(fail__Init=18)
    it = choose(cards, gpus="all")
    assert it["error"] == "NoGpu"
    assert "can't be asked" in it["message"]


def test_the_engine_of_another_machine_decides_by_what_it_has(bare: Host, daemon: Daemon) -> None:
    daemon.info |= {"Name": os.uname().nodename + "-vm"} | NVIDIA
    it = choose(bare, image="tensorflow:1", gpus="all", docker=daemon.host)
    assert (it["way"], it["uuids"], it["device"]) == ("runtime", None, "gpu")
    daemon.info["Runtimes"] = {}
    assert choose(bare, image="tensorflow:1", gpus="all", docker=daemon.host)["error"] == "NoGpu"
    assert "another machine" in choose(bare, image="tensorflow:1", docker=daemon.host)["loud"][0]


DESKTOP = {
    "Name": "docker-desktop", "OperatingSystem": "Docker Desktop",
    "KernelVersion": "5.15.167.4-microsoft-standard-WSL2",
}  # fmt: skip


WSL = """
from pathlib import Path
from ngcdl.engines.docker import engine as of_docker
from ngcdl.telemetry import driver
driver.DXG = of_docker.DXG = Path("/")
"""


def test_docker_desktop_under_wsl_gets_the_cards_that_are_seen_here(
    cards: Host, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEFORE", WSL)
    daemon.info |= DESKTOP | NVIDIA
    it = choose(cards, image="pytorch", gpus="0,", docker=daemon.host)
    assert it["why"].startswith("pytorch: 24.12-py3, the newest known to run here; "), "on this card"
    assert (it["way"], it["uuids"], it["device"]) == ("runtime", [FIRST], "gpu")
    monkeypatch.setenv("WAITS", "")
    assert choose(cards, image="pytorch", gpus="1", docker=daemon.host)["awaits"][0] == 1


@pytest.mark.parametrize("asked", ["auto", "all"])
def test_an_older_docker_desktop_under_wsl_that_lists_no_runtime_is_asked_by_gpus(
    cards: Host, daemon: Daemon, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    monkeypatch.setenv("BEFORE", WSL)
    daemon.info |= DESKTOP
    assert choose(cards, image="tensorflow:1", gpus=asked, docker=daemon.host)["way"] == "device-request"


def test_where_windows_has_no_nvidia_card_the_runtime_of_docker_desktop_is_not_believed(
    bare: Host, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEFORE", WSL)
    daemon.info |= DESKTOP | NVIDIA
    it = choose(bare, image="tensorflow:1", docker=daemon.host)
    assert (it["way"], it["device"]) == ("none", "cpu")
    assert it["loud"] == ["WARNING: this host has no NVIDIA driver: this run computes on the CPU."]
    assert choose(bare, image="tensorflow:1", gpus="all", docker=daemon.host)["error"] == "NoGpu"


def test_docker_desktop_without_wsl_has_no_gpus_whatever_runtimes_it_lists(cards: Host, daemon: Daemon) -> None:
    daemon.info |= DESKTOP | NVIDIA | {"KernelVersion": "6.10.14-linuxkit"}
    it = choose(cards, image="tensorflow:1", docker=daemon.host)
    assert (it["way"], it["device"]) == ("none", "cpu")
    assert "Docker Desktop passes GPUs on only under Windows, with WSL" in it["loud"][0]
    assert choose(cards, image="tensorflow:1", gpus="all", docker=daemon.host)["error"] == "NoGpu"


@pytest.mark.parametrize("gpus", ["none", "auto"])
def test_an_engine_that_sees_no_folder_of_this_host_is_refused_with_and_without_gpus(
    bare: Host, tmp_path: Path, gpus: str
) -> None:
    with serving(Daemon(tmp_path / "d.sock"), over_tcp=True) as far:
        it = choose(bare, image="tensorflow:1", gpus=gpus, docker=far.host)
    assert it.get("error") == "EngineElsewhere"


def test_a_cluster_that_sees_no_folder_of_this_host_is_not_refused(bare: Host) -> None:
    it = choose(bare, "kubernetes", image="tensorflow:1", gpus="2")
    assert (it["engine"], it["gpus"], it["way"]) == ("kubernetes", "2", "device-plugin")
