"""TensorFlow 1.4 on Python 2.7 learns the same with every feed; --feed constant leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest
from ngcdl_child import User

pytestmark = pytest.mark.lab


def trained(user: User, workload: str, feed: str) -> list[dict[str, Any]]:
    typed = ["--train", workload, "--steps", "11", "--batch", "8", "--feed", feed, "--gpus", "none", "--no-eval"]
    done = user.run("run", "tensorflow:18.01-py2", *typed, seconds=240)
    assert done.code == 0, done
    return user.lines("events.jsonl")


def test_tensorflow_1_4_gathers_the_batches_on_its_device_that_it_is_given_otherwise(user: User) -> None:
    losses = {
        feed: [event["loss"] for event in trained(user, "resident", feed) if event["event"] == "step"]
        for feed in ("ahead", "plain", "resident")
    }
    assert len(losses["ahead"]) == 2
    assert losses["plain"] == losses["resident"] == pytest.approx(losses["ahead"], abs=1e-5)


def test_tensorflow_1_4_times_the_stages_of_the_tutorials_pipeline_and_trains_nothing(user: User) -> None:
    found = trained(user, "input-pipeline", "input")
    assert [event["event"] for event in found] == ["start", "step", "step", "stages", "finish"]
    names = [stage["name"] for stage in found[3]["stages"]]
    assert names == ["choose", "crop", "flip", "float", "brightness", "contrast", "standardise", "batch"]


def test_tensorflow_1_4_computes_one_batch_again_and_again_and_keeps_nothing(user: User) -> None:
    found = trained(user, "resident", "constant")
    assert [event["event"] for event in found] == ["start", "step", "step", "finish"]
    assert found[2]["loss"] < found[1]["loss"]
    assert not (user.runs / user.record()["id"] / "checkpoints").exists()
