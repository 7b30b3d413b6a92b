"""Four dense layers on digits, from Table 7 of Shi et al. 2016."""
from __future__ import absolute_import, division, print_function

from .. import data, made
from ..epochs import shuffled
from ..layers import constant, dense, sigmoid, truncated
from ..recipe import momentum, recipe

SUMMARY = "Dense layers on digits: 784 -> 2048 -> 4096 -> 1024 -> 10"
WHAT = "Table 7 of Shi et al. 2016: dense layers, small"
PLACE = 15
SOURCE = "Table 7 of Shi et al. 2016 (dlbench), as F. Fleuret shows it, AMMI 6.6, 2018"
DATA = "MNIST"
UNIT = "images"
STEPS = 2360            # forty epochs of 59
BATCH = 1024
INPUT = (784,)
PARAMETERS = 14205962
MACS = 14198784
FLOPS = 81981440
FRAMEWORKS = ("pytorch", "tf1", "tf2")

NETWORK = [
    dense("fc1", 784, 2048, truncated(0.1), constant(0.1)),
    sigmoid("sigmoid1"),
    dense("fc2", 2048, 4096, truncated(0.1), constant(0.1)),
    sigmoid("sigmoid2"),
    dense("fc3", 4096, 1024, truncated(0.1), constant(0.1)),
    sigmoid("sigmoid3"),
    dense("softmax_linear", 1024, 10, truncated(0.1), constant(0.1)),
]
RECIPE = recipe(momentum(0.9), rate=0.05)


def load(folder):
    return made.digits("train")


def load_test(folder):
    return made.digits("test")


plain = data.scaled
source = shuffled(data.scaled)
