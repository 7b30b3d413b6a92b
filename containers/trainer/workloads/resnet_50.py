"""ResNet-50 on 224 x 224 noise, from Table 7 of Shi et al. 2016: only its speed matters.

The stride of 2 is in the first convolution of a stage, as in the source's scripts for TensorFlow and Caffe; others have
it in the second (3 x 3), with as many parameters and 4.089 instead of 3.858 billion multiply-accumulates. The source
does not mention batch norm's momentum (here 0.9); the last matrix is initialised as in its script for TensorFlow, the
convolutions with He's weights.
"""
from __future__ import absolute_import, division, print_function

from .. import made
from ..epochs import in_turn
from ..layers import batch_norm, constant, conv, dense, global_avg_pool, he, max_pool, normal, relu, residual
from ..recipe import momentum, recipe

SUMMARY = "ResNet-50 on noise: 16 bottleneck blocks, 224x224 images, 1000 classes"
WHAT = "The ImageNet network of He et al., for speed only"
PLACE = 10
SOURCE = "Table 7 of Shi et al. 2016 (dlbench), as F. Fleuret shows it, AMMI 6.6, 2018"
DATA = "ImageNet"
UNIT = "images"
STEPS = 2500
BATCH = 16
INPUT = (224, 224, 3)
PARAMETERS = 25557032
MACS = 3857973248
FLOPS = 22911811584
FRAMEWORKS = ("pytorch", "tf1", "tf2")
LEAST_BATCH = 2         # batch norm has no variance of a single example
EPOCHS = False

IMAGES = 128
L2 = 4e-5


def convolution(name, size, inputs, outputs, stride=1):
    """A convolution without biases, and batch norm."""
    return [conv(name, size, inputs, outputs, he(inputs, size * size), stride=stride, decay=L2),
            batch_norm(name + "/norm", outputs, momentum=0.9, epsilon=0.001)]


def block(name, inputs, width, stride):
    body = convolution(name + "/conv1", 1, inputs, width, stride) + [relu(name + "/relu1")]
    body += convolution(name + "/conv2", 3, width, width) + [relu(name + "/relu2")]
    body += convolution(name + "/conv3", 1, width, 4 * width)
    shortcut = convolution(name + "/project", 1, inputs, 4 * width, stride) if inputs != 4 * width else []
    return [residual(name, body, shortcut), relu(name + "/relu3")]


def stage(number, blocks, inputs, width, stride):
    words = block("stage%d/block1" % number, inputs, width, stride)
    for k in range(2, blocks + 1):
        words += block("stage%d/block%d" % (number, k), 4 * width, width, 1)
    return words


NETWORK = convolution("conv1", 7, 3, 64, stride=2) + [relu("relu1"), max_pool("pool1", 3, 2, padding=(1, 1))]
NETWORK += stage(1, 3, 64, 64, 1) + stage(2, 4, 256, 128, 2) + stage(3, 6, 512, 256, 2) + stage(4, 3, 1024, 512, 2)
NETWORK += [global_avg_pool("mean"), dense("softmax_linear", 2048, 1000, normal(0.01), constant(0.0))]
RECIPE = recipe(momentum(0.9), rate=0.01)


def load(folder):
    return made.noise(IMAGES, INPUT, 0.1, 1000)


source = in_turn
