"""What every training shares, whichever framework computes: steps, lines, events, checkpoints, ways to stop."""
from __future__ import absolute_import, division, print_function

import datetime
import os
import signal
import sys

import numpy as np

from . import checkpoint, layers
from .events import FORMAT, Stop, clock

TEST_BATCH = 500


class Signals(object):
    """Remembers SIGTERM and SIGINT until a step is finished; the second one ends the process at once."""

    EXIT = {signal.SIGTERM: 143, signal.SIGINT: 130}

    def __init__(self):
        self.received = None

    def install(self):
        for number in self.EXIT:
            signal.signal(number, self.receive)

    def receive(self, number, frame):
        if self.received:
            os._exit(self.EXIT[number])
        self.received = number

    def check(self, step):
        """Raise Stop if the process has been told to end."""
        if self.received:
            raise Stop("interrupted", "ended by signal %d" % self.received, step, self.EXIT[self.received])


def train(asked, workload, dataset, network, framework, events, voice, signals):
    """Train from the first or the checkpoint's step to asked.steps, write what happens, and test what came out."""
    queued = workload.queued(asked.queue_fraction)
    about = {"workload": asked.workload, "batch": asked.batch, "seed": asked.seed, "queued": queued,
             "data": dataset.sha256 or dataset.note, "framework": framework, "step": 0}
    first = prepare(asked, workload, network, about, voice)
    events.write("start", format=FORMAT, workload=asked.workload, batch=asked.batch, steps=asked.steps, seed=asked.seed,
                 framework=framework, framework_version=network.version, python="%d.%d.%d" % sys.version_info[:3],
                 device=network.device, devices=network.devices, parameters=layers.parameters(workload.NETWORK),
                 dataset=dataset.name, dataset_images=len(dataset.labels), dataset_sha256=dataset.sha256,
                 dataset_note=dataset.note, resumed_from_step=first if asked.resume else None, threads=asked.threads,
                 pid=os.getpid())
    began = clock()

    def save(step):
        started = clock()
        try:
            path = checkpoint.save(asked.out, dict(about, step=step), network.weights(), network.averages())
        except Stop as stop:
            stop.step = step
            raise
        events.write("checkpoint", step=step, path=path, seconds=clock() - started)

    voice.say("Filling queue with %d CIFAR images before starting to train. This will take a few minutes." % queued)
    source = workload.source(dataset, asked.batch, asked.seed, asked.queue_fraction, first)
    steps(asked, workload, network, source, first, Log(asked, events, voice, workload), save, signals)
    if not asked.no_eval:
        evaluate(workload, workload.load_test(asked.data), network, asked.steps, events, voice, signals)
    events.write("finish", step=asked.steps, seconds=clock() - began)


def prepare(asked, workload, network, about, voice):
    """Fill the network with its first weights or a checkpoint's; give the step to begin with."""
    count = layers.parameters(workload.NETWORK)
    if count != workload.PARAMETERS:
        raise Stop("crash", "the network has %d parameters, not %d" % (count, workload.PARAMETERS))
    if not asked.resume:
        weights = layers.initial(workload.NETWORK, asked.seed)
        network.load(weights, weights)
        return 0
    kept, weights, averages = checkpoint.newest(asked.resume, about, voice.say)
    if kept["step"] > asked.steps:
        raise Stop("checkpoint", "the checkpoint is at step %d, past the %d asked for" % (kept["step"], asked.steps))
    network.load(weights, averages)
    return kept["step"]


def steps(asked, workload, network, source, first, log, save, signals):
    """Train on the batches first..asked.steps-1. Told to end, save first; never weights whose loss is no number."""
    saved, at = clock(), None
    signals.check(first)
    batches = network.batches(source, first, asked.steps)
    try:
        for step, batch in enumerate(batches, first):
            log.add(step, network.train(batch, workload.learning_rate(step, asked.batch), workload.keep(step)))
            if signals.received or clock() - saved >= asked.checkpoint_seconds:
                log.settle()
                save(step + 1)
                saved, at = clock(), step + 1
            signals.check(step + 1)
    finally:
        getattr(batches, "close", int)()
    log.settle()
    if at != asked.steps and first < asked.steps:
        save(asked.steps)


class Log(object):
    """Writes line and event of every n-th step. Losses are read from the device only then: reading waits for it."""

    def __init__(self, asked, events, voice, workload):
        self.asked, self.events, self.voice, self.workload = asked, events, voice, workload
        self.pending, self.since, self.written, self.first = [], clock(), None, True

    def add(self, step, loss):
        self.pending.append((step, loss))
        if self.written is None:
            # the tutorial's first line divides by the frequency too, after one step
            self.written = step - 1 if step else -self.asked.log_frequency
        if step % self.asked.log_frequency == 0:
            self.write(step, self.settle())

    def settle(self):
        """Read the losses not yet read, and give the last; the first that is no number raises Stop("nan")."""
        value = None
        for step, loss in self.pending:
            value = float(loss)
            if not np.isfinite(value):
                raise Stop("nan", "Model diverged with loss = %s at step %d" % (value, step), step)
        self.pending = []
        return value

    def write(self, step, loss):
        now = clock()
        seconds, self.since = max(now - self.since, 1e-9) / (step - self.written), now
        rate, self.written = self.asked.batch / seconds, step
        self.events.write("step", step=step, loss=loss,
                          learning_rate=self.workload.learning_rate(step, self.asked.batch),
                          examples_per_second=None if self.first else rate,
                          seconds_per_batch=None if self.first else seconds)
        self.voice.say("%s: step %d, loss = %.2f (%.1f examples/sec; %.3f sec/batch)" % (
            datetime.datetime.now(), step, loss, rate, seconds))
        self.first = False


def evaluate(workload, dataset, network, step, events, voice, signals):
    """Test with the moving averages. Each image counts once; the tutorial's 79 batches of 128 count 112 twice."""
    started, right = clock(), 0
    voice.say("Testing the network on %d other images" % len(dataset.labels))
    for start in range(0, len(dataset.labels), TEST_BATCH):
        part = slice(start, start + TEST_BATCH)
        guesses = network.logits(workload.plain(dataset.images[part])).argmax(axis=1)
        right += int((guesses == dataset.labels[part]).sum())
        signals.check(step)
    precision = right / len(dataset.labels)
    events.write("eval", step=step, precision_at_1=precision, examples=len(dataset.labels), seconds=clock() - started)
    voice.say("%s: precision @ 1 = %.3f" % (datetime.datetime.now(), precision))
