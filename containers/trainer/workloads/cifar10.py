"""What the CIFAR-10 tutorial of TensorFlow trains: its data, its network, its recipe.

The model of tensorflow/models tutorials/image/cifar10 (early 2018): 1,068,298 parameters; its authors report about 86 %
of the test images right after 100,000 steps of 128.
"""
from __future__ import absolute_import, division, print_function

import functools

from .. import data
from ..layers import constant, conv, dense, lrn, max_pool, relu, truncated
from ..recipe import recipe, sgd

SUMMARY = "TensorFlow's CIFAR-10 tutorial: 2 convolutions, 3 dense layers, 32x32 images cut to 24x24"
WHAT = "TensorFlow's tutorial: 1,000 steps of 128"
PLACE = 1
SOURCE = "tensorflow/models, tutorials/image/cifar10, as of early 2018"
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
VARIABLES = "cpu"       # the tutorial's _variable_on_cpu: in the CPU's memory, whatever computes

SIDE = 24               # of the square cut out of 32 x 32
IMAGES_PER_EPOCH = 50000
EPOCHS_PER_DECAY = 350
LEARNING_RATE = 0.1     # at first, then times DECAY every EPOCHS_PER_DECAY
DECAY = 0.1
AVERAGE_DECAY = 0.9999  # of the moving averages that evaluation uses

NETWORK = [
    conv("conv1", 5, 3, 64, truncated(0.05), constant(0.0)),
    relu("relu1"),
    max_pool("pool1", 3, 2, padding=(0, 1)),
    lrn("norm1", 4, bias=1.0, alpha=0.001 / 9, beta=0.75),
    conv("conv2", 5, 64, 64, truncated(0.05), constant(0.1)),
    relu("relu2"),
    lrn("norm2", 4, bias=1.0, alpha=0.001 / 9, beta=0.75),
    max_pool("pool2", 3, 2, padding=(0, 1)),
    dense("local3", 6 * 6 * 64, 384, truncated(0.04), constant(0.1), decay=0.004),
    relu("relu3"),
    dense("local4", 384, 192, truncated(0.04), constant(0.1), decay=0.004),
    relu("relu4"),
    dense("softmax_linear", 192, 10, truncated(1 / 192), constant(0.0)),
]


def learning_rate(step, batch):
    steps = int(IMAGES_PER_EPOCH / batch * EPOCHS_PER_DECAY)
    return LEARNING_RATE * DECAY ** (step // max(steps, 1))


def keep(step):
    """Return the share of a moving average that stays at this step: early averages follow the weights quickly."""
    return min(AVERAGE_DECAY, (1 + step) / (10 + step))


RECIPE = recipe(sgd(), learning_rate, averages=keep)


def queued(fraction):
    """Return the shuffle buffer's size in images; the tutorial counts from 50,000, whatever the set holds."""
    return int(IMAGES_PER_EPOCH * fraction)


load, load_test = data.training, data.testing


def source(dataset, batch, seed, fraction):
    """Return the function step -> (images [batch, 24, 24, 3] float32, labels [batch] int32)."""
    order = data.Order(len(dataset.labels), dataset.files, queued(fraction) + 3 * batch, batch, seed)

    def take(step, part=slice):
        # batch n is a function of only the seed and n: whoever takes it, in whichever thread, after whichever resume
        chosen, own = order.indices(step), part(batch)
        images = data.distorted(dataset.images, chosen, data.generator(seed, step), SIDE, part=own)
        return images, dataset.labels[chosen[own]]

    take.of_part = lambda part: functools.partial(take, part=part)
    take.skip = order.skip
    return take


def stages(dataset, batch, seed):
    """Return [(name, function)] of the pipeline above, for feed.rates: each does one stage more than those before."""
    order = data.Order(len(dataset.labels), dataset.files, queued(0.4) + 3 * batch, batch, seed)

    def made(step, count):
        return data.distorted(dataset.images, order.indices(step), data.generator(seed, step), SIDE, count)

    def whole(step):
        chosen = order.indices(step)
        data.distorted(dataset.images, chosen, data.generator(seed, step), SIDE)
        return dataset.labels[chosen]

    names = ["crop"] + [name for name, _ in data.DISTORTIONS]
    return ([("choose", order.indices)] + [(name, functools.partial(made, count=k)) for k, name in enumerate(names)] +
            [("batch", whole)])


def plain(images):
    """Return what evaluation sees: the centre, standardized."""
    return data.central(images, SIDE)
