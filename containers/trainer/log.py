"""What a training tells of its steps while it runs: a line and an event of every n-th, and of each epoch."""
from __future__ import absolute_import, division, print_function

import datetime

import numpy as np

from . import trace
from .events import Stop, clock

MOST_UNREAD = 1000  # losses, which take memory, and among which is perhaps one that is not finite


class Log(object):
    """Writes the line and the event of every n-th step. Until then losses are not read: reading waits for the device.

    A loss of None: nothing was trained.
    """

    def __init__(self, asked, model, outside, epoch_steps=None, teacher_seconds=None):
        self.asked, self.model, (self.events, self.voice, _) = asked, model, outside
        self.teacher_seconds, self.is_first = teacher_seconds, True
        self.pending, self.loss = [], None  # the unread losses, and the one read last
        # since the previous line: the batches' sizes (an epoch's last is smaller); if nothing is trained, the latencies
        # of the full ones
        self.since, self.sizes, self.latencies = clock(), [], []
        self.latest = None  # the step added last
        self.batches, self.input_seconds = None, 0.0  # a Waited, and how many of its seconds have been reported
        # a resumed training's first epoch is the rest of an epoch
        self.epoch, self.epoch_steps = Epoch(), epoch_steps

    def add(self, step, examples, loss, right):
        self.latest = step
        if loss is not None:
            self.pending.append((step, examples, loss, right))
        self.sizes.append(examples)
        if step % self.asked.log_frequency == 0:
            self.write(step, self.settle())
        elif len(self.pending) == MOST_UNREAD:
            self.settle()
        if self.epoch_steps and (step + 1) % self.epoch_steps == 0:
            self.settle()
            self.write_epoch(step + 1)

    def waited(self, examples, seconds):
        """Record the latency of a full batch: the time until its results arrived."""
        if examples == self.asked.batch:
            self.latencies.append(seconds)

    def end(self):
        """Write the last step, if it has no line yet: --seconds ends a training at a step that nobody knows beforehand,
        and on a slow device that step may be the only one with a line."""
        if self.sizes:
            self.write(self.latest, self.settle())

    def settle(self):
        """Read the unread losses, and return the last or None; raise Stop("nan") at the first that is not finite."""
        for step, examples, loss, right in self.pending:
            with trace.Slice("wait for the loss", step):
                value = float(loss)
            if not np.isfinite(value):
                raise Stop("nan", "Model diverged with loss = %s at step %d" % (value, step), step)
            if self.epoch_steps:
                self.epoch.add(examples, value, int(right))
            self.loss = value
        self.pending = []
        return self.loss

    def write(self, step, loss):
        """Report the steps since the previous line. The first line's include start-up, and so have no rates as
        events."""
        now, count = clock(), len(self.sizes)
        elapsed = max(now - self.since, 1e-9)
        rate, seconds = sum(self.sizes) / elapsed, elapsed / count
        self.events.write("step", step=step, loss=loss,
                          learning_rate=None if loss is None else self.model.rate(step),
                          examples_per_second=None if self.is_first else rate,
                          seconds_per_batch=None if self.is_first else seconds, **self.beside(count))
        self.voice.say(step_line(step, loss, rate, seconds))
        self.since, self.sizes, self.latencies, self.is_first = now, [], [], False

    def beside(self, count):
        """Return the fields that not all trainings have; count: of the steps since the previous line."""
        found = {}
        if self.teacher_seconds:
            found["teacher_seconds_per_batch"] = self.teacher_seconds()
        if self.latencies and not self.is_first:
            found["latency_seconds"] = self.latencies
        if self.batches:
            waited, self.input_seconds = self.batches.seconds - self.input_seconds, self.batches.seconds
            found["input_seconds_per_batch"] = None if self.is_first else waited / count
        return found

    def write_epoch(self, done):
        """Report what Keras reports: means over the epoch of the losses and guesses during training."""
        epoch, self.epoch = self.epoch, Epoch()
        number, seconds = done // self.epoch_steps, clock() - epoch.began
        loss, accuracy = epoch.loss / epoch.examples, epoch.right / epoch.examples
        self.events.write("epoch", step=done, epoch=number, examples=epoch.examples, loss=loss, accuracy=accuracy,
                          seconds=seconds)
        self.voice.say("%s: epoch %d, loss = %.4f, accuracy = %.4f (%.0f s)" % (
            datetime.datetime.now(), number, loss, accuracy, seconds))


def step_line(step, loss, rate, seconds):
    return "%s: step %d%s (%.1f examples/sec; %.3f sec/batch)" % (
        datetime.datetime.now(), step, "" if loss is None else ", loss = %.2f" % loss, rate, seconds)


class Epoch(object):
    """Sums over an epoch's examples."""

    def __init__(self):
        self.began, self.examples, self.loss, self.right = clock(), 0, 0.0, 0

    def add(self, examples, loss, right):
        self.examples, self.loss, self.right = self.examples + examples, self.loss + examples * loss, self.right + right
