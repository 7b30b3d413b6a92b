import numpy as np
import pytest
from trainer_process import CONTAINERS

from trainer import layers
from trainer.layers import constant, normal, uniform
from trainer.workloads import cifar10


def test_the_tutorial_has_1068298_parameters():
    sizes = [int(np.prod(shape)) for _, shape in layers.shapes(cifar10.NETWORK)]
    assert [a + b for a, b in zip(sizes[::2], sizes[1::2], strict=True)] == [4864, 102464, 885120, 73920, 1930]
    assert layers.parameters(cifar10.NETWORK) == cifar10.PARAMETERS == 1068298


def test_first_weights_are_truncated_normal_and_the_same_for_one_seed():
    one, same, other = (layers.initial(cifar10.NETWORK, seed) for seed in (0, 0, 1))
    for name, shape in layers.shapes(cifar10.NETWORK):
        assert one[name].shape == tuple(shape)
        assert one[name].dtype == np.float32
        assert (one[name] == same[name]).all()
    for name, stddev in ("conv2", 0.05), ("local3", 0.04), ("softmax_linear", 1 / 192):
        weights = one[name + "/weights"]
        assert np.abs(weights).max() <= 2 * stddev * (1 + 1e-6)
        assert abs(weights.std() / stddev - 0.88) < 0.02  # normal truncated at 2 sigma
        assert (weights != other[name + "/weights"]).any()
    assert {name: float(one[name + "/biases"][0]) for name in ("conv1", "local3", "softmax_linear")} == {
        "conv1": 0.0,
        "local3": float(np.float32(0.1)),
        "softmax_linear": 0.0,
    }


def test_the_decay_of_the_first_weights_makes_2_37_of_the_loss():
    weights = layers.initial(cifar10.NETWORK, 0)
    decays = layers.decays(cifar10.NETWORK)
    assert [name for name, _ in decays] == ["local3/weights", "local4/weights"]
    assert abs(sum(factor * (weights[name] ** 2).sum() / 2 for name, factor in decays) - 2.373) < 0.02


def test_the_page_of_results_has_what_301_steps_of_the_decay_alone_leave_of_it():
    weights = layers.initial(cifar10.NETWORK, 0)
    left = sum(
        factor * ((weights[name] * (1 - cifar10.LEARNING_RATE * factor) ** 301) ** 2).sum() / 2
        for name, factor in layers.decays(cifar10.NETWORK)
    )
    page = (CONTAINERS.parent / "docs" / "results.md").read_text(encoding="utf-8")
    assert f"by the decay alone {left:.3f}" in page


@pytest.mark.parametrize(
    ("start", "spread", "most"),
    [(normal(0.2), 0.2, 2.0), (layers.truncated(0.2), 0.176, 0.4001), (uniform(0.3), 0.1732, 0.3), (constant(2), 0, 2)],
)
def test_first_weights_are_drawn_as_the_words_say(start, spread, most):
    drawn = layers.drawn(np.random.RandomState(1), (200, 300), start)
    assert drawn.dtype == np.float32
    assert drawn.std() == pytest.approx(spread, abs=0.002)
    assert np.abs(drawn).max() <= most


def test_glorots_and_hes_numbers():
    assert layers.glorot(3, 32, 9) == ("uniform", pytest.approx((6 / (9 * 35)) ** 0.5))
    assert layers.he(64, 9) == ("normal", pytest.approx((2 / 576) ** 0.5))


def test_words_inside_of_branches_are_counted_and_left_out_like_others():
    branch = [layers.dropout("d", 0.5), layers.conv("c", 1, 2, 3, normal(1))]
    words = [layers.concat("beside", branch, [layers.residual("r", [layers.relu("a")])])]
    assert layers.ops(words) == {"concat", "conv", "dropout", "relu", "residual"}
    assert layers.ops(layers.without(words, "dropout")) == {"concat", "conv", "relu", "residual"}
    assert [word["name"] for word in layers.flat(words)] == ["d", "c", "a"]
    assert layers.parameters(words) == 6
