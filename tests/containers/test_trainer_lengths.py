"""How long a training lasts: steps, epochs or seconds, whichever ends first."""

import argparse
import itertools

import pytest
from own_process import on_cpu
from trainer_process import events, train, trainer

from trainer import ahead, checkpoint, epochs, loop
from trainer.layers import constant, dense, normal
from trainer.recipe import Model, recipe, sgd


class Told(list):
    """A log that only records its calls."""

    def settle(self):
        self.append("settled")

    def end(self):
        self.append("ended")


def taken(seconds, count, clock):
    """Return how many of `count` batches are taken by this clock, and the log's calls."""
    log, times = Told(), iter(clock)
    return len(list(loop.within(seconds, range(count), log, lambda: next(times)))), log


def test_seconds_count_from_the_end_of_the_first_step():
    assert taken(2.5, 100, [60, 61, 62, 63, 64]) == (4, ["settled", "ended"])


def test_however_few_the_seconds_two_steps_are_done_for_the_second_has_a_rate():
    assert taken(1e-9, 100, [60, 61]) == (2, ["settled", "ended"])


def test_the_steps_may_end_before_the_seconds_do():
    assert taken(1000, 3, [60, 61, 62]) == (3, ["settled"])


def test_without_seconds_no_clock_is_read():
    assert taken(None, 5, []) == (5, [])


def test_a_last_step_that_is_far_away_takes_no_memory_to_count_to():
    assert list(itertools.islice(ahead.upto(7, loop.UNENDING), 3)) == [7, 8, 9]
    assert list(ahead.upto(3, 5)) == [3, 4]
    assert to_reach(epochs.in_turn, epochs=None, steps=10**20) == loop.UNENDING
    assert to_reach(epochs.shuffled(None), epochs=10**20) == loop.UNENDING


def test_a_training_that_its_seconds_end_is_saved_tested_and_told_as_any_other(framework, tmp_path):
    common = "--framework", framework, "--device", "cpu", "--batch", 4, "--seed", 3
    out = train("batch-sweep", "--out", tmp_path, *common, "--seconds", 0.001)
    (begun,) = events(tmp_path, "start")
    assert begun["steps"] is None
    (finished,) = events(tmp_path, "finish")
    assert finished["step"] == 2
    steps = events(tmp_path, "step")
    assert [event["step"] for event in steps] == [0, 1], "the real last step is told, though it is no tenth one"
    assert steps[0]["examples_per_second"] is None
    assert steps[1]["examples_per_second"] > 0
    assert ": step 1, loss = " in out
    assert checkpoint.read(str(tmp_path / "checkpoints" / "step-2.npz"))[0]["step"] == 2
    assert [event["step"] for event in events(tmp_path, "eval")] == [2]
    train("batch-sweep", "--out", tmp_path, *common, "--seconds", 1000, "--steps", 4, "--resume", tmp_path)
    assert events(tmp_path, "start")[1]["steps"] == 4
    assert events(tmp_path, "finish")[1]["step"] == 4


def to_reach(source, **asked):
    dataset = argparse.Namespace(images=range(41), labels=range(41))
    asked = argparse.Namespace(**{"steps": None, **asked})
    return loop.to_reach(asked, source(dataset, 4, 0, 1))


def test_epochs_are_as_many_steps_as_they_have():
    counting = epochs.shuffled(None)
    assert to_reach(counting, epochs=3) == 30, "ten steps each, for a rest of one example is left out"
    assert to_reach(counting, epochs=None, steps=7) == 7
    assert to_reach(counting, epochs=None) is None


@pytest.mark.torch
def test_a_batch_that_is_more_than_there_are_is_told_compiled_and_kept_as_all_there_are(tmp_path):
    said = "--framework", "pytorch", "--device", "cpu", "--batch", 500, "--no-eval", "--steps"
    for steps, words in (1, ()), (2, ("--resume", tmp_path)):
        out = train("cifar10-keras", "--out", tmp_path, *said, steps, *words, images={"train": 40})
        assert "A batch of 500 is more than the data set has: each step takes all 40 images\n" in out
    assert [event["batch"] for event in events(tmp_path, "start")] == [40, 40]


def test_an_epoch_that_is_smaller_than_the_batch_makes_the_usual_steps(framework):
    words, all_of_them = [dense("d", 3, 2, normal(1), constant(0.0))], 9
    model = Model(words, recipe(sgd(), 0.1), (3,), 20)
    network = on_cpu(framework, model)
    model.batch = all_of_them
    assert network.is_usual(range(all_of_them))


def test_steps_and_epochs_together_are_not_understood(tmp_path):
    code, _, err = trainer("cifar10", "--out", tmp_path, "--steps", 5, "--epochs", 2)
    assert code == 2
    assert "not allowed with argument" in err
