"""Which words a network is written in, what they cost, and the weights they start from.

A network is a list of words; a word is a dict with "op", "name" and the numbers that the op needs. No number is left to
a framework's default, because the defaults differ. Weights are named "<layer>/<which>"; a convolution's are [height,
width, inputs, outputs], a dense layer's [inputs, outputs], and images are [n, height, width, channels]: every framework
converts from and to that, so that weights written by one are read by another.

A word's "arrays" are trained, its "running" ones are kept up to date by training and are no parameters: each is
(which, shape, start), and a start is one of those below.
"""
from __future__ import absolute_import, division, print_function

import math

import numpy as np


def constant(value):
    return "constant", value


def normal(stddev):
    return "normal", stddev


def truncated(stddev):
    """A normal distribution whose values beyond two stddev are drawn anew."""
    return "truncated", stddev


def uniform(limit):
    """Between -limit and limit."""
    return "uniform", limit


def glorot(inputs, outputs, field=1):
    """Glorot's uniform distribution, Keras' default; field is height times width of a convolution's window."""
    return uniform(math.sqrt(6 / (field * (inputs + outputs))))


def he(inputs, field=1):
    """He's normal distribution, not truncated."""
    return normal(math.sqrt(2 / (field * inputs)))


def conv(name, size, inputs, outputs, weights, biases=None, stride=1, padding=None, decay=0.0):
    """Convolve size x size, or height x width, with zeros on each side, and add biases.

    padding: how many zeros above as below, and left as right; None for so many that stride 1 keeps the size.
    """
    height, width = pair(size)
    shape = height, width, inputs, outputs
    edges = (height // 2, width // 2) if padding is None else pair(padding)
    return {"op": "conv", "name": name, "shape": shape, "stride": stride, "padding": edges, "decay": decay,
            "arrays": weighted(shape, weights, biases)}


def pair(size):
    return tuple(size) if isinstance(size, (tuple, list)) else (size, size)


def dense(name, inputs, outputs, weights, biases, decay=0.0):
    """Multiply by a matrix and add biases. An image is first flattened in the order height, width, channels; of a
    sequence every step is multiplied, and [n, steps, inputs] becomes [n * steps, outputs]."""
    shape = inputs, outputs
    return {"op": "dense", "name": name, "shape": shape, "decay": decay, "arrays": weighted(shape, weights, biases)}


def weighted(shape, weights, biases):
    return [("weights", shape, weights)] + ([("biases", shape[-1:], biases)] if biases else [])


def relu(name):
    return {"op": "relu", "name": name}


def sigmoid(name):
    return {"op": "sigmoid", "name": name}


def silu(name):
    """Multiply by the sigmoid of the same."""
    return {"op": "silu", "name": name}


def max_pool(name, size, stride, padding=(0, 0)):
    """Take the maximum of size x size; padding: how far windows hang over (at the top and left, bottom and right)."""
    return {"op": "max_pool", "name": name, "size": size, "stride": stride, "padding": padding}


def avg_pool(name, size, stride):
    """Take the mean of size x size; a window that would hang over is left out."""
    return {"op": "avg_pool", "name": name, "size": size, "stride": stride, "padding": (0, 0)}


def smooth(name, size):
    """Take the mean of size x size around each place, size being odd; windows that hang over count what is inside, as
    Keras' AveragePooling2D "same" does."""
    return {"op": "smooth", "name": name, "size": size, "stride": 1, "padding": (size // 2, size // 2)}


def global_avg_pool(name):
    """Take the mean of each channel: [n, height, width, channels] becomes [n, channels]."""
    return {"op": "global_avg_pool", "name": name}


def pad_channels(name, before, after):
    """Put channels of zeros before and after the others."""
    return {"op": "pad_channels", "name": name, "before": before, "after": after}


def lrn(name, radius, bias, alpha, beta):
    """Divide by (bias + alpha * sum of the squares of the 2 * radius + 1 nearest channels) ** beta."""
    return {"op": "lrn", "name": name, "radius": radius, "bias": bias, "alpha": alpha, "beta": beta}


def batch_norm(name, channels, momentum, epsilon, scaled=True):
    """Give each channel mean 0 and variance 1 over the batch, then times scale where it is scaled, plus offset.

    Training divides by sqrt(variance + epsilon), the variance of n values being their sum of squares / n, and keeps
    running = momentum * running + (1 - momentum) * batch, the batch's variance there being that of / (n - 1), as both
    frameworks' own layers for images do it. Testing uses the running ones.
    """
    shape = channels,
    return {"op": "batch_norm", "name": name, "channels": channels, "momentum": momentum, "epsilon": epsilon,
            "scaled": scaled,
            "arrays": ([("scale", shape, constant(1.0))] if scaled else []) + [("offset", shape, constant(0.0))],
            "running": [("mean", shape, constant(0.0)), ("variance", shape, constant(1.0))]}


def dropout(name, rate):
    """While training, make a share of the values 0 and divide the others by (1 - rate). Each framework draws its own:
    their random numbers differ, and so the losses of two frameworks are compared with --no-dropout."""
    return {"op": "dropout", "name": name, "rate": rate}


def residual(name, body, shortcut=()):
    """Add what two lists of words make of the same input; an empty shortcut is the input itself."""
    return {"op": "residual", "name": name, "branches": [list(body), list(shortcut)]}


def concat(name, *branches):
    """Lay what lists of words make of the same input beside each other, along the channels."""
    return {"op": "concat", "name": name, "branches": [list(branch) for branch in branches]}


def embedding(name, count, outputs, weights):
    """Look up the row of each token: [n, steps] whole numbers become [n, steps, outputs]."""
    return {"op": "embedding", "name": name, "shape": (count, outputs),
            "arrays": [("weights", (count, outputs), weights)]}


def lstm(name, inputs, outputs, weights, biases):
    """Long short-term memory without peepholes: [n, steps, inputs] becomes [n, steps, outputs].

    input, forget, new, output = split((x, hidden) * weights + biases), in this order, with a forget bias of 0;
    cell = sigmoid(forget) * cell + sigmoid(input) * tanh(new); hidden = sigmoid(output) * tanh(cell). While training,
    hidden and cell go on from batch to batch, and gradients don't; a test begins with zeros.
    """
    shape = inputs + outputs, 4 * outputs
    return {"op": "lstm", "name": name, "inputs": inputs, "outputs": outputs,
            "arrays": weighted(shape, weights, biases),
            "running": [(which, (BATCH, outputs), constant(0.0)) for which in ("hidden", "cell")]}


BATCH = "batch"  # stands in a shape for the number of examples in a batch


def flat(words):
    """Give the words one after the other, those of a residual's or a concat's branches in its place."""
    found = []
    for word in words:
        found += [one for branch in word["branches"] for one in flat(branch)] if "branches" in word else [word]
    return found


def through(words, x, at, built):
    """Lead x through the words, one after the other; built is a framework's {op: function of word, x and at}."""
    for word in words:
        x = built[word["op"]](word, x, at)
    return x


def branches(word, x, at, built):
    """Give what each branch of a word makes of x."""
    return [through(branch, x, at, built) for branch in word["branches"]]


def keeps_size(word):
    """Do a convolution's zeros lie as TensorFlow's SAME lays them: stride 1, and as big after as before?"""
    return word["stride"] == 1 and all(2 * edge == size - 1 for edge, size in zip(word["padding"], word["shape"]))


def hanging_over(side, size, stride):
    """Give how far the windows of TensorFlow's SAME hang over, at the top and left, and at the bottom and right."""
    total = max((-(-side // stride) - 1) * stride + size - side, 0)
    return total // 2, total - total // 2


def without(words, op):
    """Give the same network without the words of this op."""
    kept = [word for word in words if word["op"] != op]
    return [dict(word, branches=[without(branch, op) for branch in word["branches"]])
            if "branches" in word else word for word in kept]


def pooled_first(words):
    """Give the network with each maximum taken before the relu that it follows: the two commute, to the bit and their
    gradients too, and the relu then sees a quarter of the values or less."""
    found = []
    for word in words:
        if "branches" in word:
            word = dict(word, branches=[pooled_first(branch) for branch in word["branches"]])
        found.insert(len(found) - is_swapped(found, word), word)
    return found


def is_swapped(before, word):
    return word["op"] == "max_pool" and bool(before) and before[-1]["op"] == "relu"


def ops(words):
    inner = [ops(branch) for word in words for branch in word.get("branches", ())]
    return {word["op"] for word in words}.union(*inner)


def shapes(words, kind="arrays"):
    """Give [(name, shape)] of all weights, in the order of the network; with "running" of what no gradient moves."""
    return [(word["name"] + "/" + which, tuple(shape))
            for word in flat(words) for which, shape, _ in word.get(kind, ())]


def parameters(words):
    return sum(int(np.prod(shape, dtype=np.int64)) for _, shape in shapes(words))


def decays(words):
    """Give [(name of the weights, factor)] of those that the loss holds small: factor * sum(weights ** 2) / 2 each."""
    return [(word["name"] + "/weights", word["decay"]) for word in flat(words) if word.get("decay")]


def initial(words, seed):
    """Give {name: float32 array} of all weights, the same for every framework and every order of its layers."""
    random = np.random.RandomState(seed & 0xFFFFFFFF)
    return {word["name"] + "/" + which: drawn(random, shape, start)
            for word in flat(words) for which, shape, start in word.get("arrays", ())}


def drawn(random, shape, start):
    kind, number = start
    if kind == "constant":
        return np.full(shape, number, np.float32)
    if kind == "uniform":
        return random.uniform(-number, number, shape).astype(np.float32)
    values = random.normal(size=shape)
    beyond = np.abs(values) > 2
    while kind == "truncated" and beyond.any():
        values[beyond] = random.normal(size=int(beyond.sum()))
        beyond = np.abs(values) > 2
    return (values * number).astype(np.float32)
