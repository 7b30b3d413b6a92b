"""Four dense layers on noise, from Table 7 of Shi et al. 2016: only the speed matters."""
from __future__ import absolute_import, division, print_function

from .. import made
from ..epochs import in_turn
from ..layers import dense, sigmoid, uniform
from ..recipe import recipe, sgd

SUMMARY = "Dense layers on noise: 26752 -> 2048 -> 2048 -> 2048 -> 26752"
WHAT = "Table 7 of Shi et al. 2016: dense layers"
PLACE = 16
SOURCE = "Table 7 of Shi et al. 2016 (dlbench), as F. Fleuret shows it, AMMI 6.6, 2018"
DATA = "any data"
UNIT = "examples"
STEPS = 10000
BATCH = 64
INPUT = (26752,)
PARAMETERS = 117997696
MACS = 117964800
FLOPS = 598212608
FRAMEWORKS = ("pytorch", "tf1", "tf2")
EPOCHS = False

EXAMPLES = 512
HALF = uniform(0.5)

NETWORK = [
    dense("fc1", 26752, 2048, HALF, HALF),
    sigmoid("sigmoid1"),
    dense("fc2", 2048, 2048, HALF, HALF),
    sigmoid("sigmoid2"),
    dense("fc3", 2048, 2048, HALF, HALF),
    sigmoid("sigmoid3"),
    dense("softmax_linear", 2048, 26752, HALF, HALF),
]
RECIPE = recipe(sgd(), rate=0.01)


def load(folder):
    return made.noise(EXAMPLES, INPUT, 1.0, 26752)


source = in_turn
