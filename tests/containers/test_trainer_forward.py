"""The loop without training: a network runs forward, and its speed and latency are reported."""

import argparse
import re
import signal

import numpy as np
import pytest
from fake_network import FakeNetwork, asked
from own_process import Said
from trainer_process import events

from trainer import data, epochs, layers, loop
from trainer.events import Events, Outside, Stop, Voice, clock
from trainer.group import ALONE
from trainer.recipe import Model, untrained
from trainer.signals import Signals


def forward(tmp_path, network, signals=None, **changes):
    """Run five frames forward only, in batches of two; return the output."""
    small = {"workload": "small", "batch": 2, "steps": 5, "log_frequency": 1, "queue_fraction": 0.4, "no_eval": False}
    typed = asked(tmp_path, **{**small, **changes})
    words, images = [layers.dense("d", 3, 2, layers.normal(1), None)], np.zeros((5, 3), np.float32)
    source = epochs.in_order(lambda part: part)
    workload = argparse.Namespace(NETWORK=words, PARAMETERS=6, MACS=6, FLOPS=12, UNIT="frames", source=source)
    dataset = data.Dataset(images, np.zeros(5, np.int32), "synthetic", 1, note="zeros")
    said, model = Said(), Model(words, untrained(), (3,), 2)
    outside = Outside(Events(str(tmp_path)), Voice(said), signals or Signals())
    loop.train(loop.Training(typed, workload, model, dataset, network, outside, ALONE))
    return said


def test_what_trains_nothing_tells_its_speed_and_keeps_nothing(tmp_path):
    network = FakeNetwork()
    said = forward(tmp_path, network)
    assert network.trained == []
    assert network.inferred == [2, 2, 1, 2, 2], "the last batch of a pass is smaller"
    kinds = [event["event"] for event in events(tmp_path)]
    assert kinds == ["start"] + ["step"] * 5 + ["finish"]
    steps = events(tmp_path, "step")
    assert {(step["loss"], step["learning_rate"]) for step in steps} == {(None, None)}
    assert steps[0]["examples_per_second"] is None
    assert [round(step["examples_per_second"] * step["seconds_per_batch"]) for step in steps[1:]] == [2, 1, 2, 2]
    assert said[0].startswith("It takes 5 steps of 2 ")
    assert re.match(r"^\S+ \S+: step 1 \([\d.]+ examples/sec; [\d.]+ sec/batch\)\n$", said[2])
    assert not (tmp_path / "checkpoints").exists()


class TimedNetwork(FakeNetwork):
    def __init__(self):
        FakeNetwork.__init__(self)
        self.waited, self.asked = [], None

    def batches(self, source, first, last, feed):
        for step in range(first, last):
            self.asked = clock()
            yield source(step)

    def infer(self, batch):
        np.linalg.svd(np.ones((60, 60)))  # busy work
        found = FakeNetwork.infer(self, batch)
        self.waited.append(clock() - self.asked)
        return found


@pytest.mark.parametrize("often", [1, 2, 7])
def test_a_latency_is_of_one_whole_batch_from_asking_for_it_and_none_of_the_start_up(tmp_path, often):
    network = TimedNetwork()
    forward(tmp_path, network, steps=14, log_frequency=often)
    told = events(tmp_path, "step")
    found = [seconds for step in told for seconds in step.get("latency_seconds", [])]
    assert "latency_seconds" not in told[0]
    assert [len(step.get("latency_seconds", [])) for step in told] == {
        1: [0, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1], 2: [0, 1, 2, 1, 1, 2, 1], 7: [0, 5]
    }[often]  # fmt: skip
    whole = [seconds for step, seconds in enumerate(network.waited) if step % 3 < 2][1 : 1 + len(found)]
    assert all(inside <= seconds for inside, seconds in zip(whole, found, strict=True))
    assert sum(found) <= sum(step["seconds_per_batch"] * often for step in told[1:])


def test_told_to_end_what_trains_nothing_ends_without_a_checkpoint(tmp_path):
    signals = Signals()
    with pytest.raises(Stop) as stop:
        forward(tmp_path, FakeNetwork(at={2: lambda: signals.receive(signal.SIGTERM, None)}), signals)
    assert (stop.value.kind, stop.value.step, stop.value.exit_code) == ("interrupted", 3, 143)
    assert not (tmp_path / "checkpoints").exists()


def test_what_is_computed_and_no_number_stops_with_its_batch(tmp_path):
    with pytest.raises(Stop, match="on batch 3 is not finite") as stop:
        forward(tmp_path, FakeNetwork({3: float("nan")}))
    assert (stop.value.kind, stop.value.step) == ("nan", 3)
