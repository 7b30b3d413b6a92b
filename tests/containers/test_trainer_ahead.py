import argparse
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from trainer import __main__ as entry
from trainer import ahead as module
from trainer import data
from trainer.ahead import Line, ahead, meanwhile
from trainer.workloads import catdog, cifar10


def test_threads_ahead_give_the_batches_in_order():
    source = cifar10.source(data.Dataset(np.zeros((300, 32, 32, 3), np.uint8), np.arange(300), "x", 1), 8, 0, 0.001)
    alone = cifar10.source(data.Dataset(np.zeros((300, 32, 32, 3), np.uint8), np.arange(300), "x", 1), 8, 0, 0.001)
    made = [labels.tolist() for _, labels in ahead(source, 0, 30, threads=4)]
    assert made == [alone(step)[1].tolist() for step in range(30)]


def test_threads_ahead_hand_on_errors_and_end():
    before = set(threading.enumerate())  # some of another test's threads may still end

    def source(step):
        if step == 3:
            raise OSError("disk gone")
        return step

    made = ahead(source, 0, 10)
    assert [next(made), next(made), next(made)] == [0, 1, 2]
    with pytest.raises(OSError, match="disk gone"):
        next(made)
    early = ahead(lambda step: step, 0, 10**9)
    assert next(early) == 0
    early.close()
    assert not set(threading.enumerate()) - before


@pytest.mark.parametrize(("python", "seconds"), [((2, 7, 18), 0.002), ((3, 6, 0), 1)])
def test_python_2_looks_often_for_a_batch_because_a_long_wait_would_notice_it_late(monkeypatch, python, seconds):
    monkeypatch.setattr(module, "sys", SimpleNamespace(version_info=python))
    line, waited = Line(str, 0, 1), []

    def wait(seconds):
        waited.append(seconds)
        line.made[0] = "made", None

    monkeypatch.setattr(line.changed, "wait", wait)
    assert line.take(0) == "made"
    assert waited == [seconds]


def test_as_many_batches_wait_as_they_may():
    line = Line(str, 5, 10, depth=2)
    assert [line.claim(), line.claim()] == [5, 6]
    line.made[5] = "made", None
    line.take(5)
    assert line.claim() == 7
    assert line.claimed == line.taken + 2


def test_what_is_done_meanwhile_is_under_way_at_once_and_its_error_is_raised_where_it_is_waited_for():
    begun, go_on = threading.Event(), threading.Event()

    def made(name):
        begun.set()
        assert go_on.wait(240)
        if name == "bad":
            raise OSError("disk gone")
        return name

    for name in "good", "bad":
        begun.clear()
        go_on.clear()
        wait = meanwhile(made, name)
        assert begun.wait(240), "before anybody waits for it"
        go_on.set()
        if name == "good":
            assert wait() == "good"
    with pytest.raises(OSError, match="disk gone"):
        wait()


def test_a_set_is_loaded_while_the_framework_is_but_for_pictures_which_that_may_have_to_decode(monkeypatch):
    calls = []
    monkeypatch.setattr(entry, "meanwhile", lambda function, *words: calls.append(words) or function)
    for workload, folder in (cifar10, None), (cifar10, "/data"), (catdog, None):
        entry.loading(argparse.Namespace(data=folder), workload)
    assert calls == [(None,), ("/data",), (None,)]
    entry.loading(argparse.Namespace(data="/data"), catdog)
    assert len(calls) == 3
