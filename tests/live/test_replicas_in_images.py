"""Several replicas inside the images: TensorFlow 1.4's towers, PyTorch's processes, and the cards they get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ngcdl_child import User, planted

pytestmark = pytest.mark.lab

CONTAINERS = Path(__file__).resolve().parents[2] / "containers"
CARDS = ["GPU-5f1e2d3c-0a1b-4c2d-8e3f-105010501050", "GPU-6a2f3e4d-1b2c-4d3e-9f40-a100a100a100"]
TRAIN = "python -m trainer cifar10 --device cpu --batch 16 --steps 5 --no-eval --log-frequency 1 --threads 1 --record"

# Runs in TensorFlow 1.4's image, without a card: how a graph is placed shows before it runs.
PLACES = """
import tensorflow as tf
from trainer.frameworks.tf1 import Network
from trainer.group import Group
from trainer.recipe import Model
from trainer.workloads import batch_sweep

network = Network(Model(batch_sweep.NETWORK, batch_sweep.RECIPE, batch_sweep.INPUT, 8), "cpu", group=Group(0, 2))
with network.graph.as_default(), tf.device("/gpu:1"):
    fed = network.part(1)
    with tf.device("/gpu:0"):
        network.feed_from((), tf.zeros((8,) + batch_sweep.INPUT), tf.zeros((8,), tf.int32))
    held = network.part(1)
print("PLACES %s %s" % (fed[0].device, held[0].device))
"""


def trained(user: User, image: str, *numbers: int) -> list[list[dict[str, Any]]]:
    """Train in an image with each number of replicas in turn; return the events of each training."""
    script = " && ".join(f"{TRAIN} --replicas {many} --out replicas-{many}" for many in numbers)
    mounted = (*planted("few"), "-v", f"{CONTAINERS}:/above:ro", "-e", "PYTHONPATH=/planted:/above")
    done = user.run("run", image, "--gpus", "none", *mounted, "--", "sh", "-c", script, seconds=240)
    assert done.code == 0, done
    folders = [user.here / f"replicas-{many}" for many in numbers]
    assert [json.loads((folder / "run.json").read_text())["spec"]["replicas"] for folder in folders] == list(numbers)
    return [[json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()] for folder in folders]


def losses(events: list[dict[str, Any]]) -> list[float]:
    return [event["loss"] for event in events if event["event"] == "step"]


def test_two_towers_of_tensorflow_1_4_have_the_losses_of_one_process(user: User) -> None:
    one, two = trained(user, "tensorflow:18.01-py2", 1, 2)
    assert (one[0]["replicas"], two[0]["replicas"]) == (1, 2)
    assert len(losses(two)) == 5
    assert losses(two) == pytest.approx(losses(one), abs=1e-4)


def test_a_tower_of_tensorflow_1_4_takes_its_part_of_a_batch_where_the_batch_is(user: User, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(PLACES)
    mounted = ("-v", f"{CONTAINERS}:/above:ro", "-v", f"{tmp_path}:/script:ro", "-e", "PYTHONPATH=/above")
    name = f"{user.lab['registry']['host']}/nvidia/tensorflow:18.01-py2"
    out = user.docker("run", "--rm", *mounted, name, "python", "/script/script.py", seconds=120)
    (line,) = [line for line in out.splitlines() if line.startswith("PLACES ")]
    assert line.split()[1:] == ["/device:CPU:0", "/device:GPU:0"], "a batch that is fed comes from the host"


def test_two_replicas_find_each_other_inside_one_container(user: User) -> None:
    (events,) = trained(user, "pytorch:26.07-py3", 2)
    assert (events[0]["replicas"], events[0]["device"]) == (2, "cpu")
    (alike,) = [event for event in events if event["event"] == "replicas"]
    assert (alike["step"], alike["identical"]) == (5, True)


def test_two_cards_are_asked_for_by_uuid_and_no_replica_computes_where_the_framework_sees_none(user: User) -> None:
    user.has_gpus(driver="615.61")
    typed = ("--train", "cifar10", "--batch", "8", "--steps", "5", "--data", "synthetic", "--no-eval")
    done = user.run("run", "pytorch:26.07-py3", "--gpus", "2", "--force", *typed)
    assert done.code == 125, done
    assert "A GPU was asked for, but the run sees none" in done.err
    record = user.record()
    assert sorted(record["gpus"]) == CARDS
    words = record["spec"]["command"]
    assert words[words.index("--replicas") + 1] == "2"
    assert "sees no GPU: 2 replicas on this machine need one each" in user.log()
    assert [event["event"] for event in user.lines("events.jsonl")] == ["error"]
