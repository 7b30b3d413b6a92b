"""Where and on what a run computes, on hosts with and without cards and Docker: each choice with its reason."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from choosing import FIRST, MIG, NVIDIA, choose
from choosing import bare as bare  # a fixture
from choosing import cards as cards  # a fixture
from choosing import daemon as daemon  # a fixture
from docker_socket import Daemon
from telemetry.stand_in import Host

from ngcdl.catalog import releases

MENDED = " ngcdl doctor says what is missing, and what to type."
ENDED = "4194305:5"  # a program that has ended: no PID is as high


def test_without_an_image_a_card_and_docker_it_is_this_host_s_python(bare: Host) -> None:
    it = choose(bare)
    assert (it["engine"], it["device"], it["uuids"], it["gpus"]) == ("local", "cpu", [], "none")
    assert "no NVIDIA GPU" in it["why"]
    assert "CPU" in it["loud"][0]


def test_a_card_that_docker_can_hand_on_is_used_in_the_default_image(cards: Host, daemon: Daemon) -> None:
    daemon.info |= NVIDIA
    it = choose(cards, docker=daemon.host)
    (free,) = it["uuids"]
    assert (it["engine"], it["way"], it["gpus"], it["device"]) == ("docker", "runtime", f"auto:{free}", "auto")
    assert "tensorflow" in it["image"]


def test_a_card_whose_nvlink_fabric_is_not_set_up_is_loud(cards: Host, daemon: Daemon) -> None:
    daemon.info |= NVIDIA
    cards.set(gpu1__fabric=2)
    said = (
        "WARNING: the NVLink fabric is not set up (GPU 1: in progress): CUDA may fail with error 802, or work without "
        "NVLink."
    )
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
    assert (refused["error"], "of no use to this run: GPU 1" in refused["message"]) == ("NoGpu", True)


def test_docker_without_a_way_for_the_card_leaves_a_training_to_this_host(cards: Host, daemon: Daemon) -> None:
    it = choose(cards, docker=daemon.host)
    assert it["engine"] == "local"
    assert "can't pass on the GPU" in it["why"]


def test_a_named_image_on_docker_without_a_way_is_loud(cards: Host, daemon: Daemon) -> None:
    it = choose(cards, image="tensorflow:1", docker=daemon.host)
    assert (it["engine"], it["gpus"], it["device"]) == ("docker", "none", "cpu")
    assert "can't pass it on" in it["loud"][0]
    assert it["loud"][0].endswith(MENDED)


@pytest.mark.parametrize("state", [
    {"fail__Init": 18}, {"fail__Init": 9}, {"gpu0__name": None, "gpu1__name": None},
])  # fmt: skip
def test_a_card_that_can_t_be_seen_is_not_left_out_without_a_word_of_what_to_type(
    cards: Host, monkeypatch: pytest.MonkeyPatch, state: dict[str, Any]
) -> None:
    cards.set(**state)
    (loud,) = choose(cards)["loud"]
    assert loud.startswith("WARNING: the NVIDIA driver ")
    assert loud.endswith(MENDED)
    monkeypatch.setenv("TRAINING", "")
    assert choose(cards)["loud"][0].endswith(MENDED), "a command's too"


@pytest.mark.parametrize(("vendor", "is_there"), [("0x10de", True), ("0x1002", False)])
def test_a_card_without_a_driver_is_told_from_a_host_without_a_card(
    bare: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vendor: str, is_there: bool
) -> None:
    (tmp_path / "bus/0000:01:00.0").mkdir(parents=True)
    (tmp_path / "bus/0000:01:00.0/vendor").write_text(f"{vendor}\n")
    (tmp_path / "bus/0000:01:00.0/class").write_text("0x030000\n")
    monkeypatch.setenv("BEFORE", "import pathlib; from ngcdl.telemetry import bus; "
                       f"bus.DEVICES = pathlib.Path({str(tmp_path / 'bus')!r})")  # fmt: skip
    said = "WARNING: this host has no NVIDIA driver: this run computes on the CPU."
    assert choose(bare)["loud"] == [said + MENDED * is_there]


def test_a_way_that_was_typed_needs_no_advice(cards: Host, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGCDL_GPU_WAY", "none")
    (loud,) = choose(cards, image="tensorflow:1", docker=daemon.host)["loud"]
    assert loud.endswith("NGCDL_GPU_WAY names it. This run computes on the CPU.")


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


def test_an_engine_that_is_unknown_or_can_t_run_an_image_is_a_usage_error(bare: Host) -> None:
    assert choose(bare, engine="podman")["code"] == 2
    assert choose(bare, engine="local", image="tensorflow:1")["code"] == 2
    assert choose(bare, image="tensorflow:1")["error"] == "EngineAbsent"
    assert choose(bare, "docker")["error"] == "EngineAbsent", "without an image, too"


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
