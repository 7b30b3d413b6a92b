"""Evaluation: each example counts once, and a user's test set is opened before the training."""

import argparse
import re

import numpy as np
import pytest
from drawn import pets
from fake_network import FakeNetwork
from own_process import Said
from trainer_process import events, trainer

from trainer import data, evaluation
from trainer.events import Events, Outside, Stop, Voice
from trainer.group import ALONE
from trainer.recipe import Model
from trainer.signals import Signals
from trainer.workloads import catdog, cifar10, cifar10_keras

MODEL = Model(cifar10.NETWORK, cifar10.RECIPE, cifar10.INPUT, 128)
MANY = data.Dataset(np.zeros((1203, 32, 32, 3), np.uint8), np.arange(1203) % 10, "synthetic", 1)


def evaluated(folder, network, most=500, model=MODEL):
    """Test the network on MANY; return the output."""
    said = Said()
    outside = Outside(Events(str(folder)), Voice(said), Signals())
    evaluation.evaluate(cifar10, model, MANY, network, 9, outside, most)
    return said


def test_every_test_image_counts_once(tmp_path):
    said = evaluated(tmp_path, FakeNetwork())
    (event,) = events(tmp_path, "eval")
    assert (event["examples"], event["precision_at_1"], event["step"]) == (1203, 121 / 1203, 9)
    assert event["loss"] is None
    assert said[0] == "Testing the network on 1203 other images\n"
    assert re.match(r"^\S+ \S+: precision @ 1 = 0\.101\n$", said[1])


def test_what_counts_accuracy_is_told_its_loss_too_as_keras_tells_it(tmp_path):
    model = Model(cifar10_keras.NETWORK, cifar10_keras.RECIPE, cifar10_keras.INPUT, 32)
    said = evaluated(tmp_path, FakeNetwork(), model=model)
    (event,) = events(tmp_path, "eval")
    assert event["loss"] == pytest.approx(np.log(np.e + 9) - 121 / 1203)  # the logits are 1 and nine times 0
    assert said[1].endswith(f": precision @ 1 = 0.101, loss = {event['loss']:.4f}\n")


def test_the_cross_entropy_of_one_number_is_of_its_sigmoid():
    model = Model(catdog.NETWORK, catdog.RECIPE, catdog.INPUT, 2)
    logits = np.array([[2.0], [2.0], [-800.0], [-800.0]], np.float32)
    right, wrong = np.log1p(np.exp(-2)), np.log1p(np.exp(2))
    assert model.entropies(logits, np.array([1, 0, 0, 1])) == pytest.approx([right, wrong, 0, 800])


def test_a_test_takes_no_more_at_once_than_was_trained_with(tmp_path):
    sizes = []

    class Counting(FakeNetwork):
        def logits(self, examples):
            sizes.append(len(examples))
            return FakeNetwork.logits(self, examples)

    for most in (128, 600, 1):
        said = evaluated(tmp_path, Counting(), most)
        assert len(said) == 2, "a quick test has no line between these"
    few = evaluation.FEW_VALUES // (24 * 24 * 3)
    assert sizes == [128] * 9 + [51] + [500] * 2 + [203] + [few] * (1203 // few) + [1203 % few]


def test_a_slow_test_says_once_how_far_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, "QUIET_SECONDS", 0)
    assert evaluated(tmp_path, FakeNetwork(), 128)[1:-1] == ["Still testing: 128 of them in 0 s\n"]


def test_what_is_no_number_is_no_guess(tmp_path):
    class Diverged:
        def logits(self, images):
            return np.full((len(images), 10), np.nan)

    with pytest.raises(Stop, match="on the test's images is not finite") as stop:
        evaluated(tmp_path, Diverged())
    assert (stop.value.kind, stop.value.step) == ("nan", 8)


def test_somebodys_own_test_set_is_opened_beforehand_and_a_made_one_only_when_it_is_needed():
    asked, opened = argparse.Namespace(feed="ahead", no_eval=False, data="own"), []
    workload = argparse.Namespace(load_test=lambda folder: opened.append(folder) or "found")
    given = evaluation.opened(asked, workload, ALONE)
    assert opened == ["own"]
    asked.data = None
    made = evaluation.opened(asked, workload, ALONE)
    assert opened == ["own"]
    assert (given(), made(), opened) == ("found", "found", ["own", None])
    asked.no_eval, asked.data = True, "own"
    assert evaluation.opened(asked, workload, ALONE)() is None
    assert opened == ["own", None]


@pytest.mark.tensorflow
@pytest.mark.parametrize("words", [(), ("--no-eval",)])
def test_a_test_set_that_is_none_is_told_before_the_first_step(tmp_path, words):
    for path in pets(tmp_path / "pets", 1).glob("test/*/*"):
        path.rename(tmp_path / "pets" / "test" / path.name)
    said = "--framework", "tf2", "--device", "cpu", "--batch", 2, "--steps", 1, "--data", tmp_path / "pets"
    code, _, err = trainer("catdog", "--out", tmp_path / "run", *said, *words)
    assert (code, len(events(tmp_path / "run", "step"))) == ((0, 1) if words else (1, 0)), err
    assert [event["kind"] for event in events(tmp_path / "run", "error")] == ([] if words else ["data"])
