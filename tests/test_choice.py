"""Where and on what a run computes, on hosts with and without cards and Docker: each choice with its reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from choosing import FIRST, NVIDIA, choose
from choosing import bare as bare  # a fixture
from choosing import cards as cards  # a fixture
from choosing import daemon as daemon  # a fixture
from docker_socket import Daemon, serving
from telemetry.conftest import library as library  # a fixture
from telemetry.stand_in import Host

from ngcdl.catalog import releases

ENDED = "4194305:5"  # a program that has ended: no PID is as high


def test_without_an_image_a_card_and_docker_it_is_this_host_s_python(bare: Host) -> None:
    it = choose(bare)
    assert (it["engine"], it["device"], it["uuids"], it["gpus"]) == ("local", "cpu", [], "none")
    assert "no NVIDIA GPU" in it["why"]
    assert "CPU" in it["loud"][0]


def test_a_card_without_docker_is_used_from_this_host(cards: Host) -> None:
    it = choose(cards)
    assert (it["engine"], it["device"], it["loud"]) == ("local", "auto", [])
    assert "Docker is unavailable" in it["why"]
    assert len(it["uuids"]) == 1


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"gpu0__cc": "12.0"}, "TensorFlow's wheel is for compute capability 6.0 to 9.0, and the card has 12.0"),
        ({"gpu0__cc": "5.2"}, "TensorFlow's wheel is for compute capability 6.0 to 9.0, and the card has 5.2"),
        ({"driver": "470.82.01"}, "TensorFlow's wheel needs driver 525.60.13 or later, and this is 470.82.01"),
    ],
)
def test_a_card_that_tensorflow_s_wheel_can_t_use_is_left_out_before_anything_is_installed(
    cards: Host, monkeypatch: pytest.MonkeyPatch, state: dict[str, str], why: str
) -> None:
    cards.set(gpu1__name=None, **state)
    it = choose(cards)
    said = f"GPU 0 (NVIDIA GeForce GTX 1050 Ti) is of no use to this run: {why}"
    assert (it["engine"], it["gpus"], it["device"], it["has_gpu"]) == ("local", "none", "cpu", False)
    assert it["loud"] == [
        f"WARNING: {said}: this run computes on the CPU. NVIDIA's images may be able to use the card, by Docker and "
        "NVIDIA's container toolkit (ngcdl doctor)."
    ]
    for asked in ("1", "all", "0,"):
        refused = choose(cards, gpus=asked)
        assert (refused["error"], refused["code"]) == ("NoGpu", 125)
        assert refused["message"] == f"--gpus {asked}: {said}."
    monkeypatch.setenv("TRAINING", "")
    assert choose(cards, gpus="all")["device"] == "gpu", "a command's own framework may well be able to"


def test_a_number_that_cuda_may_count_otherwise_is_a_card_that_is_not_known(
    cards: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINING", "")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    it = choose(cards, gpus="all")
    assert (it["gpus"], it["uuids"], it["shares"]) == ("all", None, False), "the variable is passed on as it is"
    assert it["loud"][0].startswith("WARNING: CUDA_VISIBLE_DEVICES=0: CUDA counts the fastest card first, the driver ")
    assert choose(cards, gpus="0,")["uuids"] == [FIRST], "which the command then gets by UUID"
    for name, value in (("DEVICE_ORDER", "PCI_BUS_ID"), ("VISIBLE_DEVICES", "1,0"), ("VISIBLE_DEVICES", FIRST[:9])):
        with monkeypatch.context() as other:
            other.setenv(f"CUDA_{name}", value)
            it = choose(cards)
            assert (it["loud"], FIRST in it["uuids"]) == ([], True), f"CUDA_{name}={value}"
    cards.set(gpu1__name="NVIDIA GeForce GTX 1050 Ti")
    assert choose(cards)["uuids"] == [FIRST], "of equal cards"


def test_of_several_cards_a_training_without_docker_gets_one_that_tensorflow_s_wheel_can_use(cards: Host) -> None:
    cards.set(gpu1__cc="12.0", gpu0__processes="7:5")
    it = choose(cards)
    assert (it["uuids"], it["shares"], it["has_gpu"]) == ([FIRST], True, True)
    assert choose(cards, gpus="0,")["uuids"] == [FIRST]
    assert "of no use to this run: 1" in choose(cards, gpus="2")["message"]
    for asked in ("1,", "all"):
        assert "and the card has 12.0" in choose(cards, gpus=asked)["message"]


def test_a_command_without_an_image_runs_on_this_host_with_all_cards(
    cards: Host, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINING", "")
    daemon.info |= NVIDIA
    it = choose(cards, docker=daemon.host)
    assert (it["engine"], it["image"], it["way"], len(it["uuids"])) == ("local", "None", "none", 2)
    assert it["why"] == "engine local: no image was named, so the command runs on this host"
    assert choose(cards, gpus="0,", docker=daemon.host)["gpus"] == FIRST
    assert choose(cards, "docker", docker=daemon.host)["engine"] == "docker", "which alone has its images"


def test_a_card_that_docker_can_hand_on_is_used_in_the_default_image(cards: Host, daemon: Daemon) -> None:
    daemon.info |= NVIDIA
    it = choose(cards, docker=daemon.host)
    (free,) = it["uuids"]
    assert (it["engine"], it["way"], it["gpus"], it["device"]) == ("docker", "runtime", f"auto:{free}", "auto")
    assert "tensorflow" in it["image"]


def test_a_card_whose_nvlink_fabric_is_not_set_up_is_loud(cards: Host, daemon: Daemon) -> None:
    daemon.info |= NVIDIA
    cards.set(gpu1__fabric=2)
    said = "WARNING: the NVLink fabric is not set up (GPU 1: in progress): CUDA may fail with error 802."
    it = choose(cards, image="tensorflow:1", gpus="all", docker=daemon.host)
    assert (it["shares"], [line.partition(" ngcdl")[0] for line in it["loud"]]) == (False, [said])
    assert choose(cards, image="tensorflow:1", gpus="0,", docker=daemon.host)["loud"] == []
    cards.set(gpu1__fabric=3)
    assert choose(cards, image="tensorflow:1", gpus="all", docker=daemon.host)["loud"] == []


def test_the_default_image_is_the_newest_that_runs_on_these_cards(
    cards: Host, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.info |= NVIDIA
    assert choose(cards, docker=daemon.host)["image"] == "nvcr.io/nvidia/tensorflow:25.02-tf2-py3"
    cards.set(driver="470.82.01", gpu1__cc="6.1", gpu1__brand="5")
    assert choose(cards, docker=daemon.host)["image"] == "nvcr.io/nvidia/tensorflow:22.12-tf2-py3"
    monkeypatch.setenv("USUAL", "pytorch")
    assert choose(cards, docker=daemon.host)["image"] == "nvcr.io/nvidia/pytorch:22.12-py3"


def test_an_image_without_a_tag_is_the_newest_of_its_framework_that_runs_on_these_cards(
    cards: Host, daemon: Daemon
) -> None:
    daemon.info |= NVIDIA
    cards.set(driver="575.57.08")
    it = choose(cards, image="pytorch", docker=daemon.host)
    assert it["image"] == "nvcr.io/nvidia/pytorch:26.02-py3"
    assert it["why"] == "pytorch: 26.02-py3, the newest known to run here; engine docker: an image was named"
    cards.set(driver="470.82.01", gpu1__cc="6.1", gpu1__brand="5")
    assert choose(cards, image="nvidia/pytorch", docker=daemon.host)["image"] == "nvcr.io/nvidia/pytorch:22.12-py3"


def test_an_image_without_a_tag_is_chosen_for_the_cards_that_are_named(cards: Host, daemon: Daemon) -> None:
    daemon.info |= NVIDIA
    cards.set(driver="575.57.08", gpu0__cc="7.0", gpu0__brand="2")
    images = {gpus: choose(cards, image="pytorch", gpus=gpus, docker=daemon.host)["image"] for gpus in ("0,", "1,")}
    assert images["0,"].endswith("/pytorch:24.12-py3")
    assert images["1,"].endswith("/pytorch:26.02-py3")
    newest = releases.tags("pytorch")[0]
    assert choose(cards, image="pytorch", gpus="none", docker=daemon.host)["image"].endswith(f"/pytorch:{newest}")


def test_a_training_on_several_kinds_of_cards_gets_what_runs_on_each_of_them(
    cards: Host, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.info |= NVIDIA
    cards.set(driver="575.57.08", gpu0__cc="7.0", gpu0__brand="2")
    command = choose(cards, image="pytorch", gpus="all", docker=daemon.host)
    assert command["image"].endswith("/pytorch:26.02-py3"), "it may use the one that it runs on"
    monkeypatch.setenv("TRAINING", "yes")
    images = {gpus: choose(cards, image="pytorch", gpus=gpus, docker=daemon.host)["image"] for gpus in ("all", "0,1")}
    assert {image.rpartition("/")[2] for image in images.values()} == {"pytorch:24.12-py3"}


def test_for_an_engine_elsewhere_it_is_the_newest_whatever_this_host_has(bare: Host, daemon: Daemon) -> None:
    daemon.info |= {"Name": os.uname().nodename + "-vm"} | NVIDIA
    newest = releases.tags("pytorch")[0]
    it = choose(bare, image="pytorch", docker=daemon.host)
    assert it["image"] == f"nvcr.io/nvidia/pytorch:{newest}"
    assert it["why"].startswith(f"pytorch: {newest}, the newest that ngcdl knows; ")


def test_a_training_without_a_free_card_shares_one_and_says_so_loudly(
    cards: Host, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINING", "1")
    daemon.info |= NVIDIA
    cards.set(gpu0__processes=ENDED, gpu1__processes=ENDED)
    it = choose(cards, image="tensorflow:1", docker=daemon.host)
    (uuid,) = it["uuids"]
    assert (it["gpus"], it["device"], it["shares"]) == (f"auto:{uuid}", "auto", True)
    assert it["loud"] == [
        "WARNING: no card is free (GPU 0: another program; GPU 1: another program): this run shares GPU 1, "
        "and its speed is not the card's."
    ]
    assert choose(cards, image="tensorflow:1", gpus="1", docker=daemon.host)["error"] == "NoGpu"
    cards.set(gpu0__processes="7:5")
    it = choose(cards, image="tensorflow:1", docker=daemon.host)
    assert (it["uuids"], it["loud"], it["shares"]) == ([uuid], [], False)


def test_without_a_card_that_may_compute_it_is_the_cpu_and_how_to_change_that_is_said(
    cards: Host, daemon: Daemon
) -> None:
    daemon.info |= NVIDIA
    cards.set(gpu0__compute_mode=2, gpu1__compute_mode=2)
    it = choose(cards, docker=daemon.host)
    assert (it["engine"], it["gpus"], it["device"]) == ("local", "none", "cpu")
    said = "GPU 1 may not compute: its compute mode is Prohibited (to let programs compute: sudo nvidia-smi -i 1 -c 0)"
    assert said in it["why"]
    assert said in it["loud"][0]
    cards.set(gpu0__compute_mode=0, gpu1__compute_mode=2)
    assert said in choose(cards, image="tensorflow:1", gpus="1,", docker=daemon.host)["message"]


@pytest.mark.parametrize("asked", ["auto", "all"])
@pytest.mark.parametrize("engine", ["docker", "local"])
def test_all_cards_of_a_command_are_those_that_may_compute(
    cards: Host, daemon: Daemon, monkeypatch: pytest.MonkeyPatch, engine: str, asked: str
) -> None:
    """Docker's own "all" would put the others into the container, too, and CUDA would show them to the command."""
    monkeypatch.setenv("TRAINING", "")
    daemon.info |= NVIDIA
    image = "tensorflow:1" if engine == "docker" else ""
    assert choose(cards, engine, image, asked, docker=daemon.host)["gpus"] == asked
    cards.set(gpu1__compute_mode=2)
    it = choose(cards, engine, image, asked, docker=daemon.host)
    assert (it["gpus"], it["uuids"]) == (f"{asked}:{FIRST}", [FIRST])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    if engine == "local":
        assert choose(cards, engine, image, asked)["gpus"] == asked, "which the variable says already"


def test_a_training_whose_cards_allow_one_program_only_and_have_it_computes_on_the_cpu_and_says_so_loudly(
    cards: Host, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINING", "1")
    daemon.info |= NVIDIA
    cards.set(gpu0__processes=ENDED, gpu1__processes=ENDED, gpu0__compute_mode=3, gpu1__compute_mode=3)
    it = choose(cards, image="tensorflow:1", docker=daemon.host)
    assert (it["gpus"], it["device"], it["uuids"], it["shares"]) == ("none", "cpu", [], False)
    assert it["loud"][0].startswith("WARNING: no card is free, and none can be shared (GPU 0: another program, and")
    assert "(several through MPS, but not from ngcdl's containers)" in it["loud"][0]
    assert "(several through MPS)" in choose(cards, "local")["loud"][0]


def test_of_different_free_cards_it_is_said_by_which_rule_one_is_taken(
    cards: Host, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINING", "1")
    daemon.info |= NVIDIA
    words = "; of several free cards the newest with enough memory"
    assert choose(cards, image="tensorflow:1", docker=daemon.host)["why"].endswith(words)
    assert words not in choose(cards, image="tensorflow:1", gpus="2", docker=daemon.host)["why"]
    cards.set(gpu1__processes="7:5")
    assert words not in choose(cards, image="tensorflow:1", docker=daemon.host)["why"], "one alone is free"


def test_a_card_that_the_image_can_t_use_is_no_free_card(
    cards: Host, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.info |= NVIDIA
    monkeypatch.setenv("TRAINING", "1")
    (idle,) = choose(cards, image="tensorflow:1", docker=daemon.host)["uuids"]
    assert idle != FIRST, "the busy one"
    monkeypatch.setenv("UNFIT", idle)
    assert choose(cards, image="tensorflow:1", docker=daemon.host)["uuids"] == [FIRST]
    refused = choose(cards, image="tensorflow:1", gpus="2", docker=daemon.host)
    assert (refused["error"], "of no use to this run: 1" in refused["message"]) == ("NoGpu", True)


def test_docker_without_a_way_for_the_card_leaves_a_training_to_this_host(cards: Host, daemon: Daemon) -> None:
    it = choose(cards, docker=daemon.host)
    assert it["engine"] == "local"
    assert "can't pass on the GPU" in it["why"]


def test_a_named_image_on_docker_without_a_way_is_loud(cards: Host, daemon: Daemon) -> None:
    it = choose(cards, image="tensorflow:1", docker=daemon.host)
    assert (it["engine"], it["gpus"], it["device"]) == ("docker", "none", "cpu")
    assert "can't pass it on" in it["loud"][0]


def test_no_gpu_wanted_is_silent(cards: Host) -> None:
    it = choose(cards, gpus="none")
    assert (it["engine"], it["device"], it["loud"], it["uuids"]) == ("local", "cpu", [], [])


@pytest.mark.parametrize("gpus", ["all", "1", "0,", FIRST])
def test_a_demanded_card_that_is_not_there_is_an_error(bare: Host, gpus: str) -> None:
    it = choose(bare, gpus=gpus)
    assert (it["error"], it["code"]) == ("NoGpu", 125)


@pytest.mark.parametrize("gpus", ["7,", "GPU-nobody", "3"])
def test_a_card_that_this_host_has_not_is_named(cards: Host, gpus: str) -> None:
    it = choose(cards, gpus=gpus)
    assert it["error"] == "NoGpu"
    assert gpus.rstrip(",") in it["message"]


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


MIG = {"gpu1__mig": 1, "gpu1__mig0__uuid": "MIG-41b3", "gpu1__mig2__uuid": "MIG-6f20", "gpu1__mig2__processes": "7:5"}


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


def test_whether_a_command_computes_on_a_jetson_without_nvml_is_not_known(
    jetson: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINING", "")
    it = choose(jetson)
    assert (it["uuids"], it["device"]) == (None, "auto")
    assert it["loud"][0].endswith("whether this run computes on a GPU is not known.")


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


def test_an_engine_that_is_unknown_or_can_t_run_an_image_is_a_usage_error(bare: Host) -> None:
    assert choose(bare, engine="podman")["code"] == 2
    assert choose(bare, engine="local", image="tensorflow:1")["code"] == 2
    assert choose(bare, image="tensorflow:1")["error"] == "EngineAbsent"


def test_a_training_takes_one_free_card_under_auto_and_stays_free_to_use_the_cpu(
    cards: Host, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINING", "yes")
    daemon.info |= NVIDIA
    found = choose(cards, "docker", "nvidia/tensorflow:24.05-tf2-py3", docker=daemon.host)
    assert len(found["uuids"]) == 1
    assert found["gpus"] == f"auto:{found['uuids'][0]}"
    assert found["device"] == "auto"
    every = choose(cards, "docker", "nvidia/tensorflow:24.05-tf2-py3", "all", docker=daemon.host)
    assert len(every["uuids"]) > 1


def test_the_beginning_of_a_uuid_is_enough_if_only_one_card_has_it(cards: Host, daemon: Daemon) -> None:
    daemon.info |= NVIDIA
    found = choose(cards, "docker", "nvidia/tensorflow:24.05-tf2-py3", FIRST[:9], docker=daemon.host)
    assert found["uuids"] == [FIRST]
    assert choose(cards, "docker", "nvidia/tensorflow:24.05-tf2-py3", "GPU-0", docker=daemon.host)["error"] == "NoGpu"


@pytest.mark.parametrize(
    ("said", "gpus", "chosen"),
    [("0", "1", [0]), ("0", "auto", [0]), ("0", "all", [0]), ("1,0", "all", [1, 0]), ("GPU-5f1e", "0,", [0])],
)
def test_the_local_engine_chooses_among_the_cards_that_the_caller_s_variable_leaves(
    cards: Host, monkeypatch: pytest.MonkeyPatch, said: str, gpus: str, chosen: list[int]
) -> None:
    monkeypatch.setenv("TRAINING", "1")
    both = choose(cards, "local", gpus="0,1")["uuids"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", said)
    assert choose(cards, "local", gpus=gpus)["uuids"] == [both[index] for index in chosen]


@pytest.mark.parametrize(
    ("said", "gpus", "why"),
    [
        ("0", "2", "1 of 2 GPUs are free (in use or out of order: none; hidden by CUDA_VISIBLE_DEVICES: 1)"),
        ("0", "1,", "CUDA_VISIBLE_DEVICES=0 hides GPU-"),
        ("-1", "1", "CUDA_VISIBLE_DEVICES names none of this host's GPUs"),
    ],
)
def test_a_demanded_card_that_the_caller_s_variable_hides_is_an_error_that_says_so(
    cards: Host, monkeypatch: pytest.MonkeyPatch, said: str, gpus: str, why: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", said)
    it = choose(cards, "local", gpus=gpus)
    assert (it["error"], why in it["message"]) == ("NoGpu", True)


@pytest.mark.parametrize("gpus", ["auto", "1", "all"])
def test_a_card_that_may_not_compute_is_none_of_those_that_the_caller_s_variable_leaves(
    cards: Host, monkeypatch: pytest.MonkeyPatch, gpus: str
) -> None:
    cards.set(gpu1__compute_mode=2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    it = choose(cards, "local", gpus=gpus)
    why = "GPU 1 may not compute: its compute mode is Prohibited (to let programs compute: sudo nvidia-smi -i 1 -c 0)"
    assert why in (it["loud"][0] if gpus == "auto" else it["message"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert choose(cards, "local", gpus=gpus)["uuids"] == [FIRST]


def test_docker_has_no_use_for_the_caller_s_variable(
    cards: Host, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.info |= NVIDIA
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert len(choose(cards, image="tensorflow:1", docker=daemon.host)["uuids"]) == 2


def test_a_run_that_waits_is_decided_for_the_cards_that_it_gets_if_all_are_free(
    cards: Host, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINING", "1")
    monkeypatch.setenv("WAITS", "1")
    daemon.info |= NVIDIA
    cards.set(gpu0__processes="7:5", gpu1__processes="8:5")
    one = choose(cards, image="tensorflow:1", docker=daemon.host)
    (uuid,) = one["uuids"]
    both = {uuid: uuid, FIRST: FIRST}
    assert (one["gpus"], one["device"], one["loud"], one["shares"]) == (f"auto:{uuid}", "auto", [], False)
    assert one["awaits"] == [1, both]
    two = choose(cards, image="tensorflow:1", gpus="2", docker=daemon.host)
    assert (two["uuids"], two["device"], two["awaits"]) == ([uuid, FIRST], "gpu", [2, both])
    named = choose(cards, image="tensorflow:1", gpus="0,", docker=daemon.host)
    assert (named["gpus"], named["awaits"]) == (FIRST, [1, {FIRST: FIRST}])
    every = choose(cards, image="tensorflow:1", gpus="all", docker=daemon.host)
    assert (every["gpus"], every["awaits"][0]) == (f"{FIRST},{uuid}", 2)
    monkeypatch.setenv("UNFIT", uuid)
    assert choose(cards, image="tensorflow:1", docker=daemon.host)["awaits"] == [1, {FIRST: FIRST}]


def test_cards_that_will_never_be_free_for_a_run_are_not_waited_for(
    cards: Host, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINING", "1")
    monkeypatch.setenv("WAITS", "1")
    no_way = choose(cards, image="tensorflow:1", docker=daemon.host)
    assert (no_way["error"], "Docker can't pass it on" in no_way["message"]) == ("NoGpu", True)
    daemon.info |= NVIDIA
    cards.set(fail__gpu0__DeviceGetMemoryInfo=15)
    lost = choose(cards, image="tensorflow:1", gpus="2", docker=daemon.host)
    assert (lost["error"], lost["message"]) == ("NoGpu", "--gpus 2: of this host's GPUs, 1 can be waited for.")
    cards.set(**MIG)
    assert choose(cards, image="tensorflow:1", docker=daemon.host)["awaits"][0] == 1
    parts = choose(cards, image="tensorflow:1", gpus="2", docker=daemon.host)
    assert parts["message"] == "--gpus 2: of this host's GPUs, 1 can be waited for.", "a MIG device has no replica"
    daemon.info |= {"Name": os.uname().nodename + "-vm"}
    away = choose(cards, image="tensorflow:1", docker=daemon.host)
    assert (away["error"], away["code"]) == ("BadOption", 2)
    assert away["message"] == "--wait: the engine is on another machine, whose GPUs are not seen here."
