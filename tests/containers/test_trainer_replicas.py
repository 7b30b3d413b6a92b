"""Several replicas train as one process does: the same losses, one record, and one end for all.

In float32 twelve steps are compared: after that these networks make 1e-4 of the 1e-7 by which sums in another order
differ, and do so in one process too. With weights and images of float64 twenty are the same.
"""

import argparse
import json
import multiprocessing
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from conftest import CONTAINERS, events, losses, names, needs, start, trained, trainer

from trainer import __main__ as entry
from trainer import checkpoint, data, group, layers, meeting, replicas
from trainer.events import Stop, Voice
from trainer.group import Group
from trainer.recipe import Model
from trainer.signals import Signals
from trainer.workloads import resnet_56

LIMIT = 120


def until(found, what):
    """Poll with a deadline."""
    end = time.monotonic() + LIMIT
    while not found():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def children(pid):
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


# -- the end ----------------------------------------------------------------------------------------------------------

LATE = "import os, time\nwhile not os.path.exists({!r}):\n    time.sleep(0.02)"
STAYS = "from trainer.replicas import Leash\nLeash().stay()"


def replica(monkeypatch, path, text):
    """Give a Replica whose process runs this text: it says of itself what one that trains says."""
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)
    asked = argparse.Namespace(node=0, nodes=1, replicas=2, workload="cifar10")
    with monkeypatch.context() as patch:
        patch.setattr(replicas.sys, "executable", str(path))
        return replicas.Replica(asked, 0, ["127.0.0.1:1"], Voice(None))


def test_one_that_is_done_stays_until_all_are_for_the_others_may_still_be_hearing_it(tmp_path, monkeypatch):
    go = tmp_path / "go"
    early = replica(monkeypatch, tmp_path / "early", STAYS)
    late = replica(monkeypatch, tmp_path / "late", f"{LATE.format(str(go))}\n{STAYS}")
    watching = threading.Thread(target=replicas.watch, args=([early, late], Signals()))
    watching.start()
    until(lambda: early.is_done, "the first is done")
    time.sleep(10 * replicas.POLL_SECONDS)
    assert (early.is_running(), late.is_running(), late.is_done) == (True, True, False)
    go.touch()
    watching.join(LIMIT)
    for one in (early, late):
        one.end()
    assert [one.process.returncode for one in (early, late)] == [0, 0]


def test_one_that_is_done_waits_for_none_that_failed(tmp_path, monkeypatch):
    both = [replica(monkeypatch, tmp_path / name, text) for name, text in (("done", STAYS), ("fails", "exit(3)"))]
    replicas.watch(both, Signals())
    for one in both:
        one.end()
    assert [one.process.returncode for one in both] == [0, 3]


def test_what_a_library_left_without_an_end_of_line_hides_no_last_word(tmp_path, monkeypatch):
    one = replica(monkeypatch, tmp_path / "one", f"print('NCCL INFO', end='')\n{STAYS}")
    replicas.watch([one], Signals())
    one.end()
    assert one.process.returncode == 0


class Told(Signals):
    """Hears SIGTERM when it is asked for the third time: the replicas have been started, and can't hear yet."""

    asked = 0

    def check(self, step):
        Signals.check(self, step)
        self.asked += 1

    @property
    def received(self):
        return signal.SIGTERM if self.asked else None

    @received.setter
    def received(self, number):
        pass


def test_a_signal_that_comes_before_they_can_hear_it_is_no_crash(tmp_path, monkeypatch):
    asked = argparse.Namespace(node=0, nodes=1, replicas=2, workload="cifar10")
    path = tmp_path / "deaf"
    path.write_text(f"#!{sys.executable}\nimport time\ntime.sleep({LIMIT})\n")
    path.chmod(0o755)
    monkeypatch.setattr(replicas.sys, "executable", str(path))
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    with pytest.raises(Stop, match="ended by signal 15") as stopped:
        replicas.lead(asked, None, Voice(None), Told())
    assert (stopped.value.kind, stopped.value.exit_code) == ("interrupted", 143)


@pytest.fixture
def port(monkeypatch):
    """Where node 0 is met."""
    (free,) = meeting.free_ports(1)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free))
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    return free


def test_who_knocks_and_goes_does_not_keep_the_machines_apart(port):
    with ThreadPoolExecutor() as threads:
        first = threads.submit(meeting.meet, 2, 0, 1, Signals())
        until(lambda: knocked(port), "node 0 listens")
        second = threads.submit(meeting.meet, 2, 1, 1, Signals())
        assert first.result(LIMIT) == second.result(LIMIT)


def test_a_machine_that_dies_while_it_waits_and_comes_again_keeps_nobody_apart(port):
    with ThreadPoolExecutor() as threads:
        first = threads.submit(meeting.meet, 3, 0, 1, Signals())
        until(lambda: knocked(port, b'{"node": 1, "ports": [1]}\n'), "node 0 listens")
        others = [threads.submit(meeting.meet, 3, node, 1, Signals()) for node in (1, 2)]
        found = first.result(LIMIT)
        assert [other.result(LIMIT) for other in others] == [found, found]
    assert "127.0.0.1:1" not in found, "the ports that it has now"


def knocked(port, word=b""):
    """Connect and go: without a word as one who looks for open ports does, or with one as who dies."""
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if line.connect_ex(("127.0.0.1", port)):
            return False
        line.sendall(word)
        return True


def test_a_last_word_that_another_machine_did_not_wait_for_is_no_failure():
    class Gone:
        asked = 0

        def agreed(self, number):
            self.asked += 1
            raise group.Lost("Socket closed")

    network = Gone()
    group.parted(network, Group(0, 2, nodes=2))
    assert network.asked == 1


@pytest.mark.torch
@pytest.mark.parametrize("on_cards", [False, True])
def test_on_cards_one_that_fails_waits_for_nobody_before_it_tells_why(on_cards, monkeypatch):
    """There are no cards: the group of one is of processors, and is told that it is of cards."""
    needs("torch")
    import torch
    from torch import distributed

    from trainer.frameworks.pytorch.together import Together

    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    (free,) = meeting.free_ports(1)
    one = Together(Group(0, 1, workers=[f"127.0.0.1:{free}"]), torch.device("cpu"))
    one.on_cards = on_cards
    try:
        with pytest.raises(Stop, match="no number"):
            fails(one.close)
        assert distributed.is_initialized() is on_cards
    finally:
        one.close()
    assert not distributed.is_initialized(), "one that has not failed parts from the others"


def fails(close):
    try:
        raise Stop("nan", "no number")
    finally:
        close()


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


def test_two_replicas_have_the_losses_of_one_process_and_go_on_as_three(framework, alone, tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # for the world outside, and nobody's between them
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


class Doubled:
    """A batch's examples in float64: weights that are float64 too are then trained in it, all but the loss."""

    def __init__(self, source):
        self.source = source

    def __call__(self, step):
        examples, labels = self.source(step)
        return examples.astype(np.float64), labels


def doubled_losses(name, own, steps=20):
    """Train a workload in PyTorch, in float64 and without dropout, as the replica that `own` says; give the losses."""
    from trainer.frameworks.pytorch import Network

    workload, random = entry.imported(name), np.random.RandomState(6)
    images, labels = random.randint(0, 256, (640, 32, 32, 3)).astype(np.uint8), random.randint(0, 10, 640)
    dataset = data.Dataset(images, labels.astype(np.int32), "synthetic", 1)
    model = Model(layers.without(workload.NETWORK, "dropout"), workload.RECIPE, workload.INPUT, 16)
    network = Network(model, "cpu", threads=1, group=own)
    network.load({key: array.astype(np.float64) for key, array in model.first(0).items()})
    source = Doubled(group.sliced(workload.source(dataset, 16, 0, 0.01), own))
    batches = network.batches(source, 0, steps)
    turns = [model.turn(step, 0, own.share(16)) for step in range(steps)]
    found = [float(network.train(batch, turn)[0]) for batch, turn in zip(batches, turns, strict=True)]
    network.close()
    return found


@pytest.fixture(scope="module")
def two_processes():
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GLOO_SOCKET_IFNAME", "lo")  # meeting.py does that for a training
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            yield pool


@pytest.mark.torch
@pytest.mark.parametrize("name", ["cifar10", "cifar10-keras"])
def test_twenty_steps_of_two_replicas_are_those_of_one_process_where_little_is_rounded(name, two_processes):
    needs("torch")
    workers = [f"127.0.0.1:{port}" for port in meeting.free_ports(2)]
    asked = [(name, Group(rank, 2, rank, 2, workers=workers)) for rank in range(2)]
    two = two_processes.starmap_async(doubled_losses, asked, chunksize=1)
    one = doubled_losses(name, Group())
    first, second = two.get(LIMIT)
    assert first == second == pytest.approx(one, abs=1e-5)


@pytest.mark.torch
def test_with_batch_norm_a_step_is_the_mean_of_what_each_replica_would_do_alone(tmp_path):
    """Its statistics are of each one's own part, as DistributedDataParallel has it: kept are those of the first."""
    needs("torch")
    from trainer.frameworks.pytorch import Network

    trained(tmp_path, "resnet-56", "--framework", "pytorch", "--batch", "8", "--steps", "1", "--replicas", "2")
    assert events(tmp_path, "replicas")[0]["identical"] is True
    _, found = checkpoint.read(str(tmp_path / "checkpoints" / "step-1.npz"))
    source = resnet_56.source(resnet_56.load(None), 8, 0, None)
    alone = []
    for rank in range(2):
        network = Network(Model(resnet_56.NETWORK, resnet_56.RECIPE, resnet_56.INPUT, 4), "cpu", threads=1)
        network.load(network.model.first(0))
        (batch,) = network.batches(group.sliced(source, Group(rank, 2)), 0, 1)
        alone.append((float(network.train(batch, network.model.turn(0, 0))[0]), network.values()))
    (loss, first), (other, second) = alone
    assert losses(tmp_path) == pytest.approx([(loss + other) / 2], abs=1e-5)
    for name, array in found.items():
        wanted = (first[name] + second[name]) / 2 if name in network.model.weights else first[name]
        if "/" in name and not name.startswith("velocity/"):
            assert np.abs(array - wanted).max() < 1e-5, name


# -- ends -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def training(tmp_path, request):
    """Give a training of two replicas that has begun, in PyTorch or what is asked for."""
    needs("torch")
    process = start("cifar10", "--framework", getattr(request, "param", "pytorch"), "--device", "cpu", "--threads", "1",
                    "--batch", "32", "--steps", "100000", "--replicas", "2", "--out", tmp_path, "--record",
                    PYTHONPATH=f"{slow_disk(tmp_path / 'slow')}:{CONTAINERS}")  # fmt: skip
    until(lambda: (tmp_path / "events.jsonl").exists() and events(tmp_path, "step"), "no step was done")
    yield process
    process.kill()
    process.communicate()


def slow_disk(folder):
    """Give a folder for the path of modules that makes a checkpoint take longer than a replica is waited for."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import time\nfrom trainer import checkpoint, replicas\n"
        "write, replicas.GRACE_SECONDS = checkpoint.write_whole, 1\n"
        "def slowly(*words):\n    time.sleep(2)\n    write(*words)\ncheckpoint.write_whole = slowly\n"
    )
    return folder


@pytest.mark.torch
@pytest.mark.parametrize("training", ["pytorch", "tf2"], indirect=True)
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
        (("resnet-56", "--batch", "5", "--replicas", "3"), "a batch of 5 is too small for 3 replicas: say --batch 6"),
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


def test_the_parent_loads_no_framework():
    seen = subprocess.run(
        [sys.executable, "-c", "import trainer.__main__, sys; print({'torch', 'tensorflow'} & set(sys.modules))"],
        env={**os.environ, "PYTHONPATH": str(CONTAINERS)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert seen.stdout == "set()\n"
