"""GPUs: each mechanism shows exactly the requested cards, and a requested card that is missing stops the run."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from faulty_front import Front
from house import until
from ngcdl_child import User, drive, planted, user_in, without_driver

pytestmark = pytest.mark.lab

CARDS = ("GPU-5f1e2d3c-0a1b-4c2d-8e3f-105010501050", "GPU-6a2f3e4d-1b2c-4d3e-9f40-a100a100a100")
WAYS = ("runtime", "cdi", "device-request")
DRIVER = "615.61"  # which PyTorch's image takes
TRAIN = ("--train", "cifar10", "--batch", "8", "--data", "synthetic", "--no-eval", "--threads", "1", *planted("few"))


@pytest.fixture
def gpu_user(user: User) -> User:
    user.has_gpus()
    return user


def _seen(text: str) -> list[str]:
    return re.findall(r"\(UUID: (\S+)\)", text)


@pytest.mark.parametrize(("way", "asked", "cards"), [
    *((way, asked, cards) for way in WAYS for asked, cards in (("all", CARDS), (CARDS[1], CARDS[1:]))),
    ("runtime", "0,", CARDS[:1]), ("runtime", "1", None),  # what is asked for is UUIDs before a way is taken
])  # fmt: skip
def test_each_way_shows_the_cards_that_were_asked_for(
    gpu_user: User, way: str, asked: str, cards: tuple[str, ...] | None
) -> None:
    done = gpu_user.run("run", "busybox:1", "--gpus", asked, "--", "nvidia-smi", "-L", NGCDL_GPU_WAY=way)
    assert done.code == 0, done
    seen = _seen(done.out)
    assert len(seen) == 1 if cards is None else tuple(seen) == cards  # "1" is any free one
    record = gpu_user.record()
    assert record["gpus"] == seen
    assert (record["gpu_way"], record["machine"]["driver"]) == (way, "535.104.05")


@pytest.mark.parametrize("way", WAYS)
def test_the_look_inside_names_the_runs_cards(gpu_user: User, way: str) -> None:
    child = gpu_user.start("run", "busybox:1", "--gpus", "1,", "--", "sleep", "600", NGCDL_GPU_WAY=way)
    until(lambda: gpu_user.ids() and (gpu_user.runs / gpu_user.ids()[-1] / "samples.jsonl").exists(), "a sample")
    child.signal(signal.SIGTERM)
    assert child.done().code == 143
    record = gpu_user.record()
    assert record["gpus"] == [CARDS[1]]
    assert not [note for note in record["notes"] if "looked" in note or "WARNING" in note]


def test_two_detached_trainings_get_a_card_each_and_a_third_is_refused_with_who_has_them(gpu_user: User) -> None:
    words = ("run", "pytorch:26.07-py3", *TRAIN, "--steps", "1000000", "--gpus", "1", "--device", "auto", "--force")
    children = [gpu_user.start(*words, "--detach") for _ in range(2)]
    runs = [done.out.strip() for done in (child.done() for child in children) if done.code == 0]
    try:
        assert len(runs) == 2
        records = [json.loads((gpu_user.runs / run / "run.json").read_text()) for run in runs]
        assert sorted(record["gpus"] for record in records) == [[card] for card in CARDS]
        third = gpu_user.run(*words)
        assert third.code == 125, third
        assert "--gpus 1: 0 of 2 GPUs are free" in third.err
        assert all(run in third.err for run in runs)
        asked_for = gpu_user.run("run", "busybox:1", "--gpus", "0,", "--", "true")
        assert asked_for.code == 0, "who names a card shares it"
    finally:
        for run in runs:
            gpu_user.run("stop", run)
    again = gpu_user.run("run", "busybox:1", "--gpus", "2", "--", "true")
    assert again.code == 0, again


def test_a_training_is_measured_on_its_cards(user: User) -> None:
    user.has_gpus(driver=DRIVER)
    words = ("run", "pytorch:26.07-py3", *TRAIN, "--steps", "20", "--gpus", "0,1", "--device", "auto")
    refused = user.run(*words)
    assert (refused.code, user.ids()) == (125, []), refused
    assert "GTX 1050 Ti can't run it: use --gpus '1,'" in refused.err
    done = user.run(*words, "--force")
    assert done.code == 0, done
    assert "WARNING: the run had a GPU, but its framework saw none: it computed on the CPU." in done.err
    record = user.shown()
    assert record["gpus"] == list(CARDS)
    assert record["summary"]["gpu_percent_mean"] == pytest.approx((87 + 0) / 2)
    assert [gpu["uuid"] for gpu in record["summary"]["gpus"]] == list(CARDS)
    assert record["summary"]["gpus"][0]["gpu_percent_mean"] == 87
    assert record["summary"]["gpu_memory_bytes_max"] > 0
    assert record["device"] == "cpu"


@without_driver
def test_without_a_driver_all_is_refused_before_anything_is_asked_of_the_registry(user: User, front: Front) -> None:
    for words in (("busybox:1", "--", "true"), ("tensorflow:18.01-py2", "--train", "cifar10")):
        done = user.run("run", words[0], "--gpus", "all", *words[1:], NGCDL_REGISTRY=front.host)
        assert done.code == 125, done
        assert "--gpus all: this host has no NVIDIA driver." in done.err
        assert "--gpus none" in done.err
    assert front.requests() == []
    assert not user.ids()


@without_driver
def test_without_a_driver_auto_warns_and_computes_on_the_cpu(user: User) -> None:
    done = user.run("run", "busybox:1", "--", "true")
    assert done.code == 0
    assert "WARNING: this host has no NVIDIA driver: this run computes on the CPU." in done.err
    record = user.record()
    assert record["gpus"] == []
    assert [note for note in record["notes"] if note.startswith("WARNING: this host has no NVIDIA driver")]
    assert "WARNING" not in user.run("run", "busybox:1", "--gpus", "none", "--", "true").err


@pytest.mark.parametrize(("code", "text"), [(9, "not loaded"), (18, "driver was updated")])
def test_a_driver_that_cannot_be_asked_stops_a_demand_and_warns_auto(user: User, code: int, text: str) -> None:
    user.has_gpus(fail__Init=code)
    done = user.run("run", "busybox:1", "--gpus", "all", "--", "true")
    assert done.code == 125, done
    assert text in done.err
    done = user.run("run", "busybox:1", "--", "true")
    assert done.code == 0, done
    assert "WARNING" in done.err
    assert text in done.err


def test_a_card_that_is_not_there_is_named_with_those_that_are(gpu_user: User) -> None:
    done = gpu_user.run("run", "busybox:1", "--gpus", "0,7", "--", "true")
    assert done.code == 125
    assert "there is no GPU 7" in done.err
    assert CARDS[0] in done.err


@pytest.mark.parametrize("text", ["0", "device=0,1", "-2", "x"])
def test_a_gpu_request_that_cannot_be_meant_is_a_usage_error(gpu_user: User, text: str) -> None:
    done = gpu_user.run("run", "busybox:1", f"--gpus={text}", "--", "true")
    assert done.code == 2, done


def test_an_image_that_wants_a_newer_driver_is_told_so(gpu_user: User) -> None:
    words = ("--gpus", "all", "-e", "NVIDIA_REQUIRE_CUDA=cuda>=13.0", "--", "true")
    done = gpu_user.run("run", "busybox:1", *words, NGCDL_GPU_WAY="runtime")
    assert done.code == 125, done
    assert "unsatisfied condition: cuda>=13.0" in done.err
    assert "update it, or take an older tag" in done.err


def test_an_engine_without_a_way_warns_auto_and_refuses_all(lab: dict[str, Any], tmp_path: Path) -> None:
    if not lab.get("bare"):
        pytest.skip("no bare engine: scripts/lab up --without-gpu")
    with user_in(tmp_path, lab, lab["bare"]["host"]) as user:
        user.has_gpus()
        done = user.run("run", "busybox:1", "--", "true")
        assert done.code == 0, done
        assert "WARNING: this host has a GPU, but Docker can't pass it on" in done.err
        assert user.record()["gpu_way"] == "none"
        for way in ({}, {"NGCDL_GPU_WAY": "runtime"}, {"NGCDL_GPU_WAY": "cdi"}):
            done = user.run("run", "busybox:1", "--gpus", "all", "--", "true", **way)
            assert done.code == 125, done
            assert "Docker has no way to hand a GPU to a container" in done.err
            assert ("nvidia-ctk runtime configure" if way else "\n      ngcdl doctor\n") in done.err


def test_a_demanded_gpu_that_the_framework_does_not_see_stops_the_training_with_125(user: User) -> None:
    user.has_gpus(driver=DRIVER)
    done = user.run("run", "pytorch:26.07-py3", *TRAIN, "--steps", "10", "--gpus", "all", "--force")
    assert done.code == 125, done
    assert "A GPU was asked for, but the run sees none" in done.err
    assert "--gpus none" in done.err
    record = user.record()
    assert (record["status"], record["exit_code"]) == ("failed", 125)
    assert "A GPU was asked for" in record["reason"]


def test_a_gpu_lost_in_mid_run_is_a_labelled_gap_and_the_run_goes_on(user: User) -> None:
    state = user.has_gpus()
    child = user.start("run", "busybox:1", "--gpus", "0,", "--", "sh", "-c", "until [ -e over ]; do sleep 1; done")

    def readings() -> list[dict[str, Any]]:
        return [card for sample in user.lines("samples.jsonl") for card in sample["gpus"] or ()]

    until(readings, "a sample")
    drive(state, fail__gpu0__DeviceGetUtilizationRates=15, fail__gpu0__DeviceGetMemoryInfo=15)
    until(lambda: any(card.get("error") for card in readings()), "a gap")
    (user.here / "over").touch()
    assert child.done().code == 0
    record = user.shown()
    assert record["status"] == "finished"
    assert record["summary"]["gaps"] > 0
    assert {card["gpu_percent"] for card in readings() if not card["error"]} == {87}
    assert record["summary"]["gpu_percent_mean"] == 87
