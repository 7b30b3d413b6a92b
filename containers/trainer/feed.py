"""How batches reach the device: what each --feed means, when it can be used, and how fast a pipeline's stages are.

    ahead     threads prefetch batches, which are copied to the device
    plain     each batch is made, and copied, when it is needed
    resident  the data set is put on the device once, and batches are gathered there
    constant  one batch stays on the device and is trained on over and over: the speed of computing alone
              (with resident and constant, PyTorch makes each step a CUDA graph where it can: see its graphed.py)
    input     batches are prefetched and dropped: the speed of making them alone

Each framework's feeding.py says how. With constant and input the network is not a result.
"""
from __future__ import absolute_import, division, print_function

import collections

import numpy as np

from . import data
from .ahead import upto
from .epochs import Shuffled
from .events import Stop, clock

FEEDS = "ahead", "plain", "resident", "constant", "input"
WITHOUT_RESULT = {
    "constant": "One batch is computed over and over, to see how fast the device is: the network is not a "
                "result, and is neither saved nor tested.",
    "input": "Batches are made and dropped, to see how fast that is: nothing is trained.",
}

# A data set for the device. divisor: what the examples must still be divided by there; None if they are ready.
Held = collections.namedtuple("Held", "examples labels divisor")


def check(asked):
    """Raise Stop if a feed that leaves no result is combined with --resume."""
    if asked.feed in WITHOUT_RESULT and asked.resume:
        raise Stop("bad_argument", "--feed %s leaves no result: leave --resume out" % asked.feed)


def check_resident(name, source, free, scaled_bytes):
    """Raise Stop for data that can't stay on the device; free: bytes of its memory, None if unknown; scaled_bytes: the
    network's."""
    if not isinstance(source, Shuffled) or not isinstance(source.dataset.images, np.ndarray):
        raise Stop("bad_argument", "--feed resident: each batch of %s is made on the CPU when its turn comes, and "
                                   "can't be on the device beforehand. --feed ahead makes it in time, --feed constant "
                                   "shows what the device would do without waiting" % name)
    size = held_bytes(source, scaled_bytes)
    if free is not None and size > free / 2:
        raise Stop("bad_argument", "--feed resident: the data set takes %d MB, more than half of the %d MB that are "
                                   "free on the GPU; type --feed ahead" % (size // 10**6, free // 10**6))


def is_scaled(source):
    return source.prepared is data.scaled


def held_bytes(source, scaled_bytes):
    images, labels = source.dataset.images, source.dataset.labels
    of_a_number = scaled_bytes if is_scaled(source) else 4
    return images.size * of_a_number + labels.size * 8


def held(source):
    """Return the data set as it is put on the device: images that are only scaled stay bytes, and are scaled there."""
    images, labels = source.dataset.images, source.dataset.labels
    if is_scaled(source):
        return Held(images, labels, 255.0)
    return Held(np.asarray(source.prepared(images)), labels, None)


def chosen(source, first, last, put):
    """Yield the indices of each step's examples, cut out of the epoch's order, which put() copies to the device."""
    order = None
    for step in upto(first, last):
        epoch, at = divmod(step, source.epoch_steps)
        if order is None or not at:
            order = put(source.order(epoch))
        part = source.part(source.size(step))
        yield order[at * source.batch + part.start:at * source.batch + part.stop]


def epoch_copied_bytes(feed, network, model, examples):
    """Return how many bytes are copied to the device while each example is trained on once: computed, not measured.

    For resident, the one copy of the data set is not counted, but the order of each epoch is. A CPU needs no copy.
    """
    if network.device == "cpu":
        return 0
    labels = network.label_bytes * int(np.prod(model.labels, dtype=np.int64))
    whole = 4 * int(np.prod(model.shape, dtype=np.int64)) + labels
    return examples * {"ahead": whole, "plain": whole, "resident": 8}.get(feed, 0)


def stages(workload, dataset, source, batch, seed):
    """Return [(name, function)] of a workload's pipeline: each function runs the pipeline up to and including its
    stage.

    A function is called with each step's number once and in order, and returns something as long as the batch.
    """
    if hasattr(workload, "stages"):
        return workload.stages(dataset, batch, seed)
    read = "read", lambda step: source(step)[1]
    if not isinstance(source, Shuffled):
        return [read]
    gather = Shuffled(dataset, batch, seed, lambda examples: examples)
    return [("gather", lambda step: gather(step)[1]), ("scale" if is_scaled(source) else "prepare", read[1])]


def rates(named, check, seconds=0.5, now=clock):
    """Return what the event "stages" reports: each stage on one thread for `seconds`, after one warm-up call."""
    found, step = [], 0
    for name, make in named:
        make(step)
        step, examples, began = step + 1, 0, now()
        while not examples or now() - began < seconds:
            examples += len(make(step))
            step += 1
            check()
        found.append({"name": name, "examples_per_second": examples / max(now() - began, 1e-9)})
    return found
