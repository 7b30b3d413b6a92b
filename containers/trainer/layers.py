"""How networks are declared: as lists of words, each a layer; and the weights that they start from.

A word is a dict with "op", "name" and the op's parameters. No parameter is left to a framework's default, because the
defaults differ. Weights are named "<layer>/<which>"; a convolution's are [height, width, inputs, outputs], a dense
layer's [inputs, outputs], and images are [n, height, width, channels]: every framework converts from and to that, so
that weights written by one can be read by another.

A word's "arrays" are trained; its "running" arrays are updated during training, but are not parameters. Each array is
(which, shape, start), where start is what one of the functions below returns, such as constant() or normal().
"""
from __future__ import absolute_import, division, print_function

import math

import numpy as np


def constant(value):
    return "constant", value


def normal(stddev):
    return "normal", stddev


def truncated(stddev):
    """A normal distribution whose values beyond two stddev are redrawn."""
    return "truncated", stddev


def uniform(limit):
    """Between -limit and limit."""
    return "uniform", limit


def glorot(inputs, outputs, field=1):
    """Glorot's uniform distribution, Keras' default; field is height times width of a convolution's kernel."""
    return uniform(math.sqrt(6 / (field * (inputs + outputs))))


def he(inputs, field=1):
    """He's normal distribution, not truncated."""
    return normal(math.sqrt(2 / (field * inputs)))


def conv(name, size, inputs, outputs, weights, biases=None, stride=1, padding=None, decay=0.0):
    """Convolve with a size x size, or height x width, kernel, pad with zeros, and add biases.

    padding: how many zeros above and below, and left and right; None for as many as keep the size with stride 1.
    """
    height, width = pair(size)
    shape = height, width, inputs, outputs
    edges = (height // 2, width // 2) if padding is None else pair(padding)
    return {"op": "conv", "name": name, "shape": shape, "stride": stride, "padding": edges, "decay": decay,
            "arrays": weighted(shape, weights, biases)}


def pair(size):
    return tuple(size) if isinstance(size, (tuple, list)) else (size, size)


def dense(name, inputs, outputs, weights, biases, decay=0.0):
    """Multiply by a matrix and add biases. An image is first flattened in the order height, width, channels. In a
    sequence each step is multiplied, and [n, steps, inputs] becomes [n * steps, outputs]."""
    shape = inputs, outputs
    return {"op": "dense", "name": name, "shape": shape, "decay": decay, "arrays": weighted(shape, weights, biases)}


def weighted(shape, weights, biases):
    return [("weights", shape, weights)] + ([("biases", shape[-1:], biases)] if biases else [])


def relu(name):
    return {"op": "relu", "name": name}


def sigmoid(name):
    return {"op": "sigmoid", "name": name}


def silu(name):
    """Multiply by the sigmoid of the same value."""
    return {"op": "silu", "name": name}


def max_pool(name, size, stride, padding=(0, 0)):
    """Take the maximum of size x size; padding: how far windows extend beyond the edges (top left, bottom right)."""
    return {"op": "max_pool", "name": name, "size": size, "stride": stride, "padding": padding}


def avg_pool(name, size, stride):
    """Take the mean of size x size; a window that would extend beyond the edge is left out."""
    return {"op": "avg_pool", "name": name, "size": size, "stride": stride, "padding": (0, 0)}


def smooth(name, size):
    """Take the mean of size x size around each place, size being odd; windows that extend beyond the edge average
    what is inside, like Keras' AveragePooling2D with "same"."""
    return {"op": "smooth", "name": name, "size": size, "stride": 1, "padding": (size // 2, size // 2)}


def global_avg_pool(name):
    """Take the mean of each channel: [n, height, width, channels] becomes [n, channels]."""
    return {"op": "global_avg_pool", "name": name}


def pad_channels(name, before, after):
    """Add channels of zeros before and after the others."""
    return {"op": "pad_channels", "name": name, "before": before, "after": after}


def lrn(name, radius, bias, alpha, beta):
    """Divide by (bias + alpha * sum of the squares of the 2 * radius + 1 nearest channels) ** beta."""
    return {"op": "lrn", "name": name, "radius": radius, "bias": bias, "alpha": alpha, "beta": beta}


def batch_norm(name, channels, momentum, epsilon, scaled=True):
    """Normalise each channel to mean 0 and variance 1 over the batch, then multiply by scale if scaled, and add offset.

    Training divides by sqrt(variance + epsilon), the variance of n values being their sum of squares / n, and keeps
    running = momentum * running + (1 - momentum) * batch, where the batch's variance is divided by (n - 1) for images,
    as in both frameworks' own layers, and by n for vectors, as in Keras'. Testing uses the running statistics.
    """
    shape = channels,
    return {"op": "batch_norm", "name": name, "channels": channels, "momentum": momentum, "epsilon": epsilon,
            "scaled": scaled,
            "arrays": ([("scale", shape, constant(1.0))] if scaled else []) + [("offset", shape, constant(0.0))],
            "running": [("mean", shape, constant(0.0)), ("variance", shape, constant(1.0))]}


def dropout(name, rate):
    """In training, zero a share of the values and divide the others by (1 - rate). Each framework draws its own random
    numbers, so the losses of two frameworks are compared with --no-dropout."""
    return {"op": "dropout", "name": name, "rate": rate}


def residual(name, body, shortcut=()):
    """Add the outputs of two lists of words with the same input; an empty shortcut is the input itself."""
    return {"op": "residual", "name": name, "branches": [list(body), list(shortcut)]}


def concat(name, *branches):
    """Concatenate the outputs of lists of words with the same input, along the channels."""
    return {"op": "concat", "name": name, "branches": [list(branch) for branch in branches]}


def embedding(name, count, outputs, weights):
    """Look up each token's row: [n, steps] integers become [n, steps, outputs]."""
    return {"op": "embedding", "name": name, "shape": (count, outputs),
            "arrays": [("weights", (count, outputs), weights)]}


def lstm(name, inputs, outputs, weights, biases):
    """Long short-term memory without peepholes: [n, steps, inputs] becomes [n, steps, outputs].

    input, forget, new, output = split((x, hidden) * weights + biases), in this order, with a forget bias of 0;
    cell = sigmoid(forget) * cell + sigmoid(input) * tanh(new); hidden = sigmoid(output) * tanh(cell). In training,
    hidden and cell carry over from batch to batch, but gradients don't; a test begins with zeros.
    """
    shape = inputs + outputs, 4 * outputs
    return {"op": "lstm", "name": name, "inputs": inputs, "outputs": outputs,
            "arrays": weighted(shape, weights, biases),
            "running": [(which, (BATCH, outputs), constant(0.0)) for which in ("hidden", "cell")]}


BATCH = "batch"  # represents the batch size in a shape


def flat(words):
    """Return all words in sequence; the words of the branches take the place of their residual or concat."""
    found = []
    for word in words:
        found += [one for branch in word["branches"] for one in flat(branch)] if "branches" in word else [word]
    return found


def through(words, x, at, built):
    """Pass x through the words, one after the other; built is a framework's {op: function of word, x and at}."""
    for word in words:
        x = built[word["op"]](word, x, at)
    return x


def branches(word, x, at, built):
    """Return the output of each of a word's branches for x."""
    return [through(branch, x, at, built) for branch in word["branches"]]


def added(word, x, at, built):
    """Return the sum of the outputs of a residual's body and its shortcut."""
    body, shortcut = branches(word, x, at, built)
    return body + shortcut


def keeps_size(word):
    """Return whether a convolution's padding equals TensorFlow's SAME: stride 1, and as much after as before."""
    return word["stride"] == 1 and all(2 * edge == size - 1 for edge, size in zip(word["padding"], word["shape"]))


def sides_after(word, sides):
    """Return the height and width of a convolution's output, with stride 1."""
    return tuple(side + 2 * edge - size + 1 for side, edge, size in zip(sides, word["padding"], word["shape"]))


def hanging_over(side, size, stride):
    """Return how far the windows of TensorFlow's SAME extend beyond the top and left, and the bottom and right."""
    total = max((-(-side // stride) - 1) * stride + size - side, 0)
    return total // 2, total - total // 2


def without(words, op):
    """Return the same network without the words of this op."""
    kept = [word for word in words if word["op"] != op]
    return [dict(word, branches=[without(branch, op) for branch in word["branches"]])
            if "branches" in word else word for word in kept]


def pooled_first(words):
    """Return the network with each max pool moved before the relu that it followed. Results and gradients stay the same
    to the bit, and the relu then computes a quarter of the values or fewer."""
    found = []
    for word in words:
        if "branches" in word:
            word = dict(word, branches=[pooled_first(branch) for branch in word["branches"]])
        is_swapped = word["op"] == "max_pool" and bool(found) and found[-1]["op"] == "relu"
        found.insert(len(found) - is_swapped, word)
    return found


def joined(words):
    """Return the network with each relu joined to the convolution behind it, which is then "relued", and each max pool
    with a stride of 2, and the relu behind it, joined to the convolution before them, as its "pooled"."""
    found = []
    for word in words:
        if "branches" in word:
            word = dict(word, branches=[joined(branch) for branch in word["branches"]])
        if word["op"] == "conv" and found and found[-1]["op"] == "relu":
            found[-1:] = [dict(word, relued=1)]
        else:
            found.append(word)
        if [one["op"] for one in found[-3:]] == ["conv", "max_pool", "relu"] and found[-2]["stride"] == 2:
            found[-3:] = [dict(found[-3], pooled=found[-2:])]
    return found


def pooled_sides(word, sides):
    """Return the height and width of a joined word's output, of those of its input."""
    pool = word["pooled"][0]
    beyond = sum(pool["padding"]) - pool["size"]
    return tuple((side + beyond) // pool["stride"] + 1 for side in sides_after(word, sides))


def ops(words):
    inner = [ops(branch) for word in words for branch in word.get("branches", ())]
    return {word["op"] for word in words}.union(*inner)


def shapes(words, kind="arrays"):
    """Return [(name, shape)] of all weights, in the network's order; with kind "running", of the arrays that no
    gradient updates."""
    return [(word["name"] + "/" + which, tuple(shape))
            for word in flat(words) for which, shape, _ in word.get(kind, ())]


def parameters(words):
    return sum(int(np.prod(shape, dtype=np.int64)) for _, shape in shapes(words))


def decays(words):
    """Return [(name of the weights, factor)] of those with weight decay: factor * sum(weights ** 2) / 2 in the loss."""
    return [(word["name"] + "/weights", word["decay"]) for word in flat(words) if word.get("decay")]


def initial(words, seed):
    """Return {name: float32 array} of all weights, the same for every framework and for any order of its layers."""
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
