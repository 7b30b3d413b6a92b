"""Which replica of a training this process is, and which part of each batch is its own.

Replicas are data-parallel processes that compute the same network, each on its slice of every batch. Their gradients
are all-reduced, each weighted by its share of the batch, so that the step equals that of one process with the whole
batch. The slices are as equal as possible. If a batch has too few examples for all replicas, the surplus replicas
compute its first examples, with a share of 0. Batch norm's statistics are not shared: each replica computes those of
its own slice, and replica 0's are kept. Each replica draws its own dropout.
"""
from __future__ import absolute_import, division, print_function

import argparse
import contextlib
import hashlib
import json
import os

import numpy as np

from . import nvml
from .checkpoint import digest
from .events import Stop

VARIABLE = "NGCDL_REPLICA"  # the parent's message to a replica (replicas.py)
QUIET = "TF_CPP_MIN_LOG_LEVEL"  # 2 unless it is set (__main__.py): errors only
ROUNDING = 1e-6             # relative to the weights' sum: cards of two kinds may round differently


class Lost(Stop):
    """Another replica is gone; that replica, or the process that started it, reports why."""

    def __init__(self, error):
        Stop.__init__(self, "crash", "the other replicas can't be reached: %s" % str(error)[:1000])


class Differ(Stop):
    """The replicas no longer train the same network."""

    def __init__(self, least, most, step):
        Stop.__init__(
            self, "replicas_differ", "the replicas' weights differ after %d steps, by the sums of their absolute "
            "values from %r to %r: was every node started with the same arguments?" % (step, least, most), step)


class Group(object):
    """The place of a replica: rank, 0..size-1; local, its index, and that of its card, among the `here` replicas of
    this machine; workers, where each replica may listen, "host:port" by rank; is_spare, whether replica 0 computes for
    this one too; least, the fewest examples that a replica can compute."""

    def __init__(self, rank=0, size=1, local=0, here=1, nodes=1, workers=()):
        self.rank, self.size, self.local, self.here = rank, size, local, here
        self.nodes, self.workers, self.is_spare, self.least = nodes, list(workers), False, 1

    def report(self, **fields):
        """Tell the parent, in a process that has one (__main__.py)."""

    @contextlib.contextmanager
    def joining(self):
        """Meanwhile a framework waits for the other replicas."""
        self.report(joins=True)
        yield
        self.report(joins=False)

    def part(self, count):
        """Return which examples of a batch of `count` are this replica's, as a slice."""
        needed = self.needed(count)
        if self.rank >= needed:
            return slice(0, min(self.least, count))
        return slice(count * self.rank // needed, count * (self.rank + 1) // needed)

    def examples(self, count):
        """Return how many examples of a batch of `count` this replica computes."""
        part = self.part(count)
        return part.stop - part.start

    def needed(self, count):
        """Return how many of the replicas share a batch."""
        return min(self.size, max(count // self.least, 1))

    def share(self, count):
        """Return the weight of this replica's mean in the mean of the whole batch."""
        return self.examples(count) / count if self.rank < self.needed(count) else 0.0

    def card(self, framework, count, device):
        """Return the index of this replica's card, None for the CPU; count: how many the framework sees.

        Raise Stop if there are too few, rather than use the CPU: all other replicas would then wait for this one."""
        if device == "cpu" or not (count or device == "gpu"):
            return None
        if count < self.here:
            seen = "%d GPU%s" % (count, "" if count == 1 else "s") if count else "no GPU"
            need = ": %d replicas on this machine need one each" % self.here if self.here > 1 else ""
            left = "" if count else left_out(framework)
            raise Stop("no_gpu", "%s sees %s%s%s" % (framework, seen, need, left))
        return self.local


def left_out(framework):
    """Return how to learn why TensorFlow uses none of the cards that the driver shows; "" if that is not what
    happened."""
    names = sorted(set(card["name"] or "a card" for card in nvml.read()))
    if not names or not framework.startswith("TensorFlow") or os.environ.get(QUIET) == "0":
        return ""
    return "; the driver shows %s: with -e %s=0 TensorFlow may say why it took none" % (", ".join(names), QUIET)


ALONE = Group()


def own():
    """Return (Group, parsed arguments) of a replica; None in a process that was not started as one."""
    if VARIABLE not in os.environ:
        return None
    told = json.loads(os.environ[VARIABLE])
    return Group(**told["group"]), argparse.Namespace(**told["asked"])


def sliced(source, group):
    """Return a source of this replica's part of each batch. A source that can (of_part) prepares only that part."""
    if group.size == 1:
        return source
    if hasattr(source, "of_part"):
        return source.of_part(group.part)

    def take(step):
        examples, labels = source(step)
        part = group.part(len(labels))
        return examples[part], labels[part]

    return take


def whole(asked, source, step):
    """Return how many examples a step has in all replicas together."""
    return source.size(step) if hasattr(source, "size") else asked.batch


def agreed(network, group, number):
    """Return the largest number that any replica passes; all must call this."""
    return network.agreed(number) if group.size > 1 else number


def parted(network, group):
    """Wait until all replicas have come here, after which none needs another. If one is lost now, that is no error:
    either it had come here on another machine, and ended before its last message was sent (replicas of one machine wait
    for each other), or it died, which its own parent reports."""
    try:
        agreed(network, group, 0)
    except Lost:
        pass


def begin_alike(network, step, data):
    """Raise Stop if the replicas begin at different steps, or with different data: text that tells data sets apart.
    All replicas must call this."""
    least, most = span(network, step)
    if least != most:
        raise Stop("replicas_differ", "replicas begin at steps %d and %d: is --resume the same folder on every "
                   "node?" % (least, most))
    least, most = span(network, int(hashlib.sha256(str(data).encode("ascii")).hexdigest()[:12], 16))  # as in same()
    if least != most:
        raise Stop("replicas_differ", "replicas have different data: is --data the same on every node?")


def same(network, weights, step):
    """Compare the replicas' weights, {name: array}; return the fields of the event "replicas". All replicas must call
    this. Raise Differ if weights differ by more than rounding explains."""
    first, last = span(network, int(digest(weights)[:12], 16))  # 48 bits: a float64 holds them
    total = sum(float(np.abs(array).sum(dtype=np.float64)) for array in weights.values())
    least, most = span(network, float("inf") if np.isnan(total) else total)
    if first != last and most > least * (1 + ROUNDING):
        raise Differ(least, most, step)
    return {"identical": first == last, "weights_least": least, "weights_most": most}


def span(network, number):
    """Return the smallest and the largest number that any replica passes."""
    return -network.agreed(-number), network.agreed(number)
