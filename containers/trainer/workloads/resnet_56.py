"""ResNet-56 on CIFAR-10, from Table 7 of Shi et al. 2016: 55 convolutions, 3 stages of 9 blocks, no projections.

The source says L2 1e-4 without saying of what: here it is of the convolutions and the last matrix, as in the paper. It
does not mention the initial weights (here He's, and of stddev 0.01 in the last matrix), the images (here standardized,
not distorted) or their order (here reshuffled each epoch).
"""
from __future__ import absolute_import, division, print_function

from .. import data
from ..epochs import shuffled
from ..layers import avg_pool, batch_norm, constant, conv, dense, global_avg_pool, he, normal
from ..layers import pad_channels, relu, residual
from ..recipe import momentum, recipe

SUMMARY = "ResNet-56 on CIFAR-10: 3 stages of 9 basic blocks, shortcuts without parameters"
WHAT = "The CIFAR-10 network of He et al."
PLACE = 9
SOURCE = "Table 7 of Shi et al. 2016 (dlbench), as F. Fleuret shows it, AMMI 6.6, 2018"
DATA = "cifar10"
UNIT = "images"
STEPS = 3910            # ten epochs of 391
BATCH = 128
INPUT = (32, 32, 3)
PARAMETERS = 853018
MACS = 125485696
FLOPS = 752029440
FRAMEWORKS = ("pytorch", "tf1", "tf2")
LEAST_BATCH = 2         # batch norm has no variance of a single example

BLOCKS = 9
L2 = 1e-4


def convolution(name, inputs, outputs, stride=1):
    """A 3 x 3 convolution without biases, and batch norm."""
    return [conv(name, 3, inputs, outputs, he(inputs, 9), stride=stride, decay=L2),
            batch_norm(name + "/norm", outputs, momentum=0.9, epsilon=1e-5)]


def block(name, inputs, outputs, stride):
    body = convolution(name + "/conv1", inputs, outputs, stride) + [relu(name + "/relu1")]
    body += convolution(name + "/conv2", outputs, outputs)
    edge = (outputs - inputs) // 2
    shortcut = [avg_pool(name + "/half", 2, 2), pad_channels(name + "/widen", edge, edge)] if stride == 2 else []
    return [residual(name, body, shortcut), relu(name + "/relu2")]


def stage(number, inputs, outputs):
    words = block("stage%d/block1" % number, inputs, outputs, 1 if inputs == outputs else 2)
    for k in range(2, BLOCKS + 1):
        words += block("stage%d/block%d" % (number, k), outputs, outputs, 1)
    return words


NETWORK = convolution("conv1", 3, 16) + [relu("relu1")]
NETWORK += stage(1, 16, 16) + stage(2, 16, 32) + stage(3, 32, 64)
NETWORK += [global_avg_pool("mean"), dense("softmax_linear", 64, 10, normal(0.01), constant(0.0), decay=L2)]
RECIPE = recipe(momentum(0.9), rate=0.01)


def plain(images):
    return data.central(images, 32)


load, load_test = data.training, data.testing
source = shuffled(plain)
