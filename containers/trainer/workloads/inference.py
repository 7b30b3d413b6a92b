"""A forum question about a film: the 2,048 features of Inception V3's layer pool_3, for 222 frames.

Why do CPU and GPU both take 40 to 50 seconds for the 222 frames, one at a time, and how much do batches help? The batch
is 1, as there, and a batch of 32 is compared with it; `--vary device=cpu,gpu` answers the other question.
The film is 222 steps of 1 frame, or 7 of 32, the last of which has 30. Each step reports its own time, until its
features are in host memory; the first step, in which the network is built, counts in no rate.
The layers are Keras' (Inception V3 without its top); initial weights are He's, as speed does not depend on them.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from .. import made
from ..epochs import in_order
from ..layers import batch_norm, concat, conv, global_avg_pool, he, max_pool, pair, relu, smooth
from ..recipe import untrained

SUMMARY = "Inception V3 without its top on a made-up film: 2,048 features a frame, computed forward only"
WHAT = "Inception V3, forward only: frames/s, latency"
PLACE = 12
SOURCE = "a question on a forum about 222 frames of a film, Inception V3's layer pool_3"
DATA = "a film"
UNIT = "frames"
STEPS = 222             # the film once
BATCH = 1
INPUT = (299, 299, 3)
PARAMETERS = 21802784   # as Keras counts: with batch norm's running statistics
TRAINED = 21768352      # without running statistics; but here nothing is trained
MACS = 5711168096
FLOPS = 11422336192     # forward only
FRAMEWORKS = ("pytorch", "tf1", "tf2")
TRAINS = False
VARY = "batch=1,32"
LINES = 1
WHOLE = "film"

FRAMES = 222


def convolution(name, size, inputs, outputs, stride=1, padding=None):
    """A convolution without biases, batch norm without a scale, and ReLU."""
    height, width = pair(size)
    return [conv(name, size, inputs, outputs, he(inputs, height * width), stride=stride, padding=padding),
            batch_norm(name + "/norm", outputs, momentum=0.99, epsilon=0.001, scaled=False), relu(name + "/relu")]


def chain(name, inputs, *sizes):
    """One convolution after the other, each (size, outputs)."""
    words = []
    for k, (size, outputs) in enumerate(sizes, 1):
        words += convolution("%s/conv%d" % (name, k), size, inputs, outputs)
        inputs = outputs
    return words


def pooled(name, inputs, outputs):
    return [smooth(name + "/mean", 3)] + convolution(name, 1, inputs, outputs)


def small(name, inputs, outputs):
    """An inception block at 35 x 35."""
    return concat(
        name,
        chain(name + "/1x1", inputs, (1, 64)),
        chain(name + "/5x5", inputs, (1, 48), (5, 64)),
        chain(name + "/3x3", inputs, (1, 64), (3, 96), (3, 96)),
        pooled(name + "/pool", inputs, outputs))


def long_and_narrow(name, width):
    """An inception block at 17 x 17: 7 x 7 kernels, factorised."""
    return concat(
        name,
        chain(name + "/1x1", 768, (1, 192)),
        chain(name + "/7x7", 768, (1, width), ((1, 7), width), ((7, 1), 192)),
        chain(name + "/twice", 768, (1, width), ((7, 1), width), ((1, 7), width), ((7, 1), width), ((1, 7), 192)),
        pooled(name + "/pool", 768, 192))


def split(name, inputs):
    """A 3 x 3 kernel split into two in parallel."""
    return concat(
        name,
        convolution(name + "/1x3", (1, 3), inputs, 384),
        convolution(name + "/3x1", (3, 1), inputs, 384))


def wide(name, inputs):
    """An inception block at 8 x 8."""
    return concat(
        name,
        chain(name + "/1x1", inputs, (1, 320)),
        chain(name + "/3x3", inputs, (1, 384)) + [split(name + "/3x3/split", 384)],
        chain(name + "/twice", inputs, (1, 448), (3, 384)) + [split(name + "/twice/split", 384)],
        pooled(name + "/pool", inputs, 192))


def halved(name, body):
    """The convolutions that lead to 17 x 17 or 8 x 8, with the max pool beside them."""
    return concat(name, *(body + [[max_pool(name + "/most", 3, 2)]]))


def shrunk(name, inputs, outputs):
    return convolution(name, 3, inputs, outputs, stride=2, padding=0)


NETWORK = shrunk("conv1", 3, 32) + convolution("conv2", 3, 32, 32, padding=0) + convolution("conv3", 3, 32, 64)
NETWORK += [max_pool("pool1", 3, 2)]
NETWORK += convolution("conv4", 1, 64, 80) + convolution("conv5", 3, 80, 192, padding=0) + [max_pool("pool2", 3, 2)]
NETWORK += [small("mixed0", 192, 32), small("mixed1", 256, 64), small("mixed2", 288, 64)]
NETWORK += [halved("mixed3", [
    shrunk("mixed3/3x3", 288, 384),
    chain("mixed3/twice", 288, (1, 64), (3, 96)) + shrunk("mixed3/twice/half", 96, 96)])]
NETWORK += [long_and_narrow("mixed4", 128), long_and_narrow("mixed5", 160), long_and_narrow("mixed6", 160)]
NETWORK += [long_and_narrow("mixed7", 192)]
NETWORK += [halved("mixed8", [
    chain("mixed8/3x3", 768, (1, 192)) + shrunk("mixed8/3x3/half", 192, 320),
    chain("mixed8/7x7", 768, (1, 192), ((1, 7), 192), ((7, 1), 192)) + shrunk("mixed8/7x7/half", 192, 192)])]
NETWORK += [wide("mixed9", 1280), wide("mixed10", 2048), global_avg_pool("pool_3")]
RECIPE = untrained()


def load(folder):
    return made.film(FRAMES, INPUT)


def scaled(frames):
    """Turn bytes into floats from -1 to 1: one batch at a time, because all 222 would take four times the memory."""
    return frames.astype(np.float32) / np.float32(127.5) - np.float32(1)


source = in_order(scaled)
