"""Several replicas end together, for one reason: one is done, fails, is told to end, or is killed."""

import argparse
import io
import json
import os
import signal
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from trainer_process import CONTAINERS, FEW, events, start, until

from trainer import group, layers, meeting, replicas
from trainer.events import Stop, Voice
from trainer.group import Group
from trainer.links import Links
from trainer.recipe import Model, recipe, sgd
from trainer.signals import Signals

LIMIT = 240


LATE = "import os, time\nwhile not os.path.exists({!r}):\n    time.sleep(0.02)"
STAYS = "from trainer.replicas import Leash\nLeash().stay()"


def replica(monkeypatch, path, text, stdout=None):
    """Return a Replica whose process runs this text, which reports like a training one."""
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)
    asked = argparse.Namespace(node=0, nodes=1, replicas=2, workload="cifar10")
    with monkeypatch.context() as patch:
        patch.setattr(replicas.sys, "executable", str(path))
        return replicas.Replica(asked, 0, ["127.0.0.1:1"], Voice(stdout))


def test_one_that_is_done_stays_until_all_are_for_the_others_may_still_be_hearing_it(tmp_path, monkeypatch):
    go = tmp_path / "go"
    early = replica(monkeypatch, tmp_path / "early", STAYS)
    late = replica(monkeypatch, tmp_path / "late", f"{LATE.format(str(go))}\n{STAYS}")
    watching = threading.Thread(target=replicas.watch, args=([early, late], Signals(), Links(0)))
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
    replicas.watch(both, Signals(), Links(0))
    for one in both:
        one.end()
    assert [one.process.returncode for one in both] == [0, 3]


def test_what_a_library_left_without_an_end_of_line_hides_no_last_word(tmp_path, monkeypatch):
    one = replica(monkeypatch, tmp_path / "one", f"print('NCCL INFO', end='')\n{STAYS}")
    replicas.watch([one], Signals(), Links(0))
    one.end()
    assert one.process.returncode == 0


def test_what_a_library_prints_that_is_no_text_costs_only_these_letters(tmp_path, monkeypatch):
    stdout, text = io.TextIOWrapper(io.BytesIO(), "utf-8"), r"import os; os.write(1, b'caf\xe9 \xc3\xa9\n')"
    one = replica(monkeypatch, tmp_path / "one", f"{text}\n{STAYS}", stdout)
    replicas.watch([one], Signals(), Links(0))
    one.end()
    assert (one.process.returncode, stdout.buffer.getvalue().decode()) == (0, "caf\ufffd \u00e9\n")


@pytest.mark.parametrize("line", ["a line", r"\x1e{torn"])
def test_one_that_can_t_be_listened_to_any_more_ends_all_with_the_reason(tmp_path, monkeypatch, capsys, line):
    stdout = io.StringIO()
    stdout.close()
    one = replica(monkeypatch, tmp_path / "one", f"print('{line}', flush=True)\n{STAYS}", stdout)
    replicas.watch([one], Signals(), Links(0))
    one.end()
    assert (one.has_failed(), one.reason()[-1].kind) == (True, "crash")
    assert "Error" in one.reason()[-1].message
    assert "Traceback" in capsys.readouterr().err


HEARS = """
import time
from trainer import replicas
from trainer.events import Stop
signals = replicas.Patient()
signals.install()
replicas.report(framework="tf2")
while not signals.received:
    time.sleep(0.01)
time.sleep(0.2)
exit(replicas.Telling(1, "").tell(Stop("interrupted", "told to stop", None, 143)))
"""


def test_a_signal_that_comes_before_one_can_hear_it_is_no_crash(tmp_path, monkeypatch):
    texts = {"hears": HEARS, "deaf": f"import time\ntime.sleep({LIMIT})"}
    both = [replica(monkeypatch, tmp_path / name, text) for name, text in texts.items()]
    monkeypatch.setattr(replicas, "Replica", lambda *_: both.pop(0))
    signals, links = Signals(), Links(0)
    links.choose = lambda heard: setattr(signals, "received", heard and signal.SIGTERM)  # the first can hear now
    with pytest.raises(Stop, match="told to stop") as stopped:
        replicas.conduct(argparse.Namespace(replicas=2), [], links, None, signals)
    assert (stopped.value.kind, stopped.value.exit_code) == ("interrupted", 143)


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
@pytest.mark.parametrize(
    ("text", "is_lost"),
    [
        ("[../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:29500", True),
        ("[pair.cc:534] Read error [127.0.0.1]:29500: Connection reset by peer", True),
        ("[pair.cc:458] writev [10.0.0.2]:29500: Broken pipe", True),
        ("[unbound_buffer.cc:84] Timed out waiting 7200000ms for recv operation to complete", True),
        ("Application timeout caused pair closure", True),
        ("failed to recv, got 0 bytes", True),
        ("The client socket has failed to connect to any network address of (n1, 29500).", True),
        ("NCCL error in: ProcessGroupNCCL.cpp:1970, remote process exited or there was a network error", True),
        ("ncclRemoteError: A call failed possibly due to a network error or a remote process exiting", True),
        ("NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled cuda error\nLast error:\n"
         "Cuda failure 700 'an illegal memory access was encountered'", False),
        ("NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error\nLast error:\n"
         "Call to ibv_reg_mr failed with error Cannot register", False),
        ("The server socket has failed to listen on any local network address. EADDRINUSE", False),
    ],
)  # fmt: skip
def test_only_a_connection_that_broke_loses_a_replica_and_all_else_is_the_cause(text, is_lost):
    from trainer.frameworks.pytorch.together import translated

    why = "can't be reached" if is_lost else "the all-reduce failed: "
    with pytest.raises(Stop, match=why) as stopped, translated():
        raise RuntimeError(text)
    assert isinstance(stopped.value, group.Lost) is is_lost
    assert text in stopped.value.message


@pytest.mark.torch
def test_a_card_without_memory_for_nccl_is_no_lost_replica():
    from trainer.frameworks.pytorch.together import translated

    with pytest.raises(RuntimeError, match="Cuda failure 2"), translated():
        raise RuntimeError("NCCL error: unhandled cuda error. Last error:\nCuda failure 2 'out of memory'")


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("text", "together", "kind"),
    [
        ("Blas xGEMM launch failed : a.shape=[1,128,2304]", None, "InternalError"),
        ("CUDA_ERROR_OUT_OF_MEMORY: out of memory", None, "InternalError"),
        ("CUDA_ERROR_OUT_OF_MEMORY: out of memory", "others", "InternalError"),
        ("Dst tensor is not initialized.", "others", "InternalError"),
        ("Socket closed", "others", "Lost"),
    ],
)
def test_without_others_or_without_memory_tensorflow_loses_no_replica(text, together, kind):
    import tensorflow as tf
    from trainer.frameworks import tf2

    def fails(*_):
        raise tf.errors.InternalError(None, None, text)

    model = Model([layers.dense("d", 5, 3, layers.normal(1), layers.normal(1))], recipe(sgd(), rate=0.1), (5,), 4)
    network = tf2.Network(model, "cpu")
    network.step = network.fast = fails
    network.together = together
    with pytest.raises((tf.errors.InternalError, group.Lost)) as raised:
        network.train((np.ones((4, 5), np.float32), np.zeros(4, np.int32)), model.turn(0, 0))
    assert raised.typename == kind


@pytest.mark.torch
@pytest.mark.parametrize("on_cards", [False, True])
def test_on_cards_one_that_fails_waits_for_nobody_before_it_tells_why(torch, on_cards, monkeypatch):
    """Without cards, a group of one replica on a CPU is told that it is on cards."""
    from torch import distributed

    from trainer.frameworks.pytorch.together import Together

    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    with closing(meeting.Ports(1)) as ports:
        one = Together(Group(0, 1, workers=[f"127.0.0.1:{ports.numbers[0]}"]), torch.device("cpu"))
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


# -- whole trainings --------------------------------------------------------------------------------------------------


def children(pid):
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def training(tmp_path, request):
    """Start a training of two replicas, in PyTorch or the requested framework."""
    process = start("cifar10", "--framework", getattr(request, "param", "pytorch"), "--device", "cpu", "--threads", "1",
                    "--batch", "32", "--steps", "100000", "--replicas", "2", "--out", tmp_path, "--record",
                    PYTHONPATH=f"{planted(tmp_path / 'planted')}:{CONTAINERS}")  # fmt: skip
    until(lambda: (tmp_path / "events.jsonl").exists() and events(tmp_path, "step"), "no step was done", 240)
    yield process
    process.kill()
    process.communicate()


def planted(folder):
    """Return a PYTHONPATH folder that makes a checkpoint outlast the wait for a replica, and makes few images: making
    all takes each replica a second."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import time\nfrom trainer import checkpoint, data, replicas\n"
        f"data.SYNTHETIC = {FEW}\n"
        "write, replicas.GRACE_SECONDS = checkpoint.write_whole, 1\n"
        "def slowly(*words):\n    time.sleep(2)\n    write(*words)\ncheckpoint.write_whole = slowly\n"
    )
    return folder


@pytest.mark.torch
@pytest.mark.parametrize("training", ["pytorch", "tf2"], indirect=True)
def test_one_signal_ends_all_replicas_after_the_same_step_with_one_checkpoint(training, tmp_path):
    replicas = children(training.pid)
    os.kill(replicas[1], signal.SIGTERM)  # Slurm signals all processes, the parent forwards: any is enough
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
    assert (error["kind"], error["message"]) == ("crash", "replica 1 was killed by signal 9, without a message")
    assert "replica 1 was killed" in err
    assert not any(map(lives, replicas))


@pytest.mark.torch
def test_no_replica_outlives_a_parent_that_was_killed(training):
    replicas = children(training.pid)
    assert len(replicas) == 2
    training.kill()
    until(lambda: not any(map(lives, replicas)), "a replica lives on")
