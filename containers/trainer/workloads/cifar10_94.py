"""How soon does a network classify 94 % of CIFAR-10's test images correctly, from scratch, on one GPU?

The race of DAWNBench and its successors: https://github.com/KellerJordan/cifar10-airbench. The techniques are known,
the code is this project's own (race.py has the numbers, and whose they are): a first layer that whitens 2 x 2 pixels,
computed from the images and not trained; filters initialised to the identity; Muon; images of 24, then 28, then 32
pixels; each flipped in one epoch and not in the next; nothing computed that a pool discards; each step a CUDA graph.

The clock starts with just the images, as bytes on the device. It covers weights, whitening and all random draws, all
steps, and the predictions for the 10,000 test images at the end. Compiling, capturing graphs and a training on random
labels come before, and are reported separately: a user waits for them once.
"""
from __future__ import absolute_import, division, print_function

import datetime
import importlib
import sys

import numpy as np

from .. import certainty, cost, data, race
from ..events import Stop, clock
from ..layers import batch_norm, constant, conv, dense, max_pool, silu, uniform
from ..log import step_line
from ..loop import say_data, start
from ..recipe import recipe, sgd

SUMMARY = "How soon are 94 % of CIFAR-10 right, from nothing, on one GPU? By Muon"
WHAT = "How fast to 94 % on one GPU?"
PLACE = 3
SOURCE = "DAWNBench's race on one GPU, as cifar10-airbench times it"
DATA = "cifar10"
UNIT = "images"
STEPS = 326             # ten epochs
BATCH = 1536
INPUT = (32, 32, 3)
PARAMETERS = 1971650    # 288 of them are the whitening's, which nothing trains
MACS = 118147360        # of the network as declared; the pools discard a tenth, which is not computed
FLOPS = 708330624       # the same; the start event has what a training really computes, mostly on smaller images
FRAMEWORKS = ("pytorch",)
LEAST_BATCH = 2         # batch norm has no variance of a single example
VARY = "compile=off,on"
LINES = 25
TIMES = True            # --times is supported
REPLICAS = False
REFUSES = ("--clip", "--trace", "--resume", "--seconds", "--batch largest", "--feed plain", "--feed constant",
           "--feed input", "--autotune", "--precision tf32")
BECAUSE = "follows a fixed schedule from its first step to its last, its images on the device, and leaves no checkpoint"

BOUND = 0.94
NONE = constant(0.0)


def block(name, inputs, outputs):
    """Two 3 x 3 convolutions, the first with a pool; they start as the identity (race/__init__.py)."""
    words = []
    for k, width in (1, inputs), (2, outputs):
        words += [conv("%s/conv%d" % (name, k), 3, width, outputs, uniform((9 * width) ** -0.5))]
        words += [max_pool(name + "/pool", 2, 2)] if k == 1 else []
        words += [batch_norm("%s/norm%d" % (name, k), outputs, 1 - race.KNOBS.running, race.EPSILON, scaled=False),
                  silu("%s/silu%d" % (name, k))]
    return words


NETWORK = [conv("whiten", 2, 3, 24, uniform(12 ** -0.5), NONE, padding=0), silu("whiten/silu")]
NETWORK += block("block1", 24, 64) + block("block2", 64, 256) + block("block3", 256, 256)
NETWORK += [max_pool("pool", 3, 3), dense("head", 256, 10, uniform(256 ** -0.5 / 9), NONE)]
RECIPE = recipe(sgd(), rate=0.0)  # not used for training here

load, load_test, plain = data.training, data.testing, data.scaled


def run(asked, network, outside):
    check(asked)
    dataset = load(asked.data)
    outside.signals.check(None)
    race_on(dataset, load_test(asked.data), asked, network, outside)


def race_on(dataset, tested, asked, network, outside):
    """Train --times times, each time from scratch, and report how long each took and its accuracy."""
    began, (events, voice, signals) = clock(), outside
    on = importlib.import_module("trainer.frameworks.%s.race" % asked.framework)
    kind = on.kind(network, asked.precision)
    steps = asked.steps or asked.epochs * -(-len(dataset.labels) // asked.batch)
    own = sys.modules[__name__]
    say_data("Training", asked, own, dataset, voice)
    start(asked, own, network, events, dataset, steps=steps,
          resumed_from_step=None, dropout=None, feed="resident", teacher=None, epoch_copied_bytes=0,
          flops_per_example=race.flops_per_example(race.KNOBS, steps), share_of_3x3=cost.share_of_3x3(NETWORK, INPUT))
    trained = on.Race(network.on, kind, race.KNOBS, steps, asked.batch, dataset.images, dataset.labels, asked.compile)
    test = on.put(tested.images, network.on)
    trained.prepare(test)
    voice.say("Steps are %s%s; ready after %.1f s" % (
        "CUDA graphs" if trained.recorded else "not CUDA graphs" + (" (%s)" % trained.why if trained.why else ""),
        ", by kernels of this training's own" if trained.fused else "", clock() - began))
    found = []
    for k in range(asked.times):
        signals.check(steps if k else 0)
        found.append(once(asked, trained, test, tested.labels, asked.seed + k, outside))
    if asked.times > 1:
        certify(found, outside)
    events.write("finish", step=steps, seconds=clock() - began)


def check(asked):
    """Raise Stop for what a training within seconds can't do."""
    for refused, why in (
            (asked.resume, "is trained within seconds and leaves no checkpoint: leave --resume out"),
            (asked.seconds and not (asked.steps or asked.epochs),
             "follows a fixed schedule from its first step to its last: use --steps or --epochs, not --seconds alone"),
            (asked.seconds, "follows a fixed schedule from its first step to its last: leave --seconds out"),
            (asked.feed not in ("ahead", "resident"), "has its images on the device: leave --feed out"),
            (asked.precision == "tf32", "computes in 16 bits or in float32: use --precision amp or float32")):
        if refused:
            raise Stop("bad_argument", "%s %s" % (asked.workload, why))


def once(asked, trained, test, labels, seed, outside):
    """Train from scratch; return seconds and accuracy. On a GPU lines are printed afterwards, because reading a loss
    would wait for the device."""
    lines = Lines(asked, trained, outside)
    trained.wait()
    began = lines.since = clock()
    trained.train(seed, lines.add if trained.waits else None)
    guesses = trained.predict(test, lambda: outside.signals.check(trained.steps)).cpu().numpy()  # waits for the device
    seconds = clock() - began
    lines.rest(seconds / trained.steps)
    accuracy = float((guesses == labels).mean())
    outside.events.write("eval", step=trained.steps, precision_at_1=accuracy, examples=len(labels), seconds=None)
    outside.events.write("raced", seed=seed, seconds=seconds, precision_at_1=accuracy, graphs=trained.recorded)
    outside.voice.say("%s: precision @ 1 = %.4f, %.3f s from scratch (seed %d)" % (
        datetime.datetime.now(), accuracy, seconds, seed))
    return seconds, accuracy


class Lines(object):
    """Writes the line and the event of every n-th step and of the last one: add() when a step is done, rest() after the
    training."""

    def __init__(self, asked, trained, outside):
        self.asked, self.trained, self.outside = asked, trained, outside
        self.written, self.since = -1, None

    def add(self, step):
        self.outside.signals.check(step + 1)
        if self.is_due(step):
            now = clock()
            self.write(step, (now - self.since) / (step - self.written))
            self.since = now

    def rest(self, seconds_per_batch):
        for step in range(self.written + 1, self.trained.steps):
            if self.is_due(step):
                self.write(step, seconds_per_batch)

    def is_due(self, step):
        return step % self.asked.log_frequency == 0 or step == self.trained.steps - 1

    def write(self, step, seconds):
        loss, self.written = float(self.trained.losses[step]), step
        if not np.isfinite(loss):
            raise Stop("nan", "Model diverged with loss = %s at step %d" % (loss, step), step)
        rate = self.asked.batch / max(seconds, 1e-9)
        self.outside.events.write("step", step=step, loss=loss, learning_rate=float(self.trained.rows[step, 0]),
                                  examples_per_second=rate if step else None,
                                  seconds_per_batch=seconds if step else None)
        self.outside.voice.say(step_line(step, loss, rate, seconds))


def certify(found, outside):
    """Report the means, and how sure it is that the mean accuracy is above the bound."""
    seconds, accuracies = zip(*found)
    (time, apart), (accuracy, deviation) = certainty.spread(seconds), certainty.spread(accuracies)
    chance = certainty.chance_below(accuracies, BOUND)
    outside.events.write("certified", times=len(found), seconds_mean=time, seconds_deviation=apart,
                         seconds_median=float(np.median(seconds)), accuracy_mean=accuracy,
                         accuracy_deviation=deviation, bound=BOUND, chance=chance)
    outside.voice.say("%d trainings: %.3f s (standard deviation %.3f), accuracy %.4f (%.4f); above %.2f: %s" % (
        len(found), time, apart, accuracy, deviation, BOUND,
        "unknown, because all are equal" if chance is None else "p = %.2g by a one-sided t-test" % chance))
