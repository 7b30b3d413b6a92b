"""Finds the largest batch whose steps fit into memory, by trying batches, each in its own child process.

The batch is doubled from the workload's default, or from the least that gives each replica something to do (or halved,
if that does not fit), then the interval is bisected until it is no more than a sixteenth of what fits. A try trains for
two steps. The result is tried once more, for as many steps as fill the prefetch queue, and reduced by a sixteenth until
it fits. No batch is larger than the data set.

If some batch did not fit, the batch to train with is an eighth below the largest that did. The memory that a batch
needs varies from training to training (cifar10 in PyTorch on a CPU with a batch of 219, six trainings of 8 steps: 561
to 588 MiB at most; with 206, 532 to 561 MiB), and a training that runs for days must not fail for lack of a little.

Under WSL 2 a full card is no error: the driver goes on in the machine's memory, until Windows itself may stop
(https://github.com/microsoft/WSL/issues/11050, https://github.com/microsoft/WSL/issues/40732). Nor is it one where the
card uses the machine's memory, as in a DGX Spark: there the whole machine may hang
(https://github.com/pytorch/pytorch/issues/174358). Each try is therefore limited to most of what is free for its card;
the framework refuses to allocate more.

A try ran out of memory if it reports that (as an error of the framework or of Python), if the kernel killed it, or if
it was killed here before the kernel had to choose a victim (short.py). Once a batch has fitted, a try also counts as
out of memory if a GPU's libraries find no way to compute it. Every other failure ends the search.
"""
from __future__ import absolute_import, division, print_function

import os

from . import driver, host, nvml, room
from .ahead import DEPTH
from .events import Stop
from .short import Short

STEPS, SURE_STEPS = 2, DEPTH + 4
PART = 16  # the search ends when the interval is a sixteenth of what fits
FREE = 8   # an eighth of what fits is left free
WSL = "/dev/dxg"
SHARE = 0.85  # of the card's free memory, because CUDA itself takes some beside the framework
TEXTS = ("out of memory", "OOM when allocating", "ResourceExhausted", "Resource exhausted", "RESOURCE_EXHAUSTED",
         "CUDA_ERROR_OUT_OF_MEMORY", "_STATUS_ALLOC_FAILED", "_ALLOCATION_FAILED", "DefaultCPUAllocator",
         "annot allocate memory", "bad_alloc", "Unable to allocate", "MemoryError",
         # a copy to the card found no room: https://github.com/tensorflow/tensorflow/issues/7025
         "Dst tensor is not initialized")
# What is said when cuDNN or cuBLAS find no workspace memory, but also when they can't compute at all:
# https://github.com/pytorch/pytorch/issues/108645, https://stackoverflow.com/questions/61467751,
# https://github.com/tensorflow/tensorflow/issues/45068
UNSURE_TEXTS = ("unable to find an engine to execute this computation",
                "Unable to find a valid cuDNN algorithm to run convolution", "_STATUS_NOT_INITIALIZED",
                "No algorithm worked", "CUDNN_STATUS_INTERNAL_ERROR", "CUDNN_STATUS_EXECUTION_FAILED")


def limits(asked):
    """Return the arguments that limit a try's memory; [] where no limit is needed, or free memory is unknown."""
    if asked.gpu_memory_fraction or asked.device == "cpu":
        return []
    free = total = None
    if driver.is_integrated(0):
        free, total = host.memory().get("MemAvailable"), driver.total_bytes(0)
    elif os.path.exists(WSL):
        cards = nvml.read()
        free = room.on_cards(cards, asked.replicas)
        total = max([card["memory_total_bytes"] or 0 for card in cards[:asked.replicas]] or [0])
    if free is None or not total:
        return []
    return ["--gpu-memory-fraction", "%.4f" % max(SHARE * free / total, 0.01)]


def is_out_of_memory(text):
    return any(sign in text for sign in TEXTS)


def largest(start, least, tries, events, voice):
    """Return the largest batch that fits with some memory left free. Raise Stop("out_of_memory") if none does. Each try
    is printed and, once a batch did not fit, reported as an event "oom"."""
    good, bad, refused, batch = None, None, None, max(start, least)
    while batch is not None:
        is_good = tries.fits(batch, STEPS)
        good, bad = (min(batch, tries.most or batch), bad) if is_good else (good, batch)
        refused = batch if is_good is False else refused
        say(batch, is_good, good, refused, events, voice)
        batch = following(least, tries.most, good, bad)
    while good is not None and not sure(good, tries, voice):
        refused, good = good, good - max(good // PART, 1)
        good = good if good >= least else None
        say(refused, False, good, refused, events, voice)
    if good is None:
        raise Stop("out_of_memory", "not even a batch of %d fits into memory" % least)
    taken = good if refused is None else max(good - good // FREE, least)
    voice.say("The largest batch that fits is %d%s" % (
        good, "; with %d an eighth is left free" % taken if taken < good else ""))
    return taken


def sure(batch, tries, voice):
    voice.say("A batch of %d is tried once more, for %d steps" % (batch, SURE_STEPS))
    return tries.fits(batch, SURE_STEPS)


def say(batch, is_good, good, refused, events, voice):
    voice.say("A batch of %d %s" % (
        batch, {True: "fits", False: "does not fit", None: "is more than the data set has"}[is_good]))
    if refused is not None:
        events.write("oom", batch=refused, fits=good)


def following(least, most, good, bad):
    """Return the batch to try next; None if the search is over. most: the largest allowed, None without a limit; good:
    the largest that fits, bad: the smallest that does not, each None as long as it is unknown."""
    if good is None:
        return max(bad // 2, least) if bad > least else None
    if bad is None:
        return 2 * good if most is None else min(2 * good, most) if good < most else None
    return good + (bad - good) // 2 if bad - good > max(good // PART, 1) else None


class Tries(Short):
    """Trainings of a few steps, each with another batch.

    most: how many examples the data set has; None until a try has reported it, or if batches may be larger.
    """

    most, fitted = None, None

    def __init__(self, argv, folder, signals, is_limited=True, command=None):
        Short.__init__(self, argv, folder, signals, command)
        self.is_limited = is_limited

    def fits(self, batch, steps):
        """Return True, False, or None if the data set has no such batch. Raise Stop if it fails for other reasons."""
        return self.judged(batch, self.train(["--batch", batch, "--steps", steps]))

    def judged(self, batch, outcome):
        counts = [event.get("dataset_images") for event in outcome.events if event.get("event") == "start"]
        self.most = counts[-1] if counts and self.is_limited else self.most
        if outcome.code == 0:
            self.fitted = max(batch, self.fitted or 0)
            return True
        kind, message = why(outcome)
        killed = outcome.code in (None, -9, 137) or "killed by signal 9" in message  # the try, or one of its replicas
        if killed or kind == "out_of_memory" or is_out_of_memory(message):
            return False
        if self.fitted and any(sign in message for sign in UNSURE_TEXTS):
            return False
        if kind == "bad_argument" and self.fitted:
            return None
        known = "; a batch of %d fits" % self.fitted if self.fitted else ""
        raise Stop(kind, "with a batch of %d: %s%s" % (
            batch, message or "exit code %s, without a message" % outcome.code, known))


def why(outcome):
    """Return the kind of error that ended a short training, and its message."""
    errors = [event for event in outcome.events if event.get("event") == "error"]
    return (errors[-1]["kind"], errors[-1]["message"]) if errors else ("crash", outcome.said)
