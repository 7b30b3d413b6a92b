"""What a network costs per example: the multiply-accumulates of its convolutions and matrix products, and memory."""
from __future__ import absolute_import, division, print_function

import functools
import operator

from .layers import flat


def macs(words, shape):
    """Return the multiply-accumulates of one example's forward pass; shape: the example's. Raise ValueError if layers
    don't fit together."""
    return sum(count for _, count in layers(words, shape)[0])


def share_of_3x3(words, shape):
    """Return the share of the operations in 3 x 3 convolutions with stride 1, which cuDNN can do with up to 2.25 times
    fewer multiplications (Winograd's algorithm; https://arxiv.org/abs/1509.09308)."""
    small = {word["name"] for word in flat(words)
             if word["op"] == "conv" and word["shape"][:2] == (3, 3) and word["stride"] == 1}
    counted = layers(words, shape)[0]
    return sum(count for name, count in counted if name in small) / sum(count for _, count in counted)


def layers(words, shape):
    """Return [(name, multiply-accumulates)] of the layers that have any, and the output's shape."""
    found, shape = [], tuple(shape)
    for word in words:
        if "branches" in word:
            inner = [layers(branch, shape) for branch in word["branches"]]
            shape = JOINED[word["op"]](word, [out for _, out in inner])
            found += [one for counted, _ in inner for one in counted]
        else:
            shape, count = COSTS.get(word["op"], unchanged)(word, shape)
            found += [(word["name"], count)] if count else []
    return found, shape


def most_values(words, shape, trains):
    """Return how many numbers of one example lie in memory at once, at least: what goes into and comes out of a
    convolution or a product, and in training what went into those before it, which their weights' gradients need."""
    return values(words, tuple(shape), trains)[1]


def values(words, shape, trains, kept=0, is_counted=False):
    """Return how many numbers stay for the gradients, the most at once, and the output's shape. kept: how many stay
    already; is_counted: whether the input, which branches share, is among them."""
    most = kept
    for word in words:
        into = prod(shape)
        if "branches" in word:
            outs = []
            for branch in word["branches"]:
                kept, peak, out = values(branch, shape, trains, kept, is_counted or bool(outs))
                outs, most = outs + [out], max(most, peak)
            shape = JOINED[word["op"]](word, outs)
        else:
            shape, count = COSTS.get(word["op"], unchanged)(word, shape)
            if count:
                kept += into if trains and not is_counted else 0
                most = max(most, kept + prod(shape) + (0 if trains else into))
        is_counted = False
    return kept, most, shape


def prod(shape):
    return functools.reduce(operator.mul, shape, 1)


def fits(word, wanted, given):
    if wanted != given:
        raise ValueError("%s: needs %s and is given %s" % (word["name"], wanted, given))


def added(word, shapes):
    for other in shapes[1:]:
        fits(word, shapes[0], other)
    return shapes[0]


def beside(word, shapes):
    for other in shapes[1:]:
        fits(word, shapes[0][:-1], other[:-1])
    return shapes[0][:-1] + (sum(shape[-1] for shape in shapes),)


JOINED = {"residual": added, "concat": beside}


def unchanged(word, shape):
    return shape, 0


def slid(word, shape, size, paddings):
    """Return the height and width that windows of this size produce; paddings: (before, after) of the height and of the
    width."""
    reach = [side + sum(padding) - window for side, padding, window in zip(shape, paddings, size)]
    if min(reach) < 0 or any(before != after and left % word["stride"]
                             for (before, after), left in zip(paddings, reach)):
        raise ValueError("%s: a window of %d x %d does not fit %s" % ((word["name"],) + size + (shape,)))
    return tuple(left // word["stride"] + 1 for left in reach)


def conv(word, shape):
    size, (inputs, outputs) = word["shape"][:2], word["shape"][2:]
    fits(word, inputs, shape[2])
    height, width = slid(word, shape, size, [(edge, edge) for edge in word["padding"]])
    return (height, width, outputs), height * width * size[0] * size[1] * inputs * outputs


def dense(word, shape):
    inputs, outputs = word["shape"]
    if len(shape) == 2:
        fits(word, inputs, shape[1])
        return (shape[0], outputs), shape[0] * inputs * outputs
    fits(word, inputs, prod(shape))
    return (outputs,), inputs * outputs


def pool(word, shape):
    return slid(word, shape, (word["size"], word["size"]), [word["padding"]] * 2) + shape[2:], 0


def batch_norm(word, shape):
    fits(word, word["channels"], shape[-1])
    return shape, 0


def lstm(word, shape):
    fits(word, word["inputs"], shape[1])
    return (shape[0], word["outputs"]), shape[0] * (word["inputs"] + word["outputs"]) * 4 * word["outputs"]


COSTS = {
    "conv": conv,
    "dense": dense,
    "max_pool": pool,
    "avg_pool": pool,
    "smooth": pool,
    "global_avg_pool": lambda word, shape: (shape[2:], 0),
    "pad_channels": lambda word, shape: (shape[:2] + (shape[2] + word["before"] + word["after"],), 0),
    "batch_norm": batch_norm,
    "embedding": lambda word, shape: (shape + word["shape"][1:], 0),
    "lstm": lstm,
}
