"""How a trained network is tested: on which examples, how many at once, and what share of its guesses is right."""
from __future__ import absolute_import, division, print_function

import datetime

import numpy as np

from . import feed
from .events import Stop, clock

TEST_BATCH, TEST_VALUES = 500, 4000000  # examples that are tested at once at most, and numbers in them
FEW_VALUES = 100000  # dozens of images of CIFAR-10: so many are tested at once in any case, one by one takes long


def opened(asked, workload, group):
    """Give what gives the test set, or None. Somebody's own is opened at once: what is wrong with it is not to be told
    after hours of training. What is made up is right, and made when it is needed."""
    if asked.feed in feed.WITHOUT_RESULT or asked.no_eval or not hasattr(workload, "load_test") or group.rank:
        return lambda: None
    if not asked.data:
        return lambda: workload.load_test(None)
    found = workload.load_test(asked.data)
    return lambda: found


def evaluate(workload, model, dataset, network, step, events, voice, signals, most=TEST_BATCH):
    """Test with the moving averages, where there are. Each image counts once; the tutorial's 79 batches of 128 count
    112 twice. At once no more than `most`, the batch that was trained with: that memory does for more nobody knows."""
    started, right, values = clock(), 0, int(np.prod(model.shape))
    at_once = max(1, min(max(most, FEW_VALUES // values), TEST_BATCH, TEST_VALUES // values))
    voice.say("Testing the network on %d other %s" % (len(dataset.labels), workload.UNIT))
    for start in range(0, len(dataset.labels), at_once):
        part = slice(start, start + at_once)
        logits = network.logits(workload.plain(dataset.images[part]))
        if not np.isfinite(logits).all():
            raise Stop("nan", "What the network makes of the test's %s is no number" % workload.UNIT, step - 1)
        right += int((model.guesses(logits) == dataset.labels[part]).sum())
        signals.check(step)
    precision = right / len(dataset.labels)
    events.write("eval", step=step, precision_at_1=precision, examples=len(dataset.labels), seconds=clock() - started)
    voice.say("%s: precision @ 1 = %.3f" % (datetime.datetime.now(), precision))
