"""What the log reports of an epoch, whole or resumed: sums over its examples, a smaller last batch included."""

import argparse
import io
import re

import pytest
from trainer_process import events

from trainer.events import Events, Outside, Voice
from trainer.log import Log
from trainer.recipe import Model, recipe, sgd
from trainer.workloads import cifar10


class Counted:
    """The log of a workload that counts accuracy, three steps per epoch."""

    def __init__(self, folder):
        self.said, self.folder = io.StringIO(), folder
        asked = argparse.Namespace(log_frequency=10, batch=4)
        model = Model(cifar10.NETWORK, recipe(sgd(), 0.1, counted=True), cifar10.INPUT, 4)
        self.log = Log(asked, model, Outside(Events(str(folder)), Voice(self.said), None), 3)

    def epochs(self):
        kept = ("step", "epoch", "examples", "loss", "accuracy")
        return [tuple(event[key] for key in kept) for event in events(self.folder, "epoch")]


def test_an_epoch_is_summed_up_over_its_examples(tmp_path):
    counted = Counted(tmp_path)
    for step, (examples, loss, right) in enumerate([(4, 3.0, 1), (4, 2.0, 2), (2, 1.0, 2), (4, 1.0, 4)]):
        counted.log.add(step, examples, loss, right)
    assert counted.epochs() == [(3, 1, 10, pytest.approx(2.2), 0.5)]
    _, said = counted.said.getvalue().splitlines()
    assert re.match(r"^\S+ \S+: epoch 1, loss = 2\.2000, accuracy = 0\.5000 \(\d+ s\)$", said)


def test_a_resumed_epoch_is_the_rest_of_one(tmp_path):
    counted = Counted(tmp_path)
    for step in range(5, 9):
        counted.log.add(step, 4, 1.0, 3)
    assert [epoch[:3] for epoch in counted.epochs()] == [(6, 2, 4), (9, 3, 12)]


def test_a_smaller_last_batch_counts_with_what_it_has(tmp_path):
    counted = Counted(tmp_path)
    for step in range(11):
        counted.log.add(step, 1 if step == 5 else 4, 1.0, 0)
    _, second = events(tmp_path, "step")
    assert second["examples_per_second"] * second["seconds_per_batch"] == pytest.approx(3.7)
