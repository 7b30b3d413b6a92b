"""The timeline of the first steps: what each thread did, for Chrome and Perfetto."""

import json
import threading

import numpy as np
import pytest
from trainer_process import trained

from trainer import data, epochs, trace
from trainer.ahead import ahead
from trainer.workloads import cifar10


def images(many, side):
    random = np.random.RandomState(0)
    made = random.randint(0, 256, (many, side, side, 3)).astype(np.uint8)
    return data.Dataset(made, np.arange(many, dtype=np.int32) % 10, "synthetic", 1)


SOURCES = {
    "cifar10": lambda: cifar10.source(images(200, 32), 8, 0, 0.001),
    "shuffled": lambda: epochs.shuffled(data.scaled)(images(60, 4), 8, 0, 0.4),
}
STAGES = {
    "cifar10": ["crop", "flip", "float", "brightness", "contrast", "standardise"],
    "shuffled": ["gather", "prepare"],
}


def traced(path, name, steps=3, taken=None, begin=0):
    """Take batches made ahead by threads; return the trace's thread names, by id, and its slices."""
    trace.begin()
    batches = trace.first(
        ahead(trace.Source(SOURCES[name]()), begin, begin + 8), steps, str(path), {"workload": name}, begin
    )
    for number, _ in enumerate(batches, 1):
        if number == taken:
            batches.close()
    document = json.loads(path.read_text())
    events = document["traceEvents"]
    assert document["otherData"] == {"workload": name}
    threads = {one["tid"]: one["args"]["name"] for one in events if one["ph"] == "M"}
    return threads, [one for one in events if one["ph"] == "X"]


@pytest.mark.parametrize("name", SOURCES)
def test_the_stages_of_a_batch_lie_within_its_making_and_beside_the_training(tmp_path, name):
    threads, slices = traced(tmp_path / "trace.json", name)
    assert threads[0] == trace.LOOP
    of_loop = [(one["name"], one["args"]["step"]) for one in slices if one["tid"] == 0]
    assert of_loop == [(what, step) for step in range(3) for what in ("wait for a batch", "step")]
    made = [one for one in slices if one["name"] == "make a batch"]
    assert {0, 1, 2} <= {one["args"]["step"] for one in made}
    for whole in made:
        assert threads[whole["tid"]].startswith("batches ")
        end = whole["ts"] + whole["dur"]
        inside = [one for one in slices if one["tid"] == whole["tid"] and whole["ts"] <= one["ts"] < end]
        assert [one["name"] for one in inside] == ["make a batch", *STAGES[name]]
        assert all(one["ts"] + one["dur"] <= end + 1e-3 for one in inside)
    assert all(one["dur"] >= 0 for one in slices)
    waited, stepped = slices_of(slices, "wait for a batch"), slices_of(slices, "step")
    assert all(wait["ts"] + wait["dur"] <= step["ts"] for wait, step in zip(waited, stepped, strict=True))


def slices_of(slices, name):
    return [one for one in slices if one["name"] == name]


def test_a_resumed_training_s_steps_have_the_numbers_of_their_batches(tmp_path):
    _, slices = traced(tmp_path / "trace.json", "shuffled", begin=5)
    for name in "wait for a batch", "step":
        assert [one["args"]["step"] for one in slices_of(slices, name)] == [5, 6, 7]
    assert {5, 6, 7} <= {one["args"]["step"] for one in slices_of(slices, "make a batch")}


def test_who_takes_fewer_has_a_trace_of_those_and_no_thread_is_left(tmp_path):
    before = set(threading.enumerate())  # some of another test's threads may still end
    _, slices = traced(tmp_path / "trace.json", "shuffled", steps=5, taken=2)
    assert len(slices_of(slices, "step")) == 2
    assert not set(threading.enumerate()) - before


def test_where_nothing_is_traced_nothing_is_kept(tmp_path):
    traced(tmp_path / "trace.json", "shuffled")
    with trace.Slice("later") as nothing:
        assert nothing is None
    assert "later" not in (tmp_path / "trace.json").read_text()
    assert trace._kept is None


@pytest.mark.torch
def test_a_training_that_is_resumed_at_its_end_keeps_its_trace(tmp_path):
    words = "cifar10-keras", "--framework", "pytorch", "--steps", "2", "--trace", "9", "--resume", tmp_path
    trained(tmp_path, *words[:-2], images={"train": 64})
    before = (tmp_path / "trace.json").read_text()
    trained(tmp_path, *words, images={"train": 64})
    assert (tmp_path / "trace.json").read_text() == before
