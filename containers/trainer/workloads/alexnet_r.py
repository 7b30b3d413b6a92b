"""A small AlexNet on CIFAR-10, from Table 7 of Shi et al. 2016: cuda-convnet's "18 %" net without norm layers."""
from __future__ import absolute_import, division, print_function

import numpy as np

from .. import data
from ..epochs import shuffled
from ..layers import avg_pool, constant, conv, dense, max_pool, normal, relu
from ..recipe import momentum, recipe

SUMMARY = "Small AlexNet on CIFAR-10: 3 convolutions, 1 dense layer, raw pixels"
WHAT = "Table 7 of Shi et al. 2016: AlexNet, small"
PLACE = 13
SOURCE = "Table 7 of Shi et al. 2016 (dlbench), as F. Fleuret shows it, AMMI 6.6, 2018"
DATA = "cifar10"
UNIT = "images"
STEPS = 1960            # forty epochs of 49
BATCH = 1024
INPUT = (32, 32, 3)
PARAMETERS = 85098
MACS = 10732160
FLOPS = 59477760
FRAMEWORKS = ("pytorch", "tf1", "tf2")

NONE = constant(0.0)

NETWORK = [
    conv("conv1", 5, 3, 32, normal(0.01), NONE),
    max_pool("pool1", 3, 2),
    relu("relu1"),
    conv("conv2", 5, 32, 32, normal(0.01), NONE),
    relu("relu2"),
    max_pool("pool2", 3, 2),
    conv("conv3", 5, 32, 64, normal(0.01), NONE),
    relu("relu3"),
    avg_pool("pool3", 3, 2),
    dense("softmax_linear", 3 * 3 * 64, 10, normal(0.01), NONE),
]
RECIPE = recipe(momentum(0.9), rate=0.001)


def plain(images):
    """Return the pixels as they are, 0 to 255."""
    return images.astype(np.float32)


load, load_test = data.training, data.testing
source = shuffled(plain)
