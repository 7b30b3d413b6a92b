"""Cats and dogs, as S. Agrawal's notebook trains them with Keras: 13 convolutions, 5 pools, 3 dense layers.

(His slide counts 15 and 6; the notebook, whose number of parameters he prints, has 13 and 5.) Its batches are 16 on a
card of 2 GB, 32, which did not fit there, and 128 on a T4. Its last runs augment the images by rotation and shifts;
it is unknown whether the others do, and it is not done here. Real images come from a folder: pictures.py.
"""
from __future__ import absolute_import, division, print_function

from .. import data, made, pictures
from ..epochs import shuffled
from ..layers import batch_norm, constant, conv, dense, dropout, glorot, max_pool, relu
from ..recipe import adam, recipe

SUMMARY = "Keras on cats and dogs: 13 convolutions, 3 dense layers, 256x256 pictures"
WHAT = "Keras on cats and dogs; --data DIR: your own"
PLACE = 11
SOURCE = "S. Agrawal, GPUs for deep learning, and his notebook Cats_versus_Dogs"
DATA = "cats and dogs"
DATA_FOLDER = "pictures"
UNIT = "pictures"
STEPS = 1250            # one epoch of the notebook's 20,000 images
BATCH = 16
INPUT = (256, 256, 3)
PARAMETERS = 21463713   # as Keras counts: with batch norm's running statistics
TRAINED = 21455521
MACS = 5189928960
FLOPS = 31026327552
FRAMEWORKS = ("pytorch", "tf1", "tf2")
LEAST_BATCH = 2         # batch norm has no variance of a single example

NONE = constant(0.0)
CLASSES = 2


def block(number, convolutions, inputs, outputs, pool):
    """This many convolutions, and the maximum of pool x pool."""
    words = []
    for k in range(1, convolutions + 1):
        name = "block%d/conv%d" % (number, k)
        words += [conv(name, 3, inputs, outputs, glorot(inputs, outputs, 9), NONE), relu(name + "/relu")]
        inputs = outputs
    return words + [max_pool("block%d/pool" % number, pool, pool)]


def hidden(number, inputs, rate):
    name = "fc%d" % number
    return [dense(name, inputs, 2048, glorot(inputs, 2048), NONE), relu(name + "/relu"),
            dropout(name + "/dropout", rate), batch_norm(name + "/norm", 2048, momentum=0.99, epsilon=0.001)]


NETWORK = block(1, 2, 3, 32, 2) + block(2, 2, 32, 64, 2) + block(3, 3, 64, 128, 2)
NETWORK += block(4, 3, 128, 256, 3) + block(5, 3, 256, 512, 3)
NETWORK += hidden(1, 3 * 3 * 512, 0.5) + hidden(2, 2048, 0.4) + [dense("sigmoid", 2048, 1, glorot(2048, 1), NONE)]
RECIPE = recipe(adam(b1=0.9, b2=0.999, epsilon=1e-7), rate=0.0001, loss="sigmoid", counted=True)


def load(folder):
    return pictures.dataset(folder, "train", CLASSES, INPUT[0]) if folder else made.pictures("train")


def load_test(folder):
    return pictures.dataset(folder, "test", CLASSES, INPUT[0]) if folder else made.pictures("test")


plain = data.scaled
source = shuffled(data.scaled)
