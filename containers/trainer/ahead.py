"""Prefetches batches, in order, and runs other work in a thread while a framework loads. Threads are enough for this,
because numpy releases the GIL."""
from __future__ import absolute_import, division, print_function

import itertools
import multiprocessing
import sys
import threading

from .events import clock

DEPTH = 4  # prefetched batches that may wait


def upto(first, last):
    """Count first..last-1: range() is a list on Python 2, and last is huge if only --seconds ends the training."""
    return itertools.islice(itertools.count(first), last - first)


def ahead(source, first, last, threads=None, depth=DEPTH):
    """Yield source(step) for the steps first..last-1. A thread's error is raised here; closing ends the threads."""
    line = Line(source, first, last, depth)
    workers = [threading.Thread(target=line.work) for _ in range(threads or min(4, multiprocessing.cpu_count()))]
    for worker in workers:
        worker.daemon = True
        worker.start()
    try:
        for step in upto(first, last):
            yield line.take(step)
    finally:
        line.stop()
        for worker in workers:
            worker.join()


def meanwhile(function, *arguments):
    """Start function(*arguments) in a thread; return a function that waits for the result and returns it, or raises
    what function raised."""
    line = Line(lambda _: function(*arguments), 0, 1)
    worker = threading.Thread(target=line.work)
    worker.daemon = True  # if the training can't begin, nobody waits for the thread
    worker.start()
    return lambda: line.take(0)


class Line(object):
    """The queue between the threads, which claim steps and make their items, and the caller, who takes the items in
    order. depth: how many items may wait."""

    def __init__(self, source, first, last, depth=DEPTH):
        self.source, self.claimed, self.taken, self.last, self.depth = source, first, first, last, depth
        self.made, self.stopped, self.changed = {}, False, threading.Condition()

    def work(self):
        step = self.claim()
        while step is not None:
            try:
                item = self.source(step), None
            except BaseException as error:  # re-raised by take()
                item = None, error
            with self.changed:
                self.made[step] = item
                self.changed.notify_all()
            step = self.claim()

    def claim(self):
        """Wait for room and return the next step to make, or None if none is left."""
        with self.changed:
            while not self.stopped and self.claimed < self.last and self.claimed >= self.taken + self.depth:
                self.changed.wait()
            if self.stopped or self.claimed >= self.last:
                return None
            self.claimed += 1
            return self.claimed - 1

    def take(self, step):
        with self.changed:
            while step not in self.made:
                # Without a timeout Python 2.7 delays signals, and with a long one it looks ever less often, up to 50 ms
                # late: https://github.com/python/cpython/blob/v2.7.18/Lib/threading.py#L344
                self.changed.wait(1 if sys.version_info[0] > 2 else 0.002)
            item, error = self.made.pop(step)
            self.taken = step + 1
            self.changed.notify_all()
        if error:
            raise error
        return item

    def stop(self):
        with self.changed:
            self.stopped = True
            self.changed.notify_all()


class Waited(object):
    """Batches, and the seconds spent waiting for them."""

    def __init__(self, batches):
        self.batches, self.iterator, self.seconds = batches, iter(batches), 0.0

    def __iter__(self):
        return self

    def __next__(self):
        asked = clock()
        try:
            return next(self.iterator)
        finally:
            self.seconds += clock() - asked

    next = __next__  # Python 2

    def close(self):
        getattr(self.batches, "close", int)()
