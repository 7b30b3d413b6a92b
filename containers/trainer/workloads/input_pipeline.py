"""Does making batches hold the training back? The tutorial's network and pipeline, separately and together."""
from __future__ import absolute_import, division, print_function

from . import cifar10

SUMMARY = "The CIFAR-10 tutorial's batches made alone, its network trained alone, and both together"
WHAT = "Can the input pipeline keep up?"
PLACE = 4
SOURCE = "tensorflow/models, tutorials/image/cifar10; a question on a forum about what keeps a GPU waiting"
DATA = "cifar10"
UNIT = "images"
STEPS = 1000
BATCH = 128
INPUT = (24, 24, 3)
PARAMETERS = 1068298
MACS = 18470784
FLOPS = 105295104
FRAMEWORKS = ("pytorch", "tf1", "tf2")
EPOCHS = False
VARY = "feed=input,constant,ahead"

NETWORK, RECIPE = cifar10.NETWORK, cifar10.RECIPE
load, load_test, plain = cifar10.load, cifar10.load_test, cifar10.plain
source, stages, queued = cifar10.source, cifar10.stages, cifar10.queued
