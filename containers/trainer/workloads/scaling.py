"""What does a second GPU buy? The tutorial's network on one card and on two, with the same global batch.

That is strong scaling: each of N cards has an Nth of the 128 images, so only the training's duration differs.
To keep each card's share constant (weak scaling), the batch must grow with them: `ngcdl compare --scaling weak`.
"""
from __future__ import absolute_import, division, print_function

from . import cifar10

SUMMARY = "The CIFAR-10 tutorial on one GPU and on two, each with its part of the same batch"
WHAT = "One card or two?"
PLACE = 7
SOURCE = "tensorflow/models, tutorials/image/cifar10, cifar10_multi_gpu_train.py"
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
VARIABLES = "cpu"
VARY = "gpus=1,2"

NETWORK, RECIPE = cifar10.NETWORK, cifar10.RECIPE
load, load_test, plain = cifar10.load, cifar10.load_test, cifar10.plain
source, stages, queued = cifar10.source, cifar10.stages, cifar10.queued
