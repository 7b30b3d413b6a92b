"""How a trained network is tested: on which examples, how many at once, what share of its guesses is right, and, if the
workload counts accuracy, its loss: what Keras' evaluate() returns."""
from __future__ import absolute_import, division, print_function

import datetime

import numpy as np

from . import feed
from .events import QUIET_SECONDS, Stop, clock

TEST_BATCH, TEST_VALUES = 500, 4000000  # the most examples tested at once, and values in them
FEW_VALUES = 100000  # dozens of CIFAR-10 images may always be tested at once, because one by one is slow


def opened(asked, workload, group):
    """Return a function that returns the test set, or None if there is no test. The user's data is opened at once, so
    that errors in it show before hours of training; synthetic data is made only when it is needed."""
    if asked.feed in feed.WITHOUT_RESULT or asked.no_eval or not hasattr(workload, "load_test") or group.rank:
        return lambda: None
    if not asked.data:
        return lambda: workload.load_test(None)
    found = workload.load_test(asked.data)
    return lambda: found


def evaluate(workload, model, dataset, network, step, outside, most):
    """Test the network, with its moving averages if it has any, and report the precision. Each image counts once, while
    the tutorial's 79 batches of 128 count 112 images twice. most: the training batch, beyond which it is unknown
    whether memory suffices."""
    started, right, loss, values = clock(), 0, 0.0, int(np.prod(model.shape))
    at_once = max(1, min(max(most, FEW_VALUES // values), TEST_BATCH, TEST_VALUES // values))
    outside.voice.say("Testing the network on %d other %s" % (len(dataset.labels), workload.UNIT))
    is_told = False
    for start in range(0, len(dataset.labels), at_once):
        part = slice(start, start + at_once)
        logits = network.logits(workload.plain(dataset.images[part]))
        if not np.isfinite(logits).all():
            raise Stop("nan", "The network's output on the test's %s is not finite" % workload.UNIT, step - 1)
        right += int((model.guesses(logits) == dataset.labels[part]).sum())
        loss += float(model.entropies(logits, dataset.labels[part]).sum()) if model.counted else 0.0
        outside.signals.check(step)
        if not is_told and clock() - started > QUIET_SECONDS and part.stop < len(dataset.labels):
            outside.voice.say("Still testing: %d of them in %.0f s" % (part.stop, clock() - started))
            is_told = True
    precision, loss = right / len(dataset.labels), loss / len(dataset.labels)
    outside.events.write("eval", step=step, precision_at_1=precision, loss=loss if model.counted else None,
                         examples=len(dataset.labels), seconds=clock() - started)
    outside.voice.say("%s: precision @ 1 = %.3f%s" % (
        datetime.datetime.now(), precision, ", loss = %.4f" % loss if model.counted else ""))
