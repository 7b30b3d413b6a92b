"""What every training shares, whichever framework computes: steps, output, events, checkpoints, and how it ends."""
from __future__ import absolute_import, division, print_function

import datetime
import itertools
import os
import sys

import numpy as np

from . import checkpoint, cost, feed, layers, room, trace
from .ahead import Waited
from .evaluation import evaluate, opened
from .events import FORMAT, Stop, clock
from .group import ALONE, agreed, begin_alike, parted, same, sliced, whole

MOST_UNREAD = 1000  # losses, which take memory, and among which is perhaps one that is not finite
UNENDING = 2 ** 62  # the last step if only --seconds ends the training, or if somebody types a larger one


def train(asked, workload, model, dataset, network, outside, free=None, group=ALONE):
    """Train from the first or the checkpoint's step on, record what happens, and test the result.

    free: the GPU's free bytes before the framework took its share, None if unknown."""
    events, voice, signals = outside
    room.check(asked, workload, model, dataset.count, network, voice)
    source = workload.source(dataset, asked.batch, asked.seed, asked.queue_fraction)
    asked.batch = model.batch = of_a_step(asked, source, workload.UNIT, voice)
    queued = workload.queued(asked.queue_fraction) if hasattr(workload, "queued") else None
    about = {"workload": asked.workload, "batch": asked.batch, "seed": asked.seed, "queued": queued,
             "data": dataset.sha256 or dataset.note, "dropout": False if asked.no_dropout else None,
             "teacher": False if asked.teacher == "none" else None, "clip": asked.clip,
             "framework": asked.framework, "step": 0}
    asked.steps = to_reach(asked, source)
    first = prepare(asked, workload, model, network, about, voice)
    if group.size > 1:
        begin_alike(network, first, about["data"])
    if first and hasattr(source, "skip"):
        voice.say("Drawing the order of the images of these %d steps again" % first)
        source.skip(first, lambda: signals.check(first))
    source = sliced(source, group)
    if asked.feed == "resident":
        feed.check_resident(asked.workload, source, free if network.device == "gpu" else None, network.scaled_bytes)
    start(asked, workload, network, events, dataset, steps=asked.steps,
          resumed_from_step=first if asked.resume else None,
          dropout=not asked.no_dropout if "dropout" in layers.ops(workload.NETWORK) else None,
          feed=asked.feed, teacher=asked.teacher,
          flops_per_example=None if asked.feed == "input" else workload.FLOPS,
          share_of_3x3=cost.share_of_3x3(model.words, model.shape),
          epoch_copied_bytes=feed.epoch_copied_bytes(asked.feed, network, model, dataset.count))
    if asked.steps is not None:
        voice.say("It takes %d steps of %d %s%s" % (
            asked.steps, asked.batch, workload.UNIT, ", of which %d are done" % first if first else ""))
    began, tested = clock(), opened(asked, workload, group)
    if queued is not None:
        voice.say("Filling queue with %d %s images before starting to train." % (
            queued, "SYNTHETIC" if dataset.name == "synthetic" else "CIFAR"))
    has_result = asked.feed not in feed.WITHOUT_RESULT
    if not has_result:
        voice.say(feed.WITHOUT_RESULT[asked.feed])
    epoch_steps = getattr(source, "epoch_steps", None) if model.counted and has_result else None
    log = Log(asked, events, voice, model, first, epoch_steps, getattr(network, "teacher_seconds_per_batch", None))
    if model.trains and asked.feed != "input":
        save = saving(asked, about, model, network, events, group) if has_result else None
        done = steps(asked, model, network, source, first, log, save, signals, group)
    else:
        done = forward(asked, network, source, log, signals)
    if asked.feed == "input":
        named = feed.stages(workload, dataset, source, asked.batch, asked.seed)
        events.write("stages", stages=feed.rates(named, lambda: signals.check(done)))
    tested = tested()
    if tested is not None:
        evaluate(workload, model, tested, network, done, outside, group.examples(asked.batch))
    parted(network, group)  # the others wait for replica 0's test: some collectives need all until the end
    events.write("finish", step=done, seconds=clock() - began)


def say_data(does, asked, workload, dataset, voice):
    if asked.data:
        voice.say("%s on %d %s of %s" % (does, dataset.count, workload.UNIT, asked.data))
    else:
        wanted = "CIFAR-10" if workload.DATA == "cifar10" else workload.DATA
        voice.say("%s on %d SYNTHETIC %s, not on %s: %s" % (does, dataset.count, workload.UNIT, wanted, dataset.note))


def start(asked, workload, network, events, dataset=None, **fields):
    """Write the start event: what all workloads report, and the given fields."""
    for name, own in ("", "name"), ("_images", "count"), ("_sha256", "sha256"), ("_note", "note"):
        fields["dataset" + name] = getattr(dataset, own, None)
    events.write("start", format=FORMAT, workload=asked.workload, batch=asked.batch, seed=asked.seed,
                 framework=asked.framework, framework_version=network.version, python="%d.%d.%d" % sys.version_info[:3],
                 device=network.device, devices=network.devices, parameters=workload.PARAMETERS, threads=asked.threads,
                 precision=network.precision, compiled=network.compiled, channels_last=network.channels_last,
                 winograd=bool(network.winograd), replicas=network.group.size, nodes=network.group.nodes,
                 autotune=asked.tuned, pid=os.getpid(), **fields)


def saving(asked, about, model, network, events, group):
    """Return a function that saves a checkpoint."""
    def save(step):
        started = clock()
        try:
            values = network.values()  # all replicas must call this
            if group.size > 1:
                weights = {name: values[name] for name in model.weights}
                events.write("replicas", step=step, **same(network, weights, step))
            path = None if group.rank else checkpoint.save(asked.out, dict(about, step=step), values)
        except Stop as stop:
            stop.step = step if stop.step is None else stop.step
            raise
        if path:
            events.write("checkpoint", step=step, path=path, seconds=clock() - started)
        agreed(network, group, 0)  # while replica 0 writes, no other may end: the parent would soon kill replica 0

    return save


def of_a_step(asked, source, unit, voice):
    """Return how many examples a step really has: the whole data set, if that is smaller than the batch requested. What
    is reported, compiled and saved follows from this number."""
    count = whole(asked, source, 0)
    if count < asked.batch:
        voice.say("A batch of %d is more than the data set has: each step takes all %d %s" % (
            asked.batch, count, unit))
    return count


def to_reach(asked, source):
    """Return the step to reach; None if only --seconds ends the training."""
    if asked.epochs is None:
        return asked.steps and min(asked.steps, UNENDING)
    if not hasattr(source, "epoch_steps"):
        raise Stop("bad_argument", "%s has no epochs: use --steps or --seconds instead" % asked.workload)
    return min(asked.epochs * source.epoch_steps, UNENDING)


def prepare(asked, workload, model, network, about, voice):
    """Load initial weights or a checkpoint's into the network; return the step to begin with."""
    for what, count, wanted in (
            ("parameters", layers.parameters(model.words), getattr(workload, "TRAINED", workload.PARAMETERS)),
            ("multiply-accumulates", cost.macs(model.words, model.shape), workload.MACS)):
        if count != wanted:
            raise Stop("crash", "the network has %d %s, not %d" % (count, what, wanted))
    if not asked.resume:
        network.load(model.first(asked.seed))
        return 0
    kept, values = checkpoint.newest(asked.resume, about, voice.say)
    if asked.steps is not None and kept["step"] > asked.steps:
        raise Stop("checkpoint", "the checkpoint is at step %d, past the %d asked for" % (kept["step"], asked.steps))
    for name, shape in model.kept().items():
        found = values[name].shape if name in values else "missing"
        if found != shape:
            raise Stop("checkpoint", "the checkpoint at step %d is of another network, such as another version's: "
                       "its %s is %s, this one's is %s" % (kept["step"], name, found, shape))
    network.load(values)
    return kept["step"]


def steps(asked, model, network, source, first, log, save, signals, group=ALONE):
    """Train on the batches first..asked.steps-1, as long as --seconds allows; return how many steps are done.

    When a signal arrives, save a checkpoint before ending, but never one of weights whose loss is not finite. save:
    None if the result is not kept.
    """
    done, at, saved = first, first, clock()
    signals.obey(agreed(network, group, signals.received or 0), first)
    batches = log.batches = Waited(fed(asked, network, source, first, group))
    together = begun(log.voice, within(
        asked.seconds, batches, log, agree=lambda is_late: agreed(network, group, is_late)))
    try:
        for done, batch in enumerate(together, first + 1):
            examples = len(batch[-1])
            if group.size > 1:
                examples = whole(asked, source, first if asked.feed == "constant" else done - 1)
            turn = model.turn(done - 1, asked.seed, group.share(examples))
            found = network.train(batch, turn)
            is_due = not group.rank and clock() - saved >= asked.checkpoint_seconds
            # agreed before the loss is read: on GPUs reading waits for the gradients of all replicas, forever if a
            # replica is gone
            wish = agreed(network, group, signals.received or is_due)
            log.add(done - 1, examples, *found)
            if save and wish:
                log.settle()
                save(done)
                saved, at = clock(), done
            signals.obey(wish, done)
    finally:
        together.close()
        batches.close()
    log.settle()
    if save and at != done:
        save(done)
    return done


def fed(asked, network, source, first, group=ALONE):
    """Return the batches from `first` on, by the feed that --feed names; --trace traces the first ones."""
    last = UNENDING if asked.steps is None else asked.steps
    if not asked.trace or group.rank:
        return network.batches(source, first, last, asked.feed)
    trace.begin()
    source = source if asked.feed == "resident" else trace.Source(source)  # resident gathers batches, and makes none
    about = {"workload": asked.workload, "feed": asked.feed, "batch": asked.batch, "device": network.device}
    path = os.path.join(asked.out, trace.NAME)
    return trace.first(network.batches(source, first, last, asked.feed), asked.trace, path, about, first)


def begun(voice, batches):
    """Yield the batches, and say so if the step of the first takes long: it may compile."""
    for batch in itertools.islice(batches, 1):
        with voice.still("computing the first step"):
            yield batch
    for batch in batches:
        yield batch


def within(seconds, batches, log, now=clock, agree=bool):
    """Yield the batches; with `seconds`, until that many have passed since the end of the first step, which includes
    start-up and compilation."""
    until = None
    for batch in batches:
        yield batch
        if seconds and until is None:
            log.settle()
            until = now() + seconds
        elif seconds and agree(now() >= until):
            log.end()
            return


def forward(asked, network, source, log, signals):
    """Run forward passes on the batches in the order of steps(), copy each result to the host, and discard it.

    With --feed input, only make the batches."""
    done, batches = 0, fed(asked, network, source, 0)
    wanted, together = clock(), begun(log.voice, within(asked.seconds, batches, log))
    try:
        for done, batch in enumerate(together, 1):
            if asked.feed != "input":
                found = network.infer(batch)  # in host memory, so the device has finished
                log.waited(len(batch[-1]), clock() - wanted)
                if not np.isfinite(found).all():
                    raise Stop("nan", "The network's output on batch %d is not finite" % (done - 1), done - 1)
            log.add(done - 1, len(batch[-1]), None, None)
            signals.check(done)
            wanted = clock()
    finally:
        together.close()
        getattr(batches, "close", int)()
    return done


class Log(object):
    """Writes the line and the event of every n-th step. Until then losses are not read: reading waits for the device.

    A loss of None: nothing was trained.
    """

    def __init__(self, asked, events, voice, model, first=0, epoch_steps=None, teacher_seconds=None):
        self.asked, self.events, self.voice, self.model = asked, events, voice, model
        self.teacher_seconds = teacher_seconds
        self.pending, self.since, self.first = [], clock(), True
        self.latest, self.loss = first - 1, None  # the step added last, the loss read last
        self.sizes = []  # of the batches since the previous line: an epoch's last is smaller
        self.latencies = []  # of the full batches among them, if nothing is trained
        self.batches, self.input_seconds = None, 0.0  # a Waited, and how many of its seconds have been reported
        self.written = first - 1
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
        if self.latest > self.written:
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
        now, count = clock(), step - self.written
        seconds, self.since = max(now - self.since, 1e-9) / count, now
        rate, self.written, self.sizes = sum(self.sizes) / len(self.sizes) / seconds, step, []
        more = {"teacher_seconds_per_batch": self.teacher_seconds()} if self.teacher_seconds else {}
        if self.latencies and not self.first:
            more["latency_seconds"] = self.latencies
        self.latencies = []
        if self.batches:
            waited, self.input_seconds = self.batches.seconds - self.input_seconds, self.batches.seconds
            more["input_seconds_per_batch"] = None if self.first else waited / count
        self.events.write("step", step=step, loss=loss,
                          learning_rate=None if loss is None else self.model.rate(step),
                          examples_per_second=None if self.first else rate,
                          seconds_per_batch=None if self.first else seconds, **more)
        self.voice.say(step_line(step, loss, rate, seconds))
        self.first = False

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
