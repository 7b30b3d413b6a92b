"""Runs without a container: the cards that this host's CUDA, its framework and CUDA_VISIBLE_DEVICES leave them."""

from __future__ import annotations

import pytest
from choosing import FIRST, NVIDIA, choose
from choosing import bare as bare  # a fixture
from choosing import cards as cards  # a fixture
from choosing import daemon as daemon  # a fixture
from docker_socket import Daemon
from telemetry.stand_in import Host


def test_a_card_without_docker_is_used_from_this_host(cards: Host) -> None:
    it = choose(cards)
    assert (it["engine"], it["device"], it["loud"]) == ("local", "auto", [])
    assert "Docker is unavailable" in it["why"]
    assert (len(it["uuids"]), it["has_gpu"]) == (1, True)


def test_nothing_is_installed_for_the_cards_of_a_host_if_none_is_asked_for(cards: Host) -> None:
    it = choose(cards, gpus="none")
    assert (it["engine"], it["gpus"], it["device"], it["has_gpu"]) == ("local", "none", "cpu", False)


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


def test_a_card_whose_uuid_is_not_known_is_not_taken_for_another_that_is_of_no_use(cards: Host) -> None:
    cards.set(gpu0__uuid=None, gpu0__cc="12.0", gpu1__uuid=None)
    it = choose(cards)
    assert (it["engine"], it["has_gpu"], it["device"]) == ("local", True, "auto"), it


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
    assert "of no use to this run: GPU 1" in choose(cards, gpus="2")["message"]
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
        ("0", "2", "1 of 2 GPUs are free (hidden by CUDA_VISIBLE_DEVICES: GPU 1)"),
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
