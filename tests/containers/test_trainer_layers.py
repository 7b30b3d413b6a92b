import numpy as np

from trainer import layers
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
        assert abs(weights.std() / stddev - 0.88) < 0.02  # of a normal cut at two sigma
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
