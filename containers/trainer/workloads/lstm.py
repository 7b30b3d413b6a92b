"""Two LSTM layers on text, from Table 7 of Shi et al. 2016: only the speed matters.

One bias per gate; frameworks that have two count 6,182,672 parameters. (The source's CNTK times are for 128 tokens
instead of 128 sequences of 32.) The state carries over from batch to batch, and from the end of the text to its start.
"""
from __future__ import absolute_import, division, print_function

from .. import made
from ..layers import dense, embedding, lstm, uniform
from ..recipe import recipe, sgd

SUMMARY = "Two LSTM layers of 256 on made-up text: 10,000 words, sequences of 32 tokens"
WHAT = "Table 7 of Shi et al. 2016: LSTM"
PLACE = 17
SOURCE = "Table 7 of Shi et al. 2016 (dlbench), as F. Fleuret shows it, AMMI 6.6, 2018"
DATA = "the Penn Treebank"
UNIT = "sequences"
STEPS = 9040            # forty epochs of 226
BATCH = 128
INPUT = (32,)
PARAMETERS = 6180624
MACS = 115474432
FLOPS = 692846592
FRAMEWORKS = ("pytorch", "tf1", "tf2")
EPOCHS = False

WORDS = 10000
TENTH = uniform(0.1)

NETWORK = [
    embedding("embedding", WORDS, 256, TENTH),
    lstm("lstm1", 256, 256, TENTH, TENTH),
    lstm("lstm2", 256, 256, TENTH, TENTH),
    dense("softmax_linear", 256, WORDS, TENTH, TENTH),
]
RECIPE = recipe(sgd(), rate=0.1, clip=5.0, labels=INPUT)


def load(folder):
    return made.tokens(WORDS, INPUT[0])


source = made.text_in_rows(INPUT[0])
