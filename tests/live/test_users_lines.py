"""The commands that a user types first: sign in, pull, train; measured and recorded."""

from __future__ import annotations

import itertools
import json
import re
import statistics
from typing import Any

import pytest
from ngcdl_child import User, without_driver

pytestmark = pytest.mark.lab

# the tutorial's own line, which people grep logs for
LINE = re.compile(
    r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?): step (\d+), loss = ([\d.]+|nan) "
    r"\(([\d.]+) examples/sec; ([\d.]+) sec/batch\)$",
    re.M,
)
TRAIN = ("--train", "cifar10", "--steps", "20", "--data", "synthetic", "--no-eval")


def _check_training(user: User, done: Any, image: str, digest: str) -> None:
    assert done.code == 0, done
    steps = [int(match[2]) for match in LINE.finditer(done.out)]
    assert steps[:2] == [0, 10], done
    first = float(LINE.findall(done.out)[0][2])
    assert 4.60 <= first <= 4.75
    shown = user.shown()
    assert (shown["status"], shown["exit_code"], shown["oom_killed"]) == ("finished", 0, False)
    reference = f"{user.lab['registry']['host']}/nvidia/{image}"
    assert shown["image"] == {"reference": reference, "digest": digest, "id": None}
    assert (shown["engine"], shown["dataset"], shown["device"]) == ("docker", "synthetic", "cpu")
    figures = shown["summary"]
    assert figures["steps"] == 20
    for name in ("examples_per_second", "seconds_per_batch", "loss_first", "loss_last", "cpu_percent_mean"):
        assert figures[name] > 0, name
    assert figures["container_cpu_percent_mean"] > 0
    assert figures["memory_bytes_max"] > 50_000_000
    assert figures["gpu_percent_mean"] is None
    assert figures["gpu_memory_bytes_max"] is None
    machine = shown["machine"]
    assert machine["cores"] > 0
    assert machine["memory_bytes"] > 0
    assert machine["driver"] is None
    assert user.run("logs", "last").out == user.log()
    assert "SYNTHETIC, nothing real" in done.out
    assert str(user.runs / user.ids()[-1]) in done.out


@without_driver
def test_sign_in_pull_and_train_with_the_tensorflow_of_2018(user: User, images: dict[str, str]) -> None:
    user.login()
    pulled = user.run("pull", "tensorflow:18.01-py2")
    name = f"{user.lab['registry']['host']}/nvidia/tensorflow@{images['tensorflow:18.01-py2']}"
    assert (pulled.code, pulled.out.strip()) == (0, name), pulled
    done = user.run("run", "tensorflow:18.01-py2", *TRAIN, "--batch", "32")
    assert "== TensorFlow ==" in done.out
    assert "tf1 1.4.0 on the CPU" in done.out
    _check_training(user, done, "tensorflow:18.01-py2", images["tensorflow:18.01-py2"])
    seconds = [sample["seconds"] for sample in user.lines("samples.jsonl")]
    assert len(seconds) >= 3
    # the usual one: a machine that is busy with other tests too may be late now and then
    assert statistics.median(later - earlier for earlier, later in itertools.pairwise(seconds)) <= 1.5
    listed = json.loads(user.run("runs", "--json").out)
    assert [run["id"] for run in listed] == user.ids()


@without_driver
def test_the_same_line_trains_in_pytorch(user: User, images: dict[str, str]) -> None:
    done = user.run("run", "pytorch:26.07-py3", *TRAIN, "--batch", "8")
    assert "pytorch 2.13.0" in done.out
    _check_training(user, done, "pytorch:26.07-py3", images["pytorch:26.07-py3"])


def test_json_is_one_document_on_stdout_and_the_output_goes_to_stderr(user: User) -> None:
    done = user.run("run", "busybox:1", "--json", "--", "sh", "-c", "echo said; exit 3")
    assert done.code == 3, done
    assert json.loads(done.out) == user.record()
    assert "said" in done.err.splitlines()


def test_dry_run_prints_the_request_and_the_docker_line_and_starts_nothing(user: User) -> None:
    done = user.run("run", "tensorflow:18.01-py2", *TRAIN, "--dry-run", "--json")
    assert done.code == 0, done
    request = json.loads(done.out)["request"]
    assert request["HostConfig"]["ShmSize"] == 1 << 30
    assert {"Name": "memlock", "Soft": -1, "Hard": -1} in request["HostConfig"]["Ulimits"]
    assert {"Name": "stack", "Soft": 67108864, "Hard": 67108864} in request["HostConfig"]["Ulimits"]
    assert request["HostConfig"]["Init"] is True
    line = user.run("run", "tensorflow:18.01-py2", *TRAIN, "--dry-run").out
    assert "docker run --rm --init" in line
    assert "--ulimit memlock=-1" in line
    assert not user.ids()
