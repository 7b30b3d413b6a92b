"""Two Slurm nodes train one network together with the real trainer, stop, resume, and are compared with one node."""

from __future__ import annotations

import json
import os
import shlex
from typing import Any

import pytest
from cluster_user import IMAGE, Someone

pytestmark = pytest.mark.lab

WORDS = ("run", IMAGE, "--train", "cifar10-keras", "--engine", "slurm", "--nodes", "2", "--gpus", "none")
WORDS += ("--data", "synthetic", "--batch", "16", "--threads", "1", "--no-eval", "--steps")


@pytest.fixture
def trainer(someone: Someone) -> Someone:
    """A user whose tasks have PyTorch, as in its image."""
    python = os.environ.get("NGCDL_TEST_FRAMEWORKS")
    if not python:
        pytest.skip("NGCDL_TEST_FRAMEWORKS names no Python that has the frameworks: scripts/test makes one")
    path = someone.home / "bin/python"
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(python)} "$@" --framework pytorch\n')
    return someone


def told(someone: Someone, run_id: str, kind: str) -> list[dict[str, Any]]:
    return [event for event in someone.events(run_id) if event["event"] == kind]


def test_two_nodes_train_one_network_stop_and_go_on_with_every_step_trained_once(trainer: Someone) -> None:
    done = trainer.run(*WORDS, "9000", "--detach")
    assert done.returncode == 0, done.stderr
    first = done.stdout.strip()
    trainer.begun(first)
    assert "interrupted" in trainer.run("stop", first).stderr
    (checkpoint,) = told(trainer, first, "checkpoint")
    until = checkpoint["step"] + 15
    done = trainer.run(*WORDS, str(until), "--resume", first)
    assert done.returncode == 0, done.stderr
    run = trainer.record()
    (start,) = told(trainer, run["id"], "start")
    assert (start["replicas"], start["nodes"], start["resumed_from_step"]) == (2, 2, checkpoint["step"])
    before, after = ([event["step"] for event in told(trainer, one, "step")] for one in (first, run["id"]))
    assert max(before) < checkpoint["step"] <= min(after)
    assert (run["status"], run["summary"]["steps"]) == ("finished", until)
    for one in (first, run["id"]):
        assert [event["identical"] for event in told(trainer, one, "replicas")] == [True]
    folder = trainer.folder(run["id"])
    assert sorted(path.name for path in folder.glob("samples-*")) == ["samples-n1.jsonl", "samples-n2.jsonl"]
    assert (folder / f"checkpoints/step-{until}.npz").exists()


def test_two_nodes_are_set_against_one_and_each_replica_keeps_its_batch(trainer: Someone) -> None:
    words = ("compare", IMAGE, "--train", "cifar10-keras", "--engine", "slurm", "--vary", "nodes=1,2", "--gpus", "none")
    words += ("--data", "synthetic", "--batch", "16", "--threads", "1", "--steps", "11", "--repeat", "1", "--json")
    done = trainer.run(*words, "--scaling", "weak")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["refused"], found["scaling"]) == ([], "weak")
    assert all(arm["examples_per_second"]["median"] > 0 for arm in found["arms"])
    starts = [told(trainer, trial["run"], "start")[0] for trial in found["trials"]]
    assert [(start["nodes"], start["replicas"], start["batch"]) for start in starts] == [(1, 1, 16), (2, 2, 32)]
