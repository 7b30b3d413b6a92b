"""Two machines train like one process: the same losses, one record, and the same weights at the end.

Both are this machine: they meet at a port on loopback.
"""

import lzma
import os
import runpy
import socket
import subprocess
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from trainer_process import CONTAINERS, FEW, events, losses, names, start, trained, trainer, until

from trainer import data, meeting, replicas
from trainer.arguments import arguments
from trainer.links import Links
from trainer.signals import Signals

LIMIT = 240
PACKED = Path(__file__).parents[3] / "shared" / "cifar10"


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Return a value for --data: what NGCDL_TEST_CIFAR10 names, else CIFAR-10's first 10,000 images five times over, if
    packed beside the checkout, else "synthetic"."""
    if "NGCDL_TEST_CIFAR10" in os.environ or not PACKED.is_dir():
        return os.environ.get("NGCDL_TEST_CIFAR10", "synthetic")
    folder = tmp_path_factory.mktemp("cifar10")
    packed = (PACKED / "train-00000-29999.xz").read_bytes()  # 30,000 labels come first
    rows = np.frombuffer(lzma.LZMADecompressor().decompress(packed, 30000 + 10000 * 3072), np.uint8)
    decode = runpy.run_path(str(PACKED / "unpack.py"))["decode"]
    pixels = decode(rows[30000:].reshape(-1, 3, 32, 32)).reshape(-1, 3072)
    _, (first, *others), _ = data.BINARY
    (folder / first).write_bytes(np.concatenate([rows[:10000, None], pixels], 1).tobytes())
    for other in others:
        (folder / other).symlink_to(first)
    return folder


def on_two_machines(folder, *words, second=(), **environment):
    """Train on both, the second with extra arguments; return each (exit code, stdout, stderr)."""
    words += "--device", "cpu", "--no-eval", "--log-frequency", "1", "--threads", "1", "--out", folder
    with closing(meeting.Ports(1)) as met:
        place = {"NGCDL_NODES": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(*met.numbers), **environment}
        nodes = [start(*words, *own, "--samples", f"n{node}", NGCDL_NODE=str(node), **place)
                 for node, own in ((1, second), (0, ()))]  # fmt: skip
        try:
            said = [node.communicate(timeout=LIMIT) for node in nodes]
        except subprocess.TimeoutExpired:
            pytest.fail("they did not end; killed, they had said " + repr([killed(node) for node in nodes]))
    return [(node.returncode, *told) for node, told in reversed(list(zip(nodes, said, strict=True)))]


def killed(node):
    node.kill()
    return (node.returncode, *node.communicate())


@pytest.mark.torch
def test_two_machines_train_real_images_as_one_process_does_and_end_with_the_same_weights(images, tmp_path, few):
    words = "cifar10-keras", "--framework", "pytorch", "--batch", "64", "--steps", "12", "--no-dropout"
    words += "--data", images
    one, _ = trained(tmp_path / "one", *words, images={"train": FEW["train"][0]})
    first, second = on_two_machines(tmp_path / "two", *words, PYTHONPATH=few)
    assert (first[0], second[0]) == (0, 0), (first, second)
    assert (first[1].count(": step "), second[1]) == (12, "")
    assert losses(tmp_path / "two") == pytest.approx(one, abs=5e-3)  # rounding differences; see docs/results.md
    (began,), (alike,) = events(tmp_path / "two", "start"), events(tmp_path / "two", "replicas")
    assert (began["replicas"], began["nodes"]) == (2, 2)
    assert (alike["step"], alike["identical"]) == (12, True)
    assert alike["weights_least"] == alike["weights_most"] > 1000
    assert names(tmp_path / "two") == ["checkpoints", "events.jsonl", "lock", "samples-n0.jsonl", "samples-n1.jsonl"]
    if images == "synthetic":
        pytest.skip("held on made images: CIFAR-10 is not here, name a folder with it in NGCDL_TEST_CIFAR10")
    assert began["dataset"] == "cifar10"


@pytest.mark.torch
def test_a_signal_ends_a_machine_whose_replica_waits_for_another_that_never_comes(tmp_path, monkeypatch, few):
    """The other replica may have failed or still be loading; in this test nobody starts it."""
    words = "cifar10", "--framework", "pytorch", "--device", "cpu", "--out", tmp_path, "--samples", "n0", "--record"
    with closing(meeting.Ports(2)) as held, closing(Links(1)) as links:
        place, own = held.numbers
        names_of = {"NGCDL_NODES": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(place)}
        first = start(*words, NGCDL_NODE="0", PYTHONPATH=few, **names_of)
        for name, value in names_of.items():
            monkeypatch.setenv(name, value)
        asked = vars(arguments(["cifar10", "--framework", "pytorch", "--device", "cpu", "--out", "unused"]))
        alike = {name: asked[name] for name in replicas.ALIKE}
        host, _, port = meeting.meet(2, 1, [own], Signals(), alike, links, print)[0].rpartition(":")
        until(lambda: answers(host, int(port)), "the replica waits for the other")
        time.sleep(1)  # the replica listens briefly before it waits
        first.terminate()
        try:
            _, err = first.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            pytest.fail(f"it did not end; killed, it had said {killed(first)}")
    assert (first.returncode, "told to stop" in err) == (143, True), err
    (error,) = events(tmp_path, "error")
    assert error["kind"] == "interrupted"


def answers(host, port):
    with socket.socket() as line:
        return line.connect_ex((host, port)) == 0


OTHER_WEIGHTS = f"""
import os
from trainer import data, recipe
data.SYNTHETIC = {FEW}
if os.environ.get("NGCDL_NODE") == "1":
    recipe.Model.first = lambda self, seed, first=recipe.Model.first: first(self, seed + 1)
"""
NO_FRAMEWORK = """
import os, time
if os.environ.get("NGCDL_NODE") == "1":
    raise ImportError("broken")
time.sleep(1000)
"""


@pytest.mark.torch
def test_machines_whose_weights_part_stop_and_keep_nothing_of_them(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(OTHER_WEIGHTS)
    words = "cifar10-keras", "--framework", "pytorch", "--batch", "2", "--steps", "1"
    first, second = on_two_machines(tmp_path, *words, PYTHONPATH=f"{tmp_path}:{CONTAINERS}")
    assert (first[0], second[0]) == (1, 1)
    (error,) = events(tmp_path, "error")
    assert (error["kind"], error["step"]) == ("replicas_differ", 1)
    assert "was every node started with the same arguments?" in first[2]
    assert "replicas_differ" in second[2]
    assert not events(tmp_path, "checkpoint")


def test_a_machine_whose_replica_fails_before_it_joins_leaves_none_waiting(tmp_path):
    (tmp_path / "torch.py").write_text(NO_FRAMEWORK)
    words = "cifar10", "--framework", "pytorch"
    first, second = on_two_machines(tmp_path / "run", *words, PYTHONPATH=f"{tmp_path}:{CONTAINERS}")
    said = "no framework can be imported here (pytorch: broken)\n"
    assert (first[0], first[2]) == (1, f"bad_argument: node 1: {said}")
    assert (second[0], second[2]) == (1, f"bad_argument: {said}")


def test_a_machine_with_another_seed_is_refused_before_any_replica_starts(tmp_path, without_tensorflow):
    words = "cifar10", "--framework", "tf2"
    both = on_two_machines(tmp_path, *words, second=("--seed", "1"), PYTHONPATH=without_tensorflow)
    said = "bad_argument: node 1 was started with seed 1, and node 0 with seed 0: all need the same\n"
    assert [(code, err) for code, _, err in both] == [(1, said)] * 2


@pytest.mark.parametrize(
    ("environment", "exit_code", "said"),
    [
        ({"NGCDL_NODES": "2", "MASTER_ADDR": ""}, 1, "MASTER_ADDR and MASTER_PORT must say where node 0 is"),
        ({"NGCDL_NODES": "2", "MASTER_ADDR": "::1", "MASTER_PORT": "65536"}, 1, "must say where node 0 is"),
        ({}, 2, "NGCDL_NODES must be the number of machines, and NGCDL_NODE which"),
        ({"NGCDL_NODES": "two"}, 2, "NGCDL_NODES must be the number of machines, and NGCDL_NODE which"),
    ],
)
def test_a_node_that_does_not_know_its_place_says_so(tmp_path, environment, exit_code, said):
    """Node 1 of a single one would train, and neither say nor record it."""
    code, _, err = trainer("cifar10", "--out", tmp_path, NGCDL_NODE="1", **environment)
    assert (code, said in err) == (exit_code, True), err
    assert names(tmp_path) == []  # node 0 records
