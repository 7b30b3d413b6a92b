"""What an article of 2018 trains with Keras: four weight layers, Adam, ten epochs of CIFAR-10 with batches of 32."""
from __future__ import absolute_import, division, print_function

from .. import data
from ..epochs import shuffled
from ..layers import constant, conv, dense, dropout, glorot, max_pool, relu
from ..recipe import adam, recipe

SUMMARY = "Keras on CIFAR-10: 3 convolutions, 2 dense layers, dropout, Adam"
WHAT = "Keras' example: 3 convolutions, dropout, Adam"
PLACE = 2
SOURCE = "Quick (and free) experiment for CPU vs GPU for Deep Learning"
DATA = "cifar10"
UNIT = "images"
STEPS = 15630           # ten epochs of 1,563
BATCH = 32
INPUT = (32, 32, 3)
PARAMETERS = 1667594
MACS = 14439424
FLOPS = 84867072
FRAMEWORKS = ("pytorch", "tf1", "tf2")

NONE = constant(0.0)

NETWORK = [
    conv("conv1", 3, 3, 32, glorot(3, 32, 9), NONE),
    relu("relu1"),
    max_pool("pool1", 2, 2),
    dropout("dropout1", 0.25),
    conv("conv2", 3, 32, 64, glorot(32, 64, 9), NONE),
    relu("relu2"),
    conv("conv3", 3, 64, 64, glorot(64, 64, 9), NONE, padding=0),
    relu("relu3"),
    max_pool("pool2", 2, 2),
    dropout("dropout2", 0.25),
    dense("dense1", 7 * 7 * 64, 512, glorot(7 * 7 * 64, 512), NONE),
    relu("relu4"),
    dropout("dropout3", 0.2),
    dense("dense2", 512, 10, glorot(512, 10), NONE),
]
RECIPE = recipe(adam(b1=0.9, b2=0.999, epsilon=1e-7), rate=0.001, counted=True)

load, load_test, plain = data.training, data.testing, data.scaled
source = shuffled(data.scaled)
