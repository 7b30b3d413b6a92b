"""The order of examples where each epoch takes every example once: a function of only the seed and the epoch."""
from __future__ import absolute_import, division, print_function

import threading

import numpy as np

from .trace import Slice


class Shuffled(object):
    """step -> (examples, labels): each epoch in its own order. The last batch of an epoch holds the remainder."""

    def __init__(self, dataset, batch, seed, prepared):
        self.dataset, self.batch, self.seed, self.prepared = dataset, batch, seed & 0xFFFFFFFF, prepared
        count = len(dataset.labels)
        # batch norm has no variance of a single example: a remainder of one is dropped
        self.epoch_steps = max(count // batch + (count % batch > 1), 1)
        self.orders, self.lock = {}, threading.Lock()
        self.part = lambda count: slice(0, count)

    def __call__(self, step):
        chosen = self.chosen(step)
        with Slice("gather"):
            examples = self.dataset.images[chosen]
        with Slice("prepare"):
            return self.prepared(examples), self.dataset.labels[chosen]

    def chosen(self, step):
        """Return which examples are in a step's batch, or in this replica's part of it."""
        epoch, at = divmod(step, self.epoch_steps)
        return self.order(epoch)[at * self.batch:(at + 1) * self.batch][self.part(self.size(step))]

    def size(self, step):
        """Return how many examples are in a step's whole batch."""
        at = step % self.epoch_steps * self.batch
        return min(self.batch, len(self.dataset.labels) - at)

    def of_part(self, part):
        """Restrict this source to the slice part(count) of each batch of `count` examples, and return the source."""
        self.part = part
        return self

    def order(self, epoch):
        with self.lock:
            if epoch not in self.orders:  # prefetching threads are in at most two epochs at a time
                for old in [key for key in self.orders if key < epoch - 1]:
                    del self.orders[old]
                self.orders[epoch] = np.random.RandomState([self.seed, epoch]).permutation(len(self.dataset.labels))
            return self.orders[epoch]


def shuffled(prepared):
    """Return a workload's source(dataset, batch, seed, fraction); prepared: a function of the examples."""
    return lambda dataset, batch, seed, fraction: Shuffled(dataset, batch, seed, prepared)


class InOrder(Shuffled):
    """Like Shuffled, but examples are in stored order in every epoch and none is dropped: for workloads that train
    nothing."""

    def __init__(self, dataset, batch, seed, prepared):
        Shuffled.__init__(self, dataset, batch, seed, prepared)
        self.epoch_steps = -(-len(dataset.labels) // batch)

    def order(self, epoch):
        return np.arange(len(self.dataset.labels))


def in_order(prepared):
    """Return a workload's source, as shuffled() does."""
    return lambda dataset, batch, seed, fraction: InOrder(dataset, batch, seed, prepared)


def in_turn(dataset, batch, seed, fraction):
    """Return a source that takes the examples one after the other and starts over: for data that is noise."""
    count = len(dataset.labels)

    def take(step):
        chosen = np.arange(step * batch, (step + 1) * batch) % count
        return dataset.images[chosen], dataset.labels[chosen]

    return take
