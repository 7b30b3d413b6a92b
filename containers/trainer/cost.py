"""What a network costs for one example: multiply-accumulates of its convolutions and matrix products, nothing else."""
from __future__ import absolute_import, division, print_function

from .layers import flat


def macs(words, shape):
    """Give the multiply-accumulates of one example forward; shape: the example's. Layers that don't fit: ValueError."""
    return sum(count for _, count in layers(words, shape)[0])


def training_flops(words, shape):
    """Give the operations of one example forward and backward: two a multiply-accumulate, and backward twice forward.

    The first layer's gradient is only of its weights, for nothing trains the input; unless that is an embedding.
    """
    counted = layers(words, shape)[0]
    embedded = flat(words)[0]["op"] == "embedding"
    return 2 * (3 * sum(count for _, count in counted) - (0 if embedded else counted[0][1]))


def layers(words, shape):
    """Give [(name, multiply-accumulates)] of the layers that have some, and the shape that comes out."""
    found, shape = [], tuple(shape)
    for word in words:
        if word["op"] == "residual":
            body, out = layers(word["body"], shape)
            shortcut, other = layers(word["shortcut"], shape)
            fits(word, out, other)
            found, shape = found + body + shortcut, out
        else:
            shape, count = COSTS.get(word["op"], unchanged)(word, shape)
            found += [(word["name"], count)] if count else []
    return found, shape


def fits(word, wanted, given):
    if wanted != given:
        raise ValueError("%s: wants %s and is given %s" % (word["name"], wanted, given))


def unchanged(word, shape):
    return shape, 0


def slid(word, shape, size):
    """Give height and width after a window of this size."""
    reach = [side + sum(word["padding"]) - size for side in shape[:2]]
    uneven = word["padding"][0] != word["padding"][1]
    if min(reach) < 0 or (uneven and any(left % word["stride"] for left in reach)):
        raise ValueError("%s: a window of %d does not fit %s" % (word["name"], size, shape))
    return tuple(left // word["stride"] + 1 for left in reach)


def conv(word, shape):
    size, _, inputs, outputs = word["shape"]
    fits(word, inputs, shape[2])
    height, width = slid(word, shape, size)
    return (height, width, outputs), height * width * size * size * inputs * outputs


def dense(word, shape):
    inputs, outputs = word["shape"]
    if len(shape) == 2:
        fits(word, inputs, shape[1])
        return (shape[0], outputs), shape[0] * inputs * outputs
    size = 1
    for side in shape:
        size *= side
    fits(word, inputs, size)
    return (outputs,), inputs * outputs


def pool(word, shape):
    return slid(word, shape, word["size"]) + shape[2:], 0


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
    "global_avg_pool": lambda word, shape: (shape[2:], 0),
    "pad_channels": lambda word, shape: (shape[:2] + (shape[2] + word["before"] + word["after"],), 0),
    "batch_norm": batch_norm,
    "embedding": lambda word, shape: (shape + word["shape"][1:], 0),
    "lstm": lstm,
}
