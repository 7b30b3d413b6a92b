import argparse

import pytest

from trainer import trial
from trainer.short import LATE
from trainer.trial import Here, Reading, Tried
from trainer.workloads import cifar10, cifar10_keras, lstm

TWO = Here(2, 2, 2)
ONE, FIRST, RESIDENT = {"threads": 1}, {"channels_last": False}, {"feed": "resident"}


def made(way, *rates, failed=None):
    return Tried(way, rates, failed)


class Bench:
    """A machine on which each way has a rate per trial, and each trial takes `seconds`."""

    def __init__(self, seconds=5.0, **rates):
        self.seconds, self.time, self.log = seconds, 0.0, []
        self.rates = {name: list(found) for name, found in rates.items()}

    def now(self):
        return self.time

    def measure(self, way, seconds):
        name = "_".join(sorted(way)) or "default"
        self.log.append(name)
        found = self.rates[name].pop(0) if len(self.rates[name]) > 1 else self.rates[name][0]
        took = found if isinstance(found, complex) else self.seconds
        if isinstance(found, complex):  # a trial that ends too late, after this many (imaginary) seconds
            self.time += min(took.imag, seconds)
            return Reading(None, None, None, LATE)
        self.time += took
        if isinstance(found, str):
            return Reading(None, None, None, found)
        return Reading(found, 32 / found, {"device": "cpu"}, None)

    def search(self, *ways, left=None):
        return trial.search(self.measure, lambda _: ways, lambda _: left, now=self.now)


# -- what wins ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("default", "other", "wins"),
    [
        ((100, 102), (130, 128), True),
        ((100, 120), (125, 128), False),  # its own trials differ by 20
        ((100, 102), (105, 135), False),  # the other's by 30
        ((100, 100), (102, 102), False),  # not worth a choice
        ((100, 100), (104, 104), True),
        ((100, 102), (90, 91), False),
        ((100,), (200, 200), False),  # one has no spread
        ((100, 100), (200,), False),
    ],
)
def test_a_way_wins_by_more_than_the_trials_differ(default, other, wins):
    tried = [made({}, *default), made(ONE, *other)]
    assert (trial.winner(tried) is tried[1]) is wins


def test_the_best_of_several_wins_and_one_that_failed_never():
    tried = [made({}, 100, 100), made(ONE, 120, 120), made(FIRST, 140, 140), made(RESIDENT, 200, 200, failed="killed")]
    assert trial.winner(tried).way == FIRST


def test_where_only_the_default_was_tried_it_stays():
    assert trial.winner([made({}, 100, 100)]).way == {}
    assert trial.winner([made({}, failed="nan")]).way == {}


# -- what is tried when ---------------------------------------------------------------------------------------------


def test_a_clear_winner_is_found_in_turn_with_the_default():
    bench = Bench(default=[100], threads=[60], feed=[130])
    tried, undecided = bench.search(ONE, RESIDENT)
    assert undecided is None
    assert trial.winner(tried).way == RESIDENT
    assert bench.log[:3] == ["default", "threads", "feed"]
    assert bench.log[3:] == ["feed", "default", "default", "feed", "feed", "default"]
    assert [len(one.rates) for one in tried] == [4, 1, 4]


def test_what_was_ahead_alone_is_tried_together():
    bench = Bench(default=[100], threads=[110], feed=[120], feed_threads=[140])
    tried, _ = bench.search(ONE, RESIDENT)
    assert trial.winner(tried).way == {"threads": 1, "feed": "resident"}
    assert bench.log.count("threads") == 1


def test_of_two_numbers_of_threads_the_faster_goes_together_with_the_rest():
    tried = [made({}, 100), made({"threads": 4}, 110), made({"threads": 2}, 130), made(RESIDENT, 120)]
    assert [one.way for one in trial.finalists(tried)] == [{"threads": 2}, {"threads": 2, "feed": "resident"}]


def test_what_is_a_little_behind_and_could_not_be_tried_twice_leaves_the_default_decided():
    bench = Bench(11, default=[100], threads=[95], feed=[98])
    tried, undecided = bench.search(ONE, RESIDENT)
    assert ([len(one.rates) for one in tried], undecided) == ([2, 1, 2], None)
    assert trial.winner(tried).way == {}


def test_what_is_far_behind_is_not_tried_again_and_the_trial_ends_early():
    bench = Bench(default=[100], threads=[50], feed=[89])
    assert trial.winner(bench.search(ONE, RESIDENT)[0]).way == {}
    assert bench.log == ["default", "threads", "feed"]


def test_a_way_that_fails_is_told_and_not_tried_again():
    bench = Bench(default=[100], threads=["killed"], feed=[130, "out of memory"])
    tried, undecided = bench.search(ONE, RESIDENT)
    assert [one.failed for one in tried] == [None, "killed", "out of memory"]
    assert (trial.winner(tried).way, undecided) == ({}, None)
    assert bench.log.count("threads") == 1


def test_one_that_takes_too_long_is_given_up_after_three_times_the_default():
    bench = Bench(default=[100], threads=[1000j], feed=[130])
    tried, _ = bench.search(ONE, RESIDENT)
    assert tried[1].failed == LATE
    assert bench.time <= trial.BUDGET_SECONDS
    assert trial.winner(tried).way == RESIDENT


@pytest.mark.parametrize("seconds", [0.5, 5, 11, 14, 19, 25, 40, 59])
def test_all_trials_together_are_over_in_time_and_what_was_ahead_has_two_or_nothing_is_decided(seconds):
    bench = Bench(seconds, default=[100], threads=[110], feed=[130], channels_last=[70], feed_threads=[125])
    tried, undecided = bench.search(ONE, RESIDENT, FIRST)
    assert bench.time <= trial.BUDGET_SECONDS
    assert (trial.winner(tried).way == {}) is bool(undecided)


def test_a_default_that_fails_is_for_the_training_to_tell():
    tried, undecided = Bench(default=["Model diverged"]).search(ONE)
    assert ([one.way for one in tried], undecided) == ([{}], "Model diverged")


def test_a_training_that_is_shorter_than_the_trial_has_none():
    bench = Bench(default=[100], threads=[300])
    _, undecided = bench.search(ONE, left=trial.BUDGET_SECONDS)
    assert (bench.log, undecided) == (["default"], "the training itself takes 60 s")
    assert bench.search(ONE, left=trial.BUDGET_SECONDS + 1)[1] is None


# -- what is tried --------------------------------------------------------------------------------------------------


def asked(**words):
    known = {"threads": None, "channels_last": None, "is_feed_free": True, "variables": [], "batch": 32, "replicas": 1,
             "teacher": None, "data": None, "dataset": "cifar10"}  # fmt: skip
    return argparse.Namespace(**{**known, **words})


def started(**words):
    return {"framework": "pytorch", "device": "cpu", "channels_last": True, "dataset_images": 50000, **words}


def ways(workload=cifar10_keras, start=None, here=TWO, free=10**10, **words):
    return trial.ways(asked(**words), workload, start or started(), here, free)


def test_each_framework_is_tried_with_what_it_has():
    assert ways() == [ONE, FIRST, RESIDENT]
    tensorflow = started(framework="tf2", channels_last=True)
    assert ways(start=tensorflow) == [ONE, {"onednn": False}, RESIDENT]
    assert ways(start={**tensorflow, "framework": "tf1"}) == [ONE, RESIDENT]
    assert ways(start=started(device="gpu")) == [FIRST, RESIDENT]
    assert ways(start={**tensorflow, "device": "gpu"}) == [RESIDENT]
    assert ways(lstm, start=started(channels_last=None), batch=128) == [ONE]


def test_what_was_typed_is_not_tried():
    assert ways(threads=2) == [FIRST, RESIDENT]
    assert ways(channels_last=True) == [ONE, RESIDENT]
    assert ways(is_feed_free=False) == [ONE, FIRST]
    assert ways(variables=["OMP_NUM_THREADS"]) == [FIRST, RESIDENT]
    assert {"onednn": False} not in ways(start=started(framework="tf2"), variables=["TF_ENABLE_ONEDNN_OPTS"])


def test_what_cannot_lie_on_the_device_is_not_tried_there():
    assert RESIDENT not in ways(cifar10, batch=128)  # distorted on the CPU every time
    assert RESIDENT not in ways(data="pets", dataset="pictures")
    assert RESIDENT not in ways(teacher="ahead")
    assert RESIDENT not in ways(free=None)
    quarter = 4 * 50000 * 32 * 32 * 3 * 4
    assert RESIDENT not in ways(free=quarter)
    assert RESIDENT in ways(free=quarter + 1)


@pytest.mark.parametrize(
    ("here", "small", "replicas", "counts"),
    [
        (Here(2, 2, 2), False, 1, [1]),
        (Here(1, 1, 1), True, 1, []),
        (Here(16, 16, 8), False, 1, [16, 15, 8]),  # by default PyTorch takes 8, TensorFlow 16
        (Here(16, 16, 16), True, 1, [15, 1]),
        (Here(64, 2, 32), False, 1, [2, 1]),  # a container that may use two
        (Here(64, 2, None), False, 1, [2, 1]),
        (Here(16, 16, None), False, 2, [7]),
    ],
)
def test_threads_are_tried_that_are_not_the_frameworks_own_choice(here, small, replicas, counts):
    assert trial.thread_counts(here, small, replicas) == counts


def test_a_way_has_words():
    assert trial.worded({}) == "the default"
    way = {"threads": 1, "channels_last": False, "onednn": False, "feed": "resident"}
    assert trial.worded(way) == "1 thread, channels first, without oneDNN, fed resident"
    assert trial.worded({"threads": 2, "channels_last": True}) == "2 threads, channels last"


@pytest.mark.parametrize("value", [None, [], {"threads": True}, {"threads": 0}, {"seed": 3}, {"feed": "constant"}])
def test_what_is_no_way_is_not_taken_for_one(value):
    assert trial.is_way({**ONE, **FIRST, **RESIDENT, "onednn": False})
    assert not trial.is_way(value)
