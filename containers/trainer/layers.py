"""Which words a network is written in, and the weights it starts from.

A network is a list of words; a word is a dict with "op", "name" and the numbers that the op needs. No number is left to
a framework's default, because the defaults differ. Weights are named "<layer>/weights" and "<layer>/biases"; a
convolution's are [height, width, inputs, outputs], a dense layer's [inputs, outputs], and images are [n, height, width,
channels]: every framework converts from and to that, so that weights written by one are read by another.
"""
from __future__ import absolute_import, division, print_function

import numpy as np


def conv(name, size, inputs, outputs, stddev, bias, decay=0.0):
    """Convolve size x size at stride 1 with zero padding that keeps height and width, and add a bias."""
    shape = size, size, inputs, outputs
    return {"op": "conv", "name": name, "shape": shape, "stddev": stddev, "bias": bias, "decay": decay}


def dense(name, inputs, outputs, stddev, bias, decay=0.0):
    """Multiply by a matrix and add a bias; an image is first flattened in the order height, width, channels."""
    shape = inputs, outputs
    return {"op": "dense", "name": name, "shape": shape, "stddev": stddev, "bias": bias, "decay": decay}


def relu(name):
    return {"op": "relu", "name": name}


def max_pool(name, size, stride):
    """Take the maximum; where the window hangs over, it does so at the right and the bottom (TensorFlow's SAME)."""
    return {"op": "max_pool", "name": name, "size": size, "stride": stride}


def lrn(name, radius, bias, alpha, beta):
    """Divide by (bias + alpha * sum of the squares of the 2 * radius + 1 nearest channels) ** beta."""
    return {"op": "lrn", "name": name, "radius": radius, "bias": bias, "alpha": alpha, "beta": beta}


def shapes(words):
    """Give [(name, shape)] of all weights, in the order of the network."""
    found = []
    for word in words:
        if "shape" in word:
            found.append((word["name"] + "/weights", word["shape"]))
            found.append((word["name"] + "/biases", word["shape"][-1:]))
    return found


def parameters(words):
    return sum(int(np.prod(shape)) for _, shape in shapes(words))


def decays(words):
    """Give [(name of the weights, factor)] of those that the loss holds small: factor * sum(weights ** 2) / 2 each."""
    return [(word["name"] + "/weights", word["decay"]) for word in words if word.get("decay")]


def initial(words, seed):
    """Give {name: float32 array}, the same for every framework: weights normal, cut at two stddev; biases constant."""
    random = np.random.RandomState(seed & 0xFFFFFFFF)
    values = {}
    for word in words:
        if "shape" in word:
            values[word["name"] + "/weights"] = truncated_normal(random, word["shape"], word["stddev"])
            values[word["name"] + "/biases"] = np.full(word["shape"][-1:], word["bias"], np.float32)
    return values


def truncated_normal(random, shape, stddev):
    values = random.normal(size=shape)
    beyond = np.abs(values) > 2
    while beyond.any():
        values[beyond] = random.normal(size=int(beyond.sum()))
        beyond = np.abs(values) > 2
    return (values * stddev).astype(np.float32)
