"""The schedule of cifar10-94: the rates of each step, the size of its images, and what it costs.

All that is tuned is in KNOBS. Most numbers are those of https://github.com/fulcrumresearch/cifar-10-speedrun, whose
authors saw the test set's accuracies as they chose. Tune on examples held back from the training set (split()): knobs
chosen on the test set could not be tested on it.
"""
from __future__ import absolute_import, division, print_function

import collections

import numpy as np

Knobs = collections.namedtuple("Knobs", [
    "sides",              # ((side, share of all steps after which the next begins), ...): small images first
    "bias_share",         # the share of all steps in which the whitening's biases are trained
    "filter_rate",        # Muon's; like all rates it decays linearly to 0
    "filter_momentum",
    "polynomials",        # (a, b, c) of each Newton-Schulz step: x -> a x + b (x x') x + c (x x') (x x') x
    "offset_rate",        # of batch norm's offsets and the whitening's biases; for the mean loss, as head_rate is
    "head_rate",
    "momentum",           # Nesterov's, of all that Muon does not update
    "decay",              # weight decay of all that Muon does not update: the share of a weight that step 0 subtracts
    "smoothing",          # label smoothing: the share of the target that is spread over all classes
    "shift",              # the most pixels that images are shifted by; the edges are reflected
    "jitter",             # (b, c): each image gets up to b brighter or darker, in units of DEVIATION, and its contrast
                          # is changed by up to this share
    "running",            # the share of batch norm's running statistics that a step replaces
    "unsure",             # predictions with a probability below this get more views; fixed beforehand
    "whitening_images", "whitening_epsilon",
])
KNOBS = Knobs(
    sides=((24, 1 / 3), (28, 2 / 3), (32, 1.0)), bias_share=1 / 9,
    filter_rate=0.2255, filter_momentum=0.655, polynomials=((3.4445, -4.775, 2.0315),) * 3,
    offset_rate=88.0, head_rate=0.0127, momentum=0.825, decay=0.009, smoothing=0.09, shift=2, jitter=(0.14, 0.13),
    running=0.4, unsure=0.6, whitening_images=5000, whitening_epsilon=5e-4)

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of the training set's pixels, 0..1
EPSILON = 1e-5                 # batch norm's
WHITENED, WIDTHS, CLASSES = 24, (64, 256, 256), 10
HELD_BACK = 10000

# first <= step < last, the images' side, and whether the whitening's biases are trained
Phase = collections.namedtuple("Phase", "first last side whitens")
FILTER_RATE, WHITENING, PACE = range(3)  # the columns of table()


def phases(knobs, steps):
    """Split the steps into phases that do the same work: [Phase], in order, none empty."""
    ends = [(nearest(share * steps), side) for side, share in knobs.sides]
    learns = nearest(knobs.bias_share * steps)
    found, first = [], 0
    for last in sorted({end for end, _ in ends} | {learns}):
        if first < last:
            end = min(end for end, _ in ends if last <= end)
            side = max(side for other, side in ends if other == end)
            found.append(Phase(first, last, side, last <= learns))
            first = last
    return found


def nearest(number):
    return int(number + 0.5)


def table(knobs, steps):
    """Return float32 [steps, 3]: Muon's rate; the pace of the whitening's biases and of all else, from 1 to 0."""
    step = np.arange(steps)
    pace = 1 - step / steps
    whitening = np.maximum(1 - step / max(nearest(knobs.bias_share * steps), 1), 0)
    return np.stack([knobs.filter_rate * pace, whitening, pace], axis=1).astype(np.float32)


def macs(side):
    """Return [(layer, multiply-accumulates)] of one image's forward pass. What the pools discard is not computed."""
    size, inputs = side - 1, WHITENED
    found = [("whiten", size * size * 2 * 2 * 3 * WHITENED)]
    for block, width in enumerate(WIDTHS, 1):
        half = size // 2
        found += [("block%d/conv1" % block, (2 * half) ** 2 * 9 * inputs * width),
                  ("block%d/conv2" % block, half ** 2 * 9 * width * width)]
        size, inputs = half, width
    return found + [("head", inputs * CLASSES)]


def step_flops(side, whitens):
    """Return the operations of a training step per image: forward, and backward for weights and inputs. No gradient
    passes through the whitening, nor through the layer after it unless the biases are trained."""
    counted = macs(side)
    forward = sum(count for _, count in counted)
    backward = 2 * (forward - counted[0][1]) - (0 if whitens else counted[1][1])
    return 2 * (forward + backward)


def flops_per_example(knobs, steps):
    """Return the operations of a training step per image, as the mean over all steps."""
    return sum((one.last - one.first) * step_flops(one.side, one.whitens) for one in phases(knobs, steps)) / steps


def split(dataset):
    """Return (images, labels) to train on, and (images, labels) held back for tuning."""
    images, labels = dataset.images, dataset.labels
    return (images[:-HELD_BACK], labels[:-HELD_BACK]), (images[-HELD_BACK:], labels[-HELD_BACK:])
