"""A forum question: 316 MB that would fit on a GPU. Is it worth while to send them there once?

Its network on protein chains with batches of 8 (batch_sweep.py), fed in four ways: each batch made and copied when
needed, prefetched, gathered on the device, and one batch on the device over and over, which nothing can beat.
"""
from __future__ import absolute_import, division, print_function

from . import batch_sweep

SUMMARY = "The small network on protein chains in batches of 8, its data on the host or on the device"
WHAT = "Is it worth keeping the data on the GPU?"
PLACE = 5
SOURCE = "a question on a forum about sending 316 MB to the GPU once, and not with every training"
DATA = "windows of protein chains"
UNIT = "windows"
STEPS = 6250            # an epoch of the 50,000
BATCH = 8
INPUT = (50, 1, 21)
PARAMETERS = 47811
MACS = 1913600
FLOPS = 10540800
FRAMEWORKS = ("pytorch", "tf1", "tf2")
VARY = "feed=plain,ahead,resident,constant"

NETWORK, RECIPE = batch_sweep.NETWORK, batch_sweep.RECIPE
load, load_test = batch_sweep.load, batch_sweep.load_test
plain, source = batch_sweep.plain, batch_sweep.source
