"""What is made before it is needed, by threads: batches, handed out in order, and what no framework is needed for while
one is loaded. numpy releases Python's lock."""
from __future__ import absolute_import, division, print_function

import itertools
import multiprocessing
import threading

from .events import clock

DEPTH = 4  # batches that may lie ready


def upto(first, last):
    """Count first..last-1: range() is a list on Python 2, and where only --seconds ends a training the last is far."""
    return itertools.islice(itertools.count(first), last - first)


def ahead(source, first, last, threads=None):
    """Yield source(step) for the steps first..last-1. An error of a thread is raised here; closing ends the threads."""
    line = Line(source, first, last)
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
    """Begin function(*arguments) in a thread, and give what waits for it, and gives or raises what it did."""
    line = Line(lambda _: function(*arguments), 0, 1)
    worker = threading.Thread(target=line.work)
    worker.daemon = True  # nobody waits where the training can't begin
    worker.start()
    return lambda: line.take(0)


class Line(object):
    """What the threads have claimed, made and handed out."""

    def __init__(self, source, first, last):
        self.source, self.claimed, self.taken, self.last = source, first, first, last
        self.made, self.stopped, self.changed = {}, False, threading.Condition()

    def work(self):
        step = self.claim()
        while step is not None:
            try:
                item = self.source(step), None
            except BaseException as error:  # raised again where the batch is waited for
                item = None, error
            with self.changed:
                self.made[step] = item
                self.changed.notify_all()
            step = self.claim()

    def claim(self):
        """Wait for room, and give the next step to make; None when there is none."""
        with self.changed:
            while not self.stopped and self.claimed < self.last and self.claimed >= self.taken + DEPTH:
                self.changed.wait()
            if self.stopped or self.claimed >= self.last:
                return None
            self.claimed += 1
            return self.claimed - 1

    def take(self, step):
        with self.changed:
            while step not in self.made:
                self.changed.wait(1)  # with a limit: Python 2.7 keeps signals waiting otherwise
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
    """Batches, and for how many seconds somebody has waited for them: until they were made, and copied."""

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
