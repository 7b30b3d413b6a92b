"""A smoke test: one small matrix product, which also checks its device and its time.

As in the article, the framework may take 40 % of the card's memory: it must then refuse to allocate half of it.
"""
from __future__ import absolute_import, division, print_function

import importlib
import sys

import numpy as np

from .. import nvml
from ..events import Stop, clock
from ..loop import start
from ..recipe import recipe, sgd

SUMMARY = "Smoke test: a product of 2x3 and 3x2, its place and its time; 40 % of the card's memory"
WHAT = "Does the requested device compute at all?"
PLACE = 18
SOURCE = "GPU accelerated deep learning, 2018: the test that TensorFlow computes on the GPU, 1 to 6 as 2x3 times 3x2"
DATA = "a data set"
UNIT = "products"
STEPS = 1
BATCH = 1
INPUT = (2, 3)
PARAMETERS = 0
MACS = 12
FLOPS = 24
FRAMEWORKS = ("pytorch", "tf1", "tf2")
TRAINS = False
REFUSES = "--steps", "--epochs", "--seconds", "--batch", "--feed", "--autotune", "--times", "--clip", "--trace"
BECAUSE = "is a check that runs once, and has none of that"

MEMORY_FRACTION = 0.4   # of the card's memory, at most
REFUSED_FRACTION = 0.5  # an allocation that must then fail
A = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
B = np.arange(1, 7, dtype=np.float32).reshape(3, 2)
WANTED = np.array([[22, 28], [49, 64]], np.float32)  # small integers: exact in float16, bfloat16 and TF32 too

NETWORK = []  # no declared layers: frameworks/*/smoke.py have the product
RECIPE = recipe(sgd(), rate=0.0)


def run(asked, network, outside):
    """Run the test in place of a training. Raise Stop for a wrong result, a wrong device or too much memory."""
    on = importlib.import_module("trainer.frameworks.%s.smoke" % asked.framework)
    began = clock()
    start(asked, sys.modules[__name__], network, outside.events, steps=STEPS, resumed_from_step=None, dropout=None)
    found, place, seconds = None, None, []
    for _ in range(2):
        started = clock()
        found, place = on.multiply(network, A, B)
        seconds.append(clock() - started)
    refused = refuses(on, network)
    outside.events.write("smoke", product=found.tolist(), device=network.device, place=place, devices=network.devices,
                         first_seconds=seconds[0], second_seconds=seconds[1], refused=refused,
                         memory_fraction=None if refused is None else asked.gpu_memory_fraction)
    check(found, place, network.device, refused)
    outside.voice.say("%s on the %s (%s): right. The first call took %.3f ms, the second %.3f ms. %s" % (
        " ".join(str(found).split()), network.device.upper(), ", ".join(network.devices), 1e3 * seconds[0],
        1e3 * seconds[1], memory(network.device, refused, asked.gpu_memory_fraction)))
    outside.events.write("finish", step=STEPS, seconds=clock() - began)


def refuses(on, network):
    """Return whether half of the card's memory is refused; None if that can't be found out."""
    totals = {card["memory_total_bytes"] for card in nvml.read()} if network.device == "gpu" else ()
    total = totals.pop() if len(totals) == 1 else None  # if cards differ, it is unknown which one the framework uses
    return on.refuses(network, int(total * REFUSED_FRACTION)) if total else None


def check(found, place, device, refused):
    if found.shape != WANTED.shape or (found != WANTED).any():
        raise Stop("smoke", "The product is %s, not %s" % (found.tolist(), WANTED.tolist()))
    wanted = {"gpu": ("GPU:0", "cuda:0"), "cpu": ("CPU:0", "cpu")}[device]
    if not place.endswith(wanted):
        raise Stop("no_gpu" if device == "gpu" else "smoke", "The product is on %s, not on the %s" % (
            place, device.upper()))
    if refused is False:
        raise Stop("smoke", "An allocation of %.0f %% of the card's memory was not refused, with less allowed" % (
            100 * REFUSED_FRACTION))


def memory(device, refused, fraction):
    if device == "cpu":
        return "No GPU was used."
    if refused is None:
        return "Whether it keeps to its share of the card's memory could not be tried."
    return "It keeps to %.0f %% of the card's memory: more was refused." % (100 * fraction)
