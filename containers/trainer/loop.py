"""What every training shares, whichever framework computes: steps, output, events, checkpoints, and how it ends."""
from __future__ import absolute_import, division, print_function

import collections
import itertools
import os
import sys

import numpy as np

from . import checkpoint, cost, feed, layers, room, trace
from .ahead import Waited
from .evaluation import evaluate, opened
from .events import FORMAT, Stop, clock
from .group import agreed, begin_alike, parted, same, sliced, whole
from .log import Log

UNENDING = 2 ** 62  # the last step if only --seconds ends the training, or if somebody types a larger one
# What is trained: the parsed arguments, a workload, its recipe.Model, a data.Dataset, a framework's Network, an
# events.Outside, and this process's group.Group.
Training = collections.namedtuple("Training", "asked workload model dataset network outside group")


def train(training, free=None):
    """Train from the first or the checkpoint's step on, record what happens, and test the result.

    free: the GPU's free bytes before the framework took its share, None if unknown."""
    asked, workload, model, dataset, network, (events, voice, signals), group = training
    room.check(asked, workload, model, dataset.count, network, voice)
    source = settled(training)
    about = described(training)
    first = prepare(asked, workload, model, network, about, voice)
    source = own_part(training, source, first, about["data"])
    if asked.feed == "resident":
        feed.check_resident(asked.workload, source, free if network.device == "gpu" else None, network.scaled_bytes)
    announce(training, first)
    began, tested = clock(), opened(asked, workload, group)
    done = compute(training, source, first, about)
    if asked.feed == "input":
        named = feed.stages(workload, dataset, source, asked.batch, asked.seed)
        events.write("stages", stages=feed.rates(named, lambda: signals.check(done)))
    tested = tested()
    if tested is not None:
        evaluate(workload, model, tested, network, done, training.outside, group.examples(asked.batch))
    parted(network, group)  # the others wait for replica 0's test: some collectives need all until the end
    events.write("finish", step=done, seconds=clock() - began)


def settled(training):
    """Settle how many examples a step really has, and which step is to be reached; return the source of the batches."""
    asked, workload = training.asked, training.workload
    source = workload.source(training.dataset, asked.batch, asked.seed, asked.queue_fraction)
    asked.batch = training.model.batch = of_a_step(asked, source, workload.UNIT, training.outside.voice)
    asked.steps = to_reach(asked, source)
    return source


def described(training):
    """Return what a checkpoint says of its training (checkpoint.py)."""
    asked, workload, dataset = training.asked, training.workload, training.dataset
    queued = workload.queued(asked.queue_fraction) if hasattr(workload, "queued") else None
    return {"workload": asked.workload, "batch": asked.batch, "seed": asked.seed, "queued": queued,
            "data": dataset.sha256 or dataset.note, "dropout": False if asked.no_dropout else None,
            "teacher": False if asked.teacher == "none" else None, "clip": asked.clip,
            "framework": asked.framework, "step": 0}


def own_part(training, source, first, data):
    """Return the source of this replica's part of the batches, from step `first` on; data: text that tells data sets
    apart."""
    (_, voice, signals), group = training.outside, training.group
    if group.size > 1:
        begin_alike(training.network, first, data)
    if first and hasattr(source, "skip"):
        voice.say("Drawing the order of the images of these %d steps again" % first)
        source.skip(first, lambda: signals.check(first))
    return sliced(source, group)


def announce(training, first):
    """Report what is trained, and how far, before the first step."""
    asked, workload, model, dataset, network, (events, voice, _), _ = training
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


def compute(training, source, first, about):
    """Train, run forward or make batches, whatever was asked for; return how many steps are done."""
    asked, model, voice = training.asked, training.model, training.outside.voice
    if about["queued"] is not None:
        voice.say("Filling queue with %d %s images before starting to train." % (
            about["queued"], "SYNTHETIC" if training.dataset.name == "synthetic" else "CIFAR"))
    has_result = asked.feed not in feed.WITHOUT_RESULT
    if not has_result:
        voice.say(feed.WITHOUT_RESULT[asked.feed])
    epoch_steps = getattr(source, "epoch_steps", None) if model.counted and has_result else None
    log = Log(asked, model, training.outside, epoch_steps, getattr(training.network, "teacher_seconds_per_batch", None))
    if model.trains and asked.feed != "input":
        return steps(training, source, first, log, saving(training, about) if has_result else None)
    return forward(training, source, log)


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
                 winograd=network.winograd, replicas=network.group.size, nodes=network.group.nodes,
                 autotune=asked.tuned, pid=os.getpid(), **fields)


def saving(training, about):
    """Return a function that saves a checkpoint."""
    asked, _, model, _, network, (events, _, _), group = training

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


def steps(training, source, first, log, save):
    """Train on the batches first..asked.steps-1, as long as --seconds allows; return how many steps are done.

    When a signal arrives, save a checkpoint before ending, but never one of weights whose loss is not finite. save:
    None if the result is not kept.
    """
    asked, _, model, _, network, (_, _, signals), group = training
    done, at, saved = first, first, clock()
    signals.obey(agreed(network, group, signals.received or 0), first)
    batches = log.batches = Waited(fed(training, source, first))
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


def fed(training, source, first):
    """Return the batches from `first` on, by the feed that --feed names; --trace traces the first ones."""
    asked, network = training.asked, training.network
    last = UNENDING if asked.steps is None else asked.steps
    if not asked.trace or training.group.rank or first == last:  # a training that is resumed at its end keeps its trace
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


def forward(training, source, log):
    """Run forward passes on the batches in the order of steps(), copy each result to the host, and discard it.

    With --feed input, only make the batches."""
    asked, network, signals = training.asked, training.network, training.outside.signals
    done, batches = 0, fed(training, source, 0)
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
