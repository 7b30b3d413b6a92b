"""`ngcdl compare` in real images: alternating pairs, a ratio with its spread, a CPU fallback refused by name."""

from __future__ import annotations

import itertools
import json
import re
import signal
from typing import Any

import pytest
from house import until
from ngcdl_child import User, planted, told, without_driver

pytestmark = pytest.mark.lab

QUICK = ("--train", "cifar10", "--data", "synthetic", "--batch", "4", "--steps", "21", *planted("few"))


def _records(user: User) -> list[dict[str, Any]]:
    """Return all records, oldest first."""
    made = [json.loads(path.read_text()) for path in user.runs.glob("*/run.json")]
    return sorted(made, key=lambda record: float(record["started"]))


@without_driver
def test_two_threads_against_one_give_a_ratio_with_its_spread_in_the_tensorflow_of_2018(
    user: User, images: dict[str, str]
) -> None:
    words = ("compare", "tensorflow:18.01-py2", *QUICK, "--vary", "threads=1,2", "--repeat", "2", "--json")
    found = told(user.run(*words, seconds=280))
    assert (found["vary"], found["refused"], found["synthetic"]) == ("threads", [], True)
    assert [arm["name"] for arm in found["arms"]] == ["threads=1", "threads=2"]
    ratios = [pair["ratio"] for pair in found["pairs"]]
    assert len(ratios) == 2
    assert all(ratio > 0 for ratio in ratios)
    assert (found["ratio"]["min"], found["ratio"]["max"]) == (min(ratios), max(ratios))
    assert found["ratio"]["min"] <= found["ratio"]["median"] <= found["ratio"]["max"]
    for pair in found["pairs"]:
        speeds = [user.run("show", run, "--json").out for run in pair["runs"]]
        one, two = (json.loads(text)["summary"]["examples_per_second"] for text in speeds)
        assert pair["ratio"] == pytest.approx(two / one)

    records = _records(user)
    assert [record["spec"]["workload"]["threads"] for record in records] == [1, 2, 2, 1], "in turn, and turned"
    assert all(later["started"] >= former["finished"] for former, later in itertools.pairwise(records))
    assert {record["image"]["digest"] for record in records} == {images["tensorflow:18.01-py2"]}
    assert {record["status"] for record in records} == {"finished"}
    assert [note for record in records for note in record["notes"] if note.startswith(f"compare {found['id']}: ")]
    shown = user.run("compare", "--show", "last")
    assert shown.code == 0, shown
    assert "threads=2 / threads=1: " in shown.out
    assert "SYNTHETIC" in shown.out


# Python 2.7, as in the image.
WHAT_IT_GETS = """
import os, sys, time
sys.stdout.write("cards: %s" % os.environ.get("NVIDIA_VISIBLE_DEVICES"))
time.sleep(0.5)
"""


def test_a_command_of_one_s_own_is_run_without_a_card_and_with_one(user: User) -> None:
    user.has_gpus()
    (user.here / "train.py").write_text(WHAT_IT_GETS)
    words = ("compare", "tensorflow:18.01-py2", "--gpus", "0,", "--repeat", "2")
    found = told(user.run(*words, "--json", "--", "python", "train.py", seconds=120))
    assert (found["vary"], found["by"], found["workload"], found["refused"]) == ("device", "run_seconds", None, [])
    assert [(arm["name"], arm["given"], arm["counted"]) for arm in found["arms"]] == [
        ("cpu", "cpu", 2),
        ("gpu", "gpu", 2),
    ]
    records = _records(user)
    cards = [[line for line in (user.runs / one["id"] / "log.txt").read_text().splitlines() if "cards: " in line]
             for one in records]  # fmt: skip
    card = "cards: GPU-5f1e2d3c-0a1b-4c2d-8e3f-105010501050"
    assert cards == [["cards: void"], [card], [card], ["cards: void"]]
    asked = [{**record["spec"], "gpus": ""} for record in records]
    assert asked == [asked[0]] * 4, "only the cards differ"
    took = {record["id"]: record["finished"] - record["started"] for record in records}
    for pair in found["pairs"]:
        cpu, gpu = pair["runs"]
        assert pair["ratio"] == pytest.approx(took[cpu] / took[gpu])
    shown = user.run("compare", "--show", "last").out
    assert "Whether the GPU is used is not known (too few samples)" in shown or "No measurable difference" in shown


def test_a_command_whose_code_changes_meanwhile_is_not_run_again(user: User) -> None:
    user.has_gpus()
    (user.here / "train.py").write_text("pass\n")
    words = ("compare", "tensorflow:18.01-py2", "--gpus", "0,", "--", "sh", "-c", "echo pass >> train.py")
    done = user.run(*words, seconds=120)
    assert done.code == 1, done
    assert len(_records(user)) == 1
    said = f"{user.here}/train.py was edited during round 1 of 3, cpu: that run is left out, and no further begins"
    assert said in done.out
    assert "nothing was measured" in done.out


def test_a_gpu_that_the_framework_does_not_see_is_refused_by_the_name_of_the_field(user: User) -> None:
    user.has_gpus(driver="615.61")
    words = ("compare", "pytorch:26.07-py3", *QUICK, "--threads", "1", "--gpus", "1,", "--repeat", "2")
    done = user.run(*words, "--json", seconds=280)
    found = told(done, code=1)
    assert [refusal["field"] for refusal in found["refused"]] == ["device"]
    assert "its framework saw none" in found["refused"][0]["why"]
    assert (found["ratio"], found["spread"]) == (None, "refused: device")
    cpu, gpu = found["arms"]
    assert (cpu["device"], cpu["counted"], gpu["counted"]) == ("cpu", 1, 0)
    assert cpu["examples_per_second"]["median"] > 0
    records = _records(user)
    assert [record["spec"]["workload"]["device"] for record in records] == ["cpu", "gpu"], "it was tried once"
    asked = [{**record["spec"], "workload": None, "command": None} for record in records]
    assert asked[0] == asked[1], "only the device differs"
    assert "A GPU was asked for, but the run sees none" in done.err
    assert "No ratio is given (gpu can't be counted: " in user.run("compare", "--show", "last").out


def test_ctrl_c_stops_the_run_under_way_and_what_is_whole_is_reported(user: User) -> None:
    words = ("--train", "cifar10", "--data", "synthetic", "--steps", "31", "--gpus", "none", "--threads", "1")
    words += planted("few")
    child = user.start("compare", "pytorch:26.07-py3", *words, "--vary", "batch=8,256", "--repeat", "2")
    until(lambda: len(user.ids()) == 2, "the second run", 120)
    user.running()
    child.signal(signal.SIGINT)
    done = child.done()
    assert done.code == 130, done
    assert [record["status"] for record in _records(user)] == ["finished", "interrupted"]
    assert "stopped by SIGINT; what is complete:" in done.err
    assert "it did not finish: 2 of 4 runs were started" in done.out
    assert "not counted: stopped by SIGINT (batch=256, round 1: interrupted)" in done.out
    assert re.search(r"(?m)^batch=8 +1 +[\d,.]+ ", done.out), done
    assert user.run("compare", "--show", "last").out == done.out


@without_driver
def test_without_a_gpu_the_image_is_measured_on_the_cpu_and_that_is_said(user: User) -> None:
    done = user.run("compare", "pytorch:26.07-py3", *QUICK, "--threads", "1", "--repeat", "1", seconds=200)
    assert done.code == 0, done
    assert "the GPU can't be measured here: this host has no NVIDIA driver" in done.out
    assert done.out.splitlines()[-1].startswith("Only the CPU was measured: ")
    assert [record["device"] for record in _records(user)] == ["cpu"]
