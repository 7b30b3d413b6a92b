"""The teacher: a frozen network that computes the targets of the student's loss. Five modes, the first four of which
have equal outputs, say where and when it computes.

    together    on the student's device, before each of its steps
    before      on the CPU, before each step; the student's device waits
    ahead       on the CPU, in a thread that works ahead while the student learns
    kept        once for every example, on the student's device, before the first step
    none        no teacher: the loss is of the labels alone

The teacher's weights come from the seed, and it is never trained: only the speed matters. It sees the same examples as
the student, and computes as for a test, in float32; on a GPU in TF32 if the student does.
"""
from __future__ import absolute_import, division, print_function

import threading

import numpy as np

from .ahead import ahead
from .computing import Way
from .events import Stop, clock
from .recipe import Model

WAYS = "together", "before", "ahead", "kept", "none"
FEEDS = "ahead", "plain", "input"  # the others make no batches that a teacher could see; with input nothing is trained
DEPTH = 2  # batches that the teacher may be ahead
AT_ONCE = 500  # examples per forward pass when computed beforehand


def check(way, feed):
    if way not in (None, "none") and feed not in FEEDS:
        raise Stop("bad_argument", "--teacher %s does not go with --feed %s: type --feed ahead, --feed plain or "
                                   "--teacher none" % (way, feed))


def beside(maker, workload, imported, asked):
    """Return the teacher's network, None if there is none; imported(name): returns the workload of that name."""
    if asked.teacher in (None, "none"):
        return None
    other = imported(workload.TEACHER)
    model = Model(other.NETWORK, other.RECIPE, other.INPUT, asked.batch)
    device = "cpu" if asked.teacher in ("before", "ahead") else asked.device
    network = maker.Network(model, device, asked.gpu_memory_fraction, asked.threads, Way("float32", False, None))
    network.load(model.first(asked.seed))
    return network


def way(network, name, outside):
    made = {"together": Together, "before": Before, "ahead": Ahead}.get(name)
    return made(network) if made else Kept(network, outside)


class Student(object):
    """A network whose batches get the teacher's logits as their third part; all else is the network's own."""

    def __init__(self, network, teacher):
        self.network, self.teacher, self.loss, self.seconds = network, teacher, None, []

    def __getattr__(self, name):
        return getattr(self.network, name)

    def batches(self, source, first, last, *feed):
        return self.network.batches(self.teacher.watching(source, first, last), first, last, *feed)

    def train(self, batch, turn):
        answers, seconds = self.teacher.answers(turn.step, batch[0], self.loss)
        self.seconds += [] if seconds is None else [seconds]
        self.loss, right = self.network.train((batch[0], batch[1], answers), turn)
        return self.loss, right

    def teacher_seconds_per_batch(self):
        """Return the teacher's mean since the previous call; None if it computed nothing, or its time alone is not
        known."""
        seconds, self.seconds = self.seconds, []
        return sum(seconds) / len(seconds) if seconds else None

    def close(self):
        self.teacher.close()
        self.network.close()


def timed(answer, examples):
    started = clock()
    return answer(examples), clock() - started


class Together(object):
    """A mode: watching() returns the source that the student takes its batches from; answers() returns the teacher's
    logits for a step's examples and the seconds that they took; loss: the student's, of the previous step. On a GPU the
    seconds are None, because nothing waits for the teacher alone."""

    def __init__(self, network):
        self.network = network

    def watching(self, source, first, last):
        return source

    def answers(self, step, examples, loss):
        found, seconds = timed(self.network.answers, examples)
        return found, seconds if self.network.device == "cpu" else None

    def close(self):
        self.network.close()


class Before(object):
    def __init__(self, network):
        self.network, self.seen = network, {}

    def watching(self, source, first, last):
        def take(step):
            batch = source(step)
            self.seen[step] = batch[0]
            return batch
        return take

    def answers(self, step, examples, loss):
        if loss is not None:
            float(loss)  # waits for the student: the two take turns
        return timed(self.network.logits, self.seen.pop(step))

    def close(self):
        self.network.close()


class Ahead(object):
    def __init__(self, network):
        self.network, self.seen, self.line = network, {}, None
        self.changed, self.closed = threading.Condition(), False

    def watching(self, source, first, last):
        self.line = ahead(self.answer, first, last, threads=1, depth=DEPTH)

        def take(step):
            batch = source(step)
            with self.changed:
                self.seen[step] = batch[0]
                self.changed.notify_all()
            return batch
        return take

    def answer(self, step):
        """Compute a batch's logits as soon as it is made; runs in the thread."""
        with self.changed:
            while step not in self.seen and not self.closed:
                self.changed.wait()  # without a timeout, by which Python 2.7 would notice late: see ahead.py
            examples = self.seen.pop(step, None)
        try:
            return None if examples is None else timed(self.network.logits, examples)
        except BaseException:
            self.end()  # who gets this error then joins the thread, which must not be waiting for more examples
            raise

    def answers(self, step, examples, loss):
        return next(self.line)

    def end(self):
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def close(self):
        self.end()
        if self.line is not None:
            self.line.close()
        self.network.close()


class Kept(object):
    def __init__(self, network, outside):
        self.network, self.outside, self.source, self.kept = network, outside, None, None

    def watching(self, source, first, last):
        started, images, found = clock(), source.dataset.images, []
        self.outside.voice.say("The teacher computes all %d examples beforehand" % len(images))
        for k in range(0, len(images), AT_ONCE):
            found.append(self.network.logits(source.prepared(images[k:k + AT_ONCE])))
            self.outside.signals.check(first)
        self.kept = np.concatenate(found)
        self.source, seconds = source, clock() - started
        self.outside.events.write("teacher", examples=len(images), seconds=seconds)
        self.outside.voice.say("The teacher has computed them, in %.1f s" % seconds)
        return source

    def answers(self, step, examples, loss):
        return self.kept[self.source.chosen(step)], None

    def close(self):
        self.network.close()
