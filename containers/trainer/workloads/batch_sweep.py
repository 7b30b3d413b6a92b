"""A forum question about batches: a small network on protein chains, whose training takes 35 minutes with batches of 8
and 12 with batches of 64. Is that due to the batch?

Only the size of its network and data is known, so these are stand-ins: 75,000 windows of 50 residues, each one of 21
kinds, which with their three classes are 316 MB as in the source; 50,000 windows are for training and 25,000 for
testing, as in one of the source's three folds. The network has two hidden layers, as there. Batches of 8 and 64 are
compared; the whole sweep is `--vary batch=1,2,4,8,16,32,64,128,256`. (The source's loss became NaN at times with
batches of 4, and often with smaller ones: a training here then stops, and says so. On these windows the loss never
became NaN: the gradients' global norm exceeded 5, to which --clip 5 clips it, in 39 % of 4,000 steps with batches of 1,
in 2 % of 1,500 with 8 and in none of 300 with 64.)
"""
from __future__ import absolute_import, division, print_function

from .. import made
from ..epochs import shuffled
from ..layers import constant, conv, dense, glorot, relu
from ..recipe import adam, recipe

SUMMARY = "A small network on made-up protein chains: 2 convolutions over 50 residues, Adam"
WHAT = "Batches of 8 or 64: is an epoch 3 times as slow?"
PLACE = 6
SOURCE = "a question on a forum about batches of 8 and 64, and 50,000 windows of protein chains"
DATA = "windows of protein chains"
UNIT = "windows"
STEPS = 7820            # ten epochs of 782
BATCH = 64
INPUT = (50, 1, 21)
PARAMETERS = 47811
MACS = 1913600
FLOPS = 10540800
FRAMEWORKS = ("pytorch", "tf1", "tf2")
VARY = "batch=8,64"

FILTERS = 64
NONE = constant(0.0)


def hidden(number, inputs):
    """A convolution over seven residues, along the chain."""
    name = "conv%d" % number
    return [conv(name, (7, 1), inputs, FILTERS, glorot(inputs, FILTERS, 7), NONE), relu("relu%d" % number)]


NETWORK = hidden(1, 21) + hidden(2, FILTERS) + [dense("softmax_linear", 50 * FILTERS, 3, glorot(50 * FILTERS, 3), NONE)]
RECIPE = recipe(adam(b1=0.9, b2=0.999, epsilon=1e-7), rate=0.001, counted=True)


def load(folder):
    return made.chains("train")


def load_test(folder):
    return made.chains("test")


def plain(windows):
    return windows


source = shuffled(plain)
