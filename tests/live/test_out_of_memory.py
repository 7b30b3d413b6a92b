"""A training too large for its container's memory ends with a smaller batch to try; the largest that fits is found."""

from __future__ import annotations

import re

import pytest
from house import until
from ngcdl_child import Started, User, planted

pytestmark = pytest.mark.lab

TRAIN = ("--train", "cifar10", "--data", "synthetic", "--no-eval", "--gpus", "none", "--steps", "3", "--threads", "1")


def held(user: User, image: str, limit: str, *words: str) -> Started:
    """Start a training in a container with this memory limit from the start."""
    run = user.start("run", image, *TRAIN, *words)
    until(lambda: [one for one in user.ids() if (user.runs / one / "events.jsonl").exists()], "the trainer")
    (container,) = user.containers()
    user.docker("update", "--memory", limit, "--memory-swap", limit, container)
    return run


def test_a_training_that_the_kernel_killed_names_the_batch_to_take_instead(user: User) -> None:
    done = held(user, "tensorflow:18.01-py2", "350m", "--batch", "1024").done(300)
    assert done.code != 0
    record = user.record()
    assert (record["status"], record["oom_killed"]) == ("failed", True), done
    assert record["findings"][0]["rule"] == "out-of-memory"
    assert "A batch of 1024 does not fit into the container's memory limit." in done.out
    for batch in "512", "largest":
        line = rf"^ +ngcdl run tensorflow:18\.01-py2 --train cifar10 ((?!--batch).)*--batch {batch}$"
        assert re.search(line, done.out, re.MULTILINE), "what was typed, with the change"


def test_the_largest_batch_that_fits_is_found_and_trained_with(user: User) -> None:
    done = held(user, "pytorch:26.07-py3", "480m", "--batch", "largest", *planted("few")).done(600)
    assert done.code == 0, done
    record = user.record()
    assert (record["status"], record["reason"], record["oom_killed"]) == ("finished", None, True)
    told = [line for line in user.lines("events.jsonl") if line["event"] == "oom"][-1]
    (start,) = [line for line in user.lines("events.jsonl") if line["event"] == "start"]
    assert told["fits"] < told["batch"] <= told["fits"] + max(told["batch"] // 16, 1) + 1
    assert start["batch"] == told["fits"] - told["fits"] // 8
    assert f"A batch of {told['batch']} does not fit" in done.out
    assert record["findings"][0]["rule"] == "largest-batch"
    largest = f"{told['fits']} is the largest that does. {start['batch']} was used, which leaves an eighth free."
    assert largest in done.out
