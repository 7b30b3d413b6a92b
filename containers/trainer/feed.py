"""How a training is fed: what each --feed means, what it can be asked of, and how fast a pipeline's stages are.

    ahead     batches are made by threads before they are needed, and copied to the device
    plain     each batch is made, and copied, when it is needed
    resident  the data set is put on the device once, and batches are gathered there
    constant  one batch lies on the device and is trained on again and again: what computing alone gives
              (of both PyTorch makes each step a CUDA graph, where it can: see its graphed.py)
    input     batches are made ahead and dropped: what making them alone gives

How each framework does it stands in its feeding.py. Networks that constant and input leave are no results.
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
    "constant": "One batch is computed again and again, to see how fast the device is: the network is no "
                "result, and is neither kept nor tested.",
    "input": "Batches are made and dropped, to see how fast that is: nothing is trained.",
}

# Lie on the device: examples as they are divided there by divisor, or as they are trained on where it is None.
Held = collections.namedtuple("Held", "examples labels divisor")


def check(asked):
    """Refuse what a feed without a result can't be asked for."""
    if asked.feed in WITHOUT_RESULT and asked.resume:
        raise Stop("bad_argument", "--feed %s leaves no result: leave --resume away" % asked.feed)


def check_resident(name, source, free):
    """Refuse to put on the device what can't lie there; free: bytes of its memory, None if unknown."""
    if not isinstance(source, Shuffled) or not isinstance(source.dataset.images, np.ndarray):
        raise Stop("bad_argument", "--feed resident: each batch of %s is made on the CPU when its turn comes, and "
                                   "can't lie on the device beforehand. --feed ahead makes it in time, --feed constant "
                                   "shows what the device would do without waiting" % name)
    size = held_bytes(source)
    if free is not None and size > free / 2:
        raise Stop("bad_argument", "--feed resident: the data set takes %d MB, more than half of the %d MB that are "
                                   "free on the GPU; type --feed ahead" % (size // 10**6, free // 10**6))


def is_scaled(source):
    return source.prepared is data.scaled


def held_bytes(source):
    images, labels = source.dataset.images, source.dataset.labels
    of_a_number = images.itemsize if is_scaled(source) else 4
    return images.size * of_a_number + labels.size * 8


def held(source):
    """Give what is put on the device: bytes stay bytes where scaling is all that is done to them."""
    images, labels = source.dataset.images, source.dataset.labels
    if is_scaled(source):
        return Held(images, labels, 255.0)
    return Held(np.asarray(source.prepared(images)), labels, None)


def chosen(source, first, last, put):
    """Yield which examples make each step's batch, cut out of the epoch's order; put() brings that to the device."""
    order = None
    for step in upto(first, last):
        epoch, at = divmod(step, source.epoch_steps)
        if order is None or not at:
            order = put(source.order(epoch))
        yield order[at * source.batch:(at + 1) * source.batch][source.part(source.size(step))]


def epoch_copied_bytes(feed, network, model, examples):
    """Give how many bytes cross to the device while each example is trained on once, by arithmetic, not measured.

    Of resident what crosses once is not counted, but the order of each epoch is. Nothing crosses to a CPU.
    """
    if network.device == "cpu":
        return 0
    labels = network.label_bytes * int(np.prod(model.labels, dtype=np.int64))
    whole = 4 * int(np.prod(model.shape, dtype=np.int64)) + labels
    return examples * {"ahead": whole, "plain": whole, "resident": 8}.get(feed, 0)


def free_bytes(readings):
    """Give the free memory of the emptiest GPU, None if unknown; readings: nvml.read(), before a framework takes its
    share of it."""
    known = [card["memory_total_bytes"] - card["memory_used_bytes"] for card in readings
             if card["memory_total_bytes"] is not None and card["memory_used_bytes"] is not None]
    return max(known) if known else None


def stages(workload, dataset, source, batch, seed):
    """Give [(name, function)] of a workload's pipeline: each does what those before it do, and one thing more.

    A function takes a step's number, each once and in order, and gives something as long as the batch.
    """
    if hasattr(workload, "stages"):
        return workload.stages(dataset, batch, seed)
    read = "read", lambda step: source(step)[1]
    if not isinstance(source, Shuffled):
        return [read]
    gather = Shuffled(dataset, batch, seed, lambda examples: examples)
    return [("gather", lambda step: gather(step)[1]), ("scale" if is_scaled(source) else "prepare", read[1])]


def rates(named, check, seconds=0.5, now=clock):
    """Give what the event "stages" tells: each stage on one thread for so long, one call that warms up before it."""
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
