"""By which name a run is given a card: index, UUID, MIG device, by the toolkit, CDI or --gpus, and on a Jetson."""

from __future__ import annotations

import pytest
from choosing import FIRST, MIG, NVIDIA, choose
from choosing import bare as bare  # a fixture
from choosing import cards as cards  # a fixture
from choosing import daemon as daemon  # a fixture
from docker_socket import Daemon
from telemetry.stand_in import Host


def test_indices_become_uuids(cards: Host, daemon: Daemon) -> None:
    daemon.info |= NVIDIA
    it = choose(cards, image="tensorflow:1", gpus="0,", docker=daemon.host)
    assert (it["gpus"], it["uuids"], it["device"]) == (FIRST, [FIRST], "gpu")


@pytest.mark.parametrize(
    ("described", "named"),
    [
        (["all", "0"], "0,"),
        (["all", "0", FIRST], FIRST),
        (["all"], FIRST),  # as on WSL: the request takes all and limits programs to this one
        (["7"], "0,"),  # the daemon says what it lacks
    ],
)
def test_cdi_takes_the_names_that_it_describes(cards: Host, daemon: Daemon, described: list[str], named: str) -> None:
    daemon.info |= {"DiscoveredDevices": [{"Source": "cdi", "ID": f"nvidia.com/gpu={name}"} for name in described]}
    it = choose(cards, image="tensorflow:1", gpus=FIRST, docker=daemon.host)
    assert (it["way"], it["gpus"], it["uuids"]) == ("cdi", named, [FIRST])


@pytest.mark.parametrize(("asked", "uuid"), [
    ("1:2", "MIG-6f20"), ("MIG-6f", "MIG-6f20"), ("MIG-41b3", "MIG-41b3"), ("MIG-of-others", "MIG-of-others"),
    ("1:5", "1:5"),
])  # fmt: skip
def test_a_mig_device_is_named_by_the_toolkit_s_index_or_its_uuid(
    cards: Host, daemon: Daemon, asked: str, uuid: str
) -> None:
    daemon.info |= NVIDIA
    cards.set(**MIG)
    it = choose(cards, image="tensorflow:1", gpus=asked, docker=daemon.host)
    assert (it["gpus"], it["uuids"]) == (uuid, [uuid])


def test_cdi_has_its_index_for_a_mig_device(cards: Host, daemon: Daemon) -> None:
    daemon.info |= {"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=1:2"}]}
    cards.set(**MIG)
    assert choose(cards, image="tensorflow:1", gpus="MIG-6f20", docker=daemon.host)["gpus"] == "1:2"


@pytest.mark.parametrize("asked", ["1,", "GPU-6a2f"])
def test_a_card_with_mig_on_is_no_gpu_and_its_mig_devices_are_named_instead(
    cards: Host, daemon: Daemon, asked: str
) -> None:
    daemon.info |= NVIDIA
    cards.set(**MIG)
    it = choose(cards, image="tensorflow:1", gpus=asked, docker=daemon.host)
    assert it["error"] == "NoGpu"
    assert "GPU 1 has MIG on, and only its MIG devices compute: name 1:0 (MIG-41b3), 1:2 (MIG-6f20)" in it["message"]


def test_all_are_the_cards_and_the_mig_devices_of_those_with_mig_on(cards: Host, daemon: Daemon) -> None:
    daemon.info |= NVIDIA
    cards.set(**MIG)
    it = choose(cards, image="tensorflow:1", gpus="all", docker=daemon.host)
    assert (it["gpus"], it["uuids"]) == ("all", [FIRST, "MIG-41b3", "MIG-6f20"])
    cards.set(gpu0__mig=1, gpu1__name=None)
    assert choose(cards, image="tensorflow:1", gpus="all", docker=daemon.host)["uuids"] is None, "nobody can tell"


def test_a_training_takes_one_mig_device_and_no_more(
    cards: Host, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINING", "yes")
    daemon.info |= NVIDIA
    cards.set(gpu0__processes="7:5", **MIG)
    assert choose(cards, image="tensorflow:1", docker=daemon.host)["gpus"] == "auto:MIG-41b3"
    assert choose(cards, image="tensorflow:1", gpus="1", docker=daemon.host)["uuids"] == ["MIG-41b3"]
    cards.set(gpu0__processes="7:5", gpu1__mig3__uuid="MIG-3", gpu1__mig3__processes="", **MIG)
    for several in ("all", "1:0,1:2", "2"):
        it = choose(cards, image="tensorflow:1", gpus=several, docker=daemon.host)
        assert (it["error"], "one MIG device: name one" in it["message"]) == ("NoGpu", True)
        assert it["message"].startswith(f"--gpus {several}: ")


def test_docker_from_snap_is_given_cards_by_index(cards: Host, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon.info |= NVIDIA | {"DockerRootDir": "/var/snap/docker/common/var-lib-docker"}
    it = choose(cards, image="tensorflow:1", gpus=FIRST, docker=daemon.host)
    assert (it["way"], it["gpus"], it["uuids"]) == ("runtime", "0,", [FIRST])
    monkeypatch.setenv("TRAINING", "yes")
    assert choose(cards, image="tensorflow:1", docker=daemon.host)["gpus"] == "auto:1"


JETSON = "54d0709b-558d-5a59-9c65-0c5fc14a21a4"


@pytest.mark.parametrize("engine", ["docker", "local"])
def test_a_jetson_s_gpu_whose_uuid_neither_cuda_nor_the_toolkit_knows_is_named_by_its_index(
    cards: Host, daemon: Daemon, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    daemon.info |= NVIDIA
    cards.set(gpu0__uuid=JETSON, gpu1__name=None)
    image = "tensorflow:1" if engine == "docker" else ""
    it = choose(cards, engine, image, JETSON, docker=daemon.host)
    assert (it["gpus"], it["uuids"]) == ("0,", [JETSON])
    assert choose(cards, engine, image, "5,", docker=daemon.host)["error"] == "NoGpu"
    monkeypatch.setenv("TRAINING", "yes")
    it = choose(cards, engine, image, docker=daemon.host)
    assert (it["gpus"], it["uuids"]) == ("auto:0", [JETSON])


@pytest.mark.parametrize("name", ["NVIDIA Thor", "Orin (nvgpu)"])
def test_a_thor_s_gpu_is_named_by_its_index_whatever_its_uuid(cards: Host, daemon: Daemon, name: str) -> None:
    daemon.info |= NVIDIA
    cards.set(gpu0__name=name, gpu1__name=None)
    it = choose(cards, image="tensorflow:1", gpus=FIRST, docker=daemon.host)
    assert (it["way"], it["gpus"], it["uuids"]) == ("runtime", "0,", [FIRST])


@pytest.fixture
def jetson(bare: Host, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A Jetson without NVML."""
    monkeypatch.setenv("BEFORE", "from ngcdl.telemetry import driver; driver.is_jetson = lambda: True")
    return bare


@pytest.mark.parametrize(("asked", "device"), [("auto", "auto"), ("all", "gpu"), ("1", "gpu"), ("0,", "gpu")])
def test_a_jetson_without_nvml_gives_a_container_its_gpu_unseen(
    jetson: Host, daemon: Daemon, asked: str, device: str
) -> None:
    daemon.info |= NVIDIA
    it = choose(jetson, image="mine:1", gpus=asked, docker=daemon.host)
    assert (it["way"], it["gpus"], it["device"], it["uuids"], it["loud"]) == ("runtime", asked, device, None, [])


def test_a_jetson_without_nvml_has_one_gpu_and_docker_must_be_able_to_pass_it_on(jetson: Host, daemon: Daemon) -> None:
    it = choose(jetson, image="mine:1", docker=daemon.host)
    assert (it["device"], it["uuids"]) == ("cpu", [])
    assert it["loud"][0].startswith("WARNING: Docker runs on a Jetson, and it has no runtime nvidia")
    daemon.info |= NVIDIA
    assert "which has one GPU" in choose(jetson, image="mine:1", gpus="2", docker=daemon.host)["message"]


def test_nobody_can_wait_for_a_gpu_that_is_not_seen(
    jetson: Host, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAITS", "1")
    daemon.info |= NVIDIA
    assert choose(jetson, image="mine:1", gpus="1", docker=daemon.host)["error"] == "NoGpu"


def test_whether_a_command_computes_on_a_jetson_without_nvml_is_not_known(
    jetson: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINING", "")
    it = choose(jetson)
    assert (it["uuids"], it["device"]) == (None, "auto")
    assert "whether this run computes on a GPU is not known. ngcdl doctor says" in it["loud"][0]


def test_a_demand_that_nothing_speaks_for_is_left_to_docker_s_own_answer(cards: Host, daemon: Daemon) -> None:
    it = choose(cards, image="tensorflow:1", gpus="all", docker=daemon.host)
    assert it["way"] == "device-request"


def test_podman_that_would_leave_the_gpus_out_is_not_tried(cards: Host, daemon: Daemon) -> None:
    daemon.info |= {"ServerVersion": "4.9.3", "ContainerdCommit": {"ID": ""}} | NVIDIA
    daemon.component = "Podman Engine"
    it = choose(cards, image="tensorflow:1", gpus="all", docker=daemon.host)
    assert (it["error"], "Podman 4.9.3 leaves out GPUs" in it["message"]) == ("NoGpu", True)
    it = choose(cards, image="tensorflow:1", docker=daemon.host)
    assert (it["way"], it["device"]) == ("none", "cpu")
    assert "Podman 4.9.3" in it["loud"][0]
