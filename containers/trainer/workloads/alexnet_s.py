"""AlexNet on 224 x 224 noise, from Table 7 of Shi et al. 2016: only its speed matters.

Without local response normalization, dropout and groups. The source initialises with normal weights of stddev 0.1, with
which the loss soon is not finite; here they are He's. (Its graph for MXNet leaves out four layers: those times are no
measure.)
"""
from __future__ import absolute_import, division, print_function

from .. import made
from ..epochs import in_turn
from ..layers import constant, conv, dense, he, max_pool, relu
from ..recipe import recipe, sgd

SUMMARY = "AlexNet on noise: 5 convolutions, 3 dense layers, 224x224 images, 1000 classes"
WHAT = "Table 7 of Shi et al. 2016: AlexNet"
PLACE = 14
SOURCE = "Table 7 of Shi et al. 2016 (dlbench), as F. Fleuret shows it, AMMI 6.6, 2018"
DATA = "ImageNet"
UNIT = "images"
STEPS = 10000
BATCH = 16
INPUT = (224, 224, 3)
PARAMETERS = 62378344
MACS = 1135256096
FLOPS = 6600706176
FRAMEWORKS = ("pytorch", "tf1", "tf2")
EPOCHS = False

IMAGES = 128
NONE = constant(0.0)

NETWORK = [
    conv("conv1", 11, 3, 96, he(3, 121), NONE, stride=4, padding=2),
    relu("relu1"),
    max_pool("pool1", 3, 2),
    conv("conv2", 5, 96, 256, he(96, 25), NONE),
    relu("relu2"),
    max_pool("pool2", 3, 2),
    conv("conv3", 3, 256, 384, he(256, 9), NONE),
    relu("relu3"),
    conv("conv4", 3, 384, 384, he(384, 9), NONE),
    relu("relu4"),
    conv("conv5", 3, 384, 256, he(384, 9), NONE),
    relu("relu5"),
    max_pool("pool5", 3, 2),
    dense("fc6", 6 * 6 * 256, 4096, he(6 * 6 * 256), NONE),
    relu("relu6"),
    dense("fc7", 4096, 4096, he(4096), NONE),
    relu("relu7"),
    dense("fc8", 4096, 1000, he(4096), NONE),
]
RECIPE = recipe(sgd(), rate=0.01)


def load(folder):
    return made.noise(IMAGES, INPUT, 0.1, 1000, label=1)  # the source labels all of them 1


source = in_turn
