"""Several replicas train as one process does: the same losses, one record, and one end for all.

Twelve steps are compared: after that this network makes 1e-4 of the 1e-7 by which sums in another order differ, and
does so in one process too.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import CONTAINERS, events, needs, start, trainer

from trainer import data, epochs, feed, group
from trainer.group import Group
from trainer.workloads import cifar10

LIMIT = 120


def until(found, what):
    """Poll with a deadline."""
    end = time.monotonic() + LIMIT
    while not found():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def losses(folder):
    return [event["loss"] for event in events(folder, "step")]


def trained(folder, *words, code=0, **environment):
    """Train cifar10 without distractions, and give the losses."""
    words = ("--no-eval", "--log-frequency", "1", "--threads", "1", "--device", "cpu", *words)
    found, out, err = trainer(*words, "--out", folder, **environment)
    assert found == code, err
    return losses(folder), out, err


def children(pid):
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


# -- parts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 7, 32, 128])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_parts_of_a_batch_are_all_of_it_and_weigh_one(count, size):
    parts = [Group(rank, size) for rank in range(size)]
    seen = [n for one in parts if one.share(count) for n in range(count)[one.part(count)]]
    assert seen == list(range(count))
    assert sum(one.share(count) for one in parts) == pytest.approx(1)
    assert all(len(range(count)[one.part(count)]) for one in parts)


def test_each_example_comes_once_in_an_epoch_whichever_replica_takes_it():
    labels = np.arange(50)
    dataset = data.Dataset(labels[:, None], labels, "synthetic", 1)
    sources = [group.sliced(epochs.Shuffled(dataset, 8, 0, lambda some: some), Group(rank, 3)) for rank in range(3)]
    shares = [Group(rank, 3).share(sources[rank].size(6)) for rank in range(3)]
    assert shares == [0.5, 0.5, 0.0]  # the last batch has 2
    seen = [
        n
        for step in range(7)
        for rank, source in enumerate(sources)
        if Group(rank, 3).share(source.size(step))
        for n in source(step)[1]
    ]
    assert sorted(seen) == list(range(50))
    gathered = [rows for source in sources for rows in feed.chosen(source, 2, 3, np.asarray)]
    assert np.concatenate(gathered).tolist() == np.concatenate([source.chosen(2) for source in sources]).tolist()


def test_a_part_of_the_tutorials_batch_is_distorted_as_in_the_whole():
    images = np.random.RandomState(0).randint(0, 255, (600, 32, 32, 3)).astype(np.uint8)
    dataset = data.Dataset(images, np.arange(600), "synthetic", 1)
    whole = cifar10.source(dataset, 33, 0, 0.01)(0)
    parts = [group.sliced(cifar10.source(dataset, 33, 0, 0.01), Group(rank, 3))(0) for rank in range(3)]
    for n in range(2):
        assert (np.concatenate([part[n] for part in parts]) == whole[n]).all()


def test_a_replica_without_a_card_of_its_own_is_no_replica():
    assert Group(1, 2, 1, 2).card("X", 2, "auto") == 1
    assert Group(1, 2, 1, 2).card("X", 0, "auto") is None
    assert Group(1, 2, 1, 2).card("X", 4, "cpu") is None
    for count, device in ((1, "auto"), (1, "gpu"), (0, "gpu")):
        with pytest.raises(group.Stop, match="2 replicas on this machine need one each") as caught:
            Group(0, 2, 0, 2).card("X", count, device)
        assert caught.value.kind == "no_gpu"


# -- trainings --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Give the losses of one process: the first 12 steps of the tutorial."""
    known = {}

    def of(framework):
        if framework not in known:
            folder = tmp_path_factory.mktemp(framework)
            known[framework] = trained(folder, "cifar10", "--framework", framework, "--steps", "12", "--batch", "64")[0]
        return known[framework]

    return of


def test_two_replicas_have_the_losses_of_one_process_and_go_on_as_three(framework, alone, tmp_path):
    words = "cifar10", "--framework", framework, "--batch", "64"
    found, out, _ = trained(tmp_path, *words, "--replicas", "2", "--steps", "6", "--samples", "n1")
    assert out.count(": step ") == 6
    (began,) = events(tmp_path, "start")
    assert (began["replicas"], began["nodes"], began["batch"]) == (2, 1, 64)
    assert names(tmp_path) == ["checkpoints", "events.jsonl", "lock", "samples-n1.jsonl"]
    if framework == "pytorch":  # TensorFlow takes its time to start
        found, *_ = trained(tmp_path, *words, "--replicas", "3", "--steps", "12", "--resume", tmp_path)
        assert [event["step"] for event in events(tmp_path, "checkpoint")] == [6, 12]
    assert found == pytest.approx(alone(framework)[: len(found)], abs=1e-4)


@pytest.mark.torch
def test_epochs_and_accuracy_are_of_the_whole_batch_and_adam_moves_the_same(tmp_path):
    needs("torch")
    words = "batch-sweep", "--framework", "pytorch", "--batch", "20000", "--steps", "3"
    one, *_ = trained(tmp_path / "1", *words)
    three, *_ = trained(tmp_path / "3", *words, "--replicas", "3")
    assert three == pytest.approx(one, abs=1e-4)
    told = [{key: event[key] for key in ("epoch", "examples", "accuracy")}
            for folder in ("1", "3") for event in events(tmp_path / folder, "epoch")]  # fmt: skip
    assert told[0] == told[1]
    assert told[0]["examples"] == 50000


@pytest.mark.torch
def test_two_machines_train_as_one_and_only_the_first_writes(alone, tmp_path):
    needs("torch")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = "cifar10", "--framework", "pytorch", "--batch", "64", "--steps", "6", "--device", "cpu", "--no-eval"
    words += "--log-frequency", "1", "--threads", "1", "--out", tmp_path
    nodes = [
        start(*words, "--samples", f"n{node}", NGCDL_NODES="2", NGCDL_NODE=str(node), MASTER_ADDR="127.0.0.1",
              MASTER_PORT=str(port)) for node in (1, 0)
    ]  # fmt: skip
    said = [node.communicate(timeout=LIMIT) for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said
    assert (said[0][0], said[1][0].count(": step ")) == ("", 6)
    assert losses(tmp_path) == pytest.approx(alone("pytorch")[:6], abs=1e-4)
    (began,) = events(tmp_path, "start")
    assert (began["replicas"], began["nodes"]) == (2, 2)
    assert {"samples-n0.jsonl", "samples-n1.jsonl"} <= set(names(tmp_path))


# -- ends -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def training(tmp_path):
    """Give a training of two replicas that has begun, in PyTorch."""
    needs("torch")
    process = start("cifar10", "--framework", "pytorch", "--device", "cpu", "--threads", "1", "--batch", "32",
                    "--steps", "100000", "--replicas", "2", "--out", tmp_path, "--record")  # fmt: skip
    until(lambda: (tmp_path / "events.jsonl").exists() and events(tmp_path, "step"), "no step was done")
    yield process
    process.kill()
    process.communicate()


@pytest.mark.torch
def test_one_signal_ends_all_replicas_after_the_same_step_with_one_checkpoint(training, tmp_path):
    replicas = children(training.pid)
    os.kill(replicas[1], signal.SIGTERM)  # Slurm tells all processes, the parent passes on: any of them is enough
    training.send_signal(signal.SIGTERM)
    out, err = training.communicate(timeout=LIMIT)
    assert training.returncode == 143, err
    (saved,), (error,) = events(tmp_path, "checkpoint"), events(tmp_path, "error")
    assert (error["kind"], error["step"]) == ("interrupted", saved["step"])
    record = json.loads((tmp_path / "run.json").read_text())
    assert (record["status"], record["exit_code"]) == ("interrupted", 143)
    assert (tmp_path / "log.txt").read_text() == out
    assert not any(map(lives, replicas))


@pytest.mark.torch
def test_a_replica_that_is_killed_ends_all_and_its_death_is_the_reason(training, tmp_path):
    replicas = children(training.pid)
    os.kill(replicas[1], signal.SIGKILL)
    _, err = training.communicate(timeout=LIMIT)
    assert training.returncode == 1
    (error,) = events(tmp_path, "error")
    assert (error["kind"], error["message"]) == ("crash", "replica 1 was killed by signal 9, without a word")
    assert "replica 1 was killed" in err
    assert not any(map(lives, replicas))


@pytest.mark.torch
def test_no_replica_outlives_a_parent_that_was_killed(training):
    replicas = children(training.pid)
    assert len(replicas) == 2
    training.kill()
    until(lambda: not any(map(lives, replicas)), "a replica lives on")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cifar10", "--batch", "2", "--replicas", "3"), "a batch of 2 is too small for 3 replicas: say --batch 3"),
        (("smoke", "--replicas", "2"), "smoke trains nothing"),
        (("inference", "--replicas", "2"), "inference trains nothing"),
        (("cifar10", "--feed", "input", "--replicas", "2"), "--feed input trains nothing"),
        (("distill", "--replicas", "2"), "say --teacher none"),
    ],
)
def test_what_replicas_cannot_do_is_refused_before_any_begins(tmp_path, words, said):
    code, _, err = trainer(*words, "--out", tmp_path)
    (error,) = events(tmp_path, "error")
    assert (code, error["kind"]) == (1, "bad_argument")
    assert said in error["message"]
    assert said in err


def test_a_node_that_does_not_know_the_first_one_says_so(tmp_path):
    code, _, err = trainer("cifar10", "--out", tmp_path, NGCDL_NODES="2", NGCDL_NODE="1", MASTER_ADDR="")
    assert code == 1
    assert "MASTER_ADDR and MASTER_PORT must say where node 0 is" in err
    assert names(tmp_path) == []  # node 0's alone


def test_the_parent_loads_no_framework():
    seen = subprocess.run(
        [sys.executable, "-c", "import trainer.__main__, sys; print({'torch', 'tensorflow'} & set(sys.modules))"],
        env={**os.environ, "PYTHONPATH": str(CONTAINERS)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert seen.stdout == "set()\n"
