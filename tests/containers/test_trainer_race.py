"""cifar10-94: its plan, and how certain its result is. Its network: test_trainer_race_net.py."""

import math
from itertools import pairwise

import numpy as np
import pytest

from trainer import certainty, cost, race
from trainer.data import Dataset
from trainer.race import KNOBS, Phase
from trainer.workloads import cifar10_94


@pytest.mark.parametrize("steps", [1, 2, 7, 225, 1000])
def test_the_phases_are_all_steps_once_and_end_with_whole_pictures(steps):
    found = race.phases(KNOBS, steps)
    assert [step for one in found for step in range(one.first, one.last)] == list(range(steps))
    assert found[-1].side == 32


def test_pictures_grow_and_the_whitenings_biases_learn_first():
    assert race.phases(KNOBS, 225) == [
        Phase(0, 25, 24, True),
        Phase(25, 75, 24, False),
        Phase(75, 150, 28, False),
        Phase(150, 225, 32, False),
    ]


def test_rates_fall_to_nothing_in_a_line():
    rows = race.table(KNOBS, 200)
    assert rows.shape == (200, 3)
    assert rows[0].tolist() == pytest.approx([KNOBS.filter_rate, 1, 1])
    assert rows[100, [race.FILTER_RATE, race.PACE]].tolist() == pytest.approx([KNOBS.filter_rate / 2, 0.5])
    assert all(before > after > 0 for before, after in pairwise(rows[:, race.PACE]))
    learns = [rows[step, race.WHITENING] > 0 for step in range(200)]
    assert learns == [any(one.whitens for one in race.phases(KNOBS, 200) if step < one.last) for step in range(200)]


def test_what_the_pools_throw_away_is_what_the_words_have_more():
    words = dict(cost.layers(cifar10_94.NETWORK, (32, 32, 3))[0])
    ours = dict(race.macs(32))
    assert list(ours) == list(words)
    dead = {name: 1 - ours[name] / words[name] for name in ours if ours[name] != words[name]}
    assert dead == pytest.approx(
        {"block1/conv1": 1 - 30**2 / 31**2, "block2/conv1": 1 - 14**2 / 15**2, "block3/conv1": 1 - 6**2 / 7**2}
    )
    assert sum(ours.values()) / sum(words.values()) == pytest.approx(0.8917, abs=1e-4)


def test_small_pictures_and_a_still_whitening_cost_less():
    assert race.step_flops(24, False) < race.step_flops(28, False) < race.step_flops(32, False)
    counted = dict(race.macs(24))
    assert race.step_flops(24, True) - race.step_flops(24, False) == 2 * counted["block1/conv1"]
    mean = race.flops_per_example(KNOBS, 225)
    assert race.step_flops(24, False) < mean < race.step_flops(32, False)
    assert mean == pytest.approx(
        sum((one.last - one.first) / 225 * race.step_flops(*one[2:]) for one in race.phases(KNOBS, 225))
    )


def test_what_is_held_back_for_tuning_is_not_trained_on():
    images = np.arange(11000)
    (kept, labels), (held, answers) = race.split(Dataset(images, images % 10, "made", 1))
    assert (len(kept), len(held)) == (1000, 10000)
    assert not set(kept) & set(held)
    assert np.concatenate([labels, answers]).tolist() == (images % 10).tolist()


@pytest.mark.parametrize(
    ("freedom", "share"),
    [
        (1, lambda t: 0.5 - math.atan(t) / math.pi),
        (2, lambda t: 0.5 - t / 2 / math.sqrt(2 + t * t)),
        (100_000, lambda t: math.erfc(t / math.sqrt(2)) / 2),
    ],
)
@pytest.mark.parametrize("t", [-3, -0.5, 0, 0.1, 1.7, 4])
def test_students_distribution_is_that_of_the_cases_that_have_a_formula(freedom, share, t):
    assert certainty.beyond(t, freedom) == pytest.approx(share(t), rel=2e-3)


@pytest.mark.parametrize(("freedom", "t"), [(4, 2.131847), (9, 1.833113), (99, 1.660391), (199, 1.652547)])
def test_a_twentieth_lies_beyond_the_t_of_the_tables(freedom, t):
    assert certainty.beyond(t, freedom) == pytest.approx(0.05, rel=1e-5)


def test_a_mean_above_the_bound_is_the_surer_the_less_the_trainings_differ():
    wide, narrow = [0.938, 0.944, 0.941], [0.9408, 0.9412, 0.941]
    assert certainty.spread(wide) == pytest.approx((0.941, 0.003))
    assert certainty.chance_below(narrow, 0.94) < 0.01 < 0.3 < certainty.chance_below(wide, 0.94) < 0.5
    assert certainty.chance_below([0.9, 0.91], 0.94) > 0.5


def test_of_one_training_nothing_is_sure():
    assert certainty.spread([0.95]) == (0.95, None)
    assert certainty.chance_below([0.95], 0.94) is None


@pytest.mark.parametrize("times", [2, 3, 7, 10, 50])
def test_nor_if_all_are_equal_whatever_their_sum_rounds_to(times):
    for right in range(9300, 9500):
        equal = [right / 10000] * times
        assert certainty.spread(equal) == (equal[0], 0)
        assert certainty.chance_below(equal, 0.94) is None
