"""Finds the settings that compute fastest here: they are tried in turn, and win only by more than the trials differ.

A way is a set of settings that change the speed but not the training: {} for the default, or some of

    threads          to compute with on a CPU: as many as a control group allows, as there are cores, one less than
                     allowed, a single one for a small step
    channels_last    the memory layout of images that is not the default (PyTorch)
    onednn           False: TensorFlow 2 on a CPU without oneDNN
    feed             "resident": the same batches in the same order as with "ahead"

First each is tried alone; then the best two, or the best one and the combination of all that beat the default, take
turns with the default until each has MOST_TRIALS or the time is over. A way is chosen if its median exceeds the
default's by more than either's trials differ among themselves, and by at least LEAST_GAIN; else the default stays.
--compile is not tried: compiling takes longer than all of this.
"""
from __future__ import absolute_import, division, print_function

import collections

import numpy as np

from .events import clock
from .short import LATE

BUDGET_SECONDS = 60.0  # for all trials, if nothing else was asked for (--trial-seconds)
WINDOW_SECONDS = 2.0   # of training in each trial, from the end of its first step on
PATIENCE = 3           # a way is given up after this many times the default's duration
LEAST_TRIALS, MOST_TRIALS = 2, 4
LEAST_GAIN = 0.03      # a smaller gain is not worth choosing
HOPELESS = 0.9         # a way below this share of the default's rate is not tried again
SMALL_STEP_FLOPS = 10 ** 9
SHARE_OF_FREE = 1 / 4  # how much of the device's free memory data may take if nobody typed --feed resident

# The result of a short training: its rate (None if it failed), the seconds of a batch, its start event, why it failed.
Reading = collections.namedtuple("Reading", "rate seconds_per_batch start failed")
# Processors that may be used, how many of them at once, and the cores that they are threads of (None: unknown).
Here = collections.namedtuple("Here", "usable allowed physical")


class Tried(object):
    """A way, and how fast it was each time."""

    def __init__(self, way, rates=(), failed=None):
        self.way, self.rates, self.failed = way, list(rates), failed

    def add(self, reading):
        if reading.rate is not None:
            self.rates.append(reading.rate)
        elif not (self.rates and reading.failed == LATE):  # unless it finished in time before
            self.failed = reading.failed

    @property
    def median(self):
        return float(np.median(self.rates))

    @property
    def spread(self):
        return max(self.rates) - min(self.rates)

    def told(self):
        found = {"way": self.way, "name": worded(self.way), "trials": len(self.rates), "failed": self.failed}
        if self.rates:
            found.update(examples_per_second=self.median, least=min(self.rates), most=max(self.rates))
        return found


def winner(tried):
    """Return the way to train with; tried[0] is the default."""
    default = tried[0]
    sure = [one for one in tried if not one.failed and len(one.rates) >= LEAST_TRIALS]
    clear = [one for one in sure if default in sure and
             one.median - default.median > max(one.spread, default.spread, LEAST_GAIN * default.median)]
    return max(clear, key=lambda one: one.median) if clear else default


def finalists(tried):
    """Return what is tried again: the best two, or, if several settings beat the default, the best one and their
    combination."""
    default = tried[0].rates[0]
    good = sorted((one for one in tried[1:] if one.rates and not one.failed and one.rates[0] > HOPELESS * default),
                  key=lambda one: -one.rates[0])
    together = {}
    for one in reversed(good):  # of several values for one setting, the fastest
        together.update(one.way if one.rates[0] > default else {})
    return good[:1] + [Tried(together)] if len(together) > 1 else good[:2]


class Turns(object):
    """Decides who is tried when, until the time is over. measure(way, seconds): a Reading, within these seconds."""

    def __init__(self, measure, budget, now):
        self.measure, self.now, self.longest = measure, now, 0.0
        self.until = now() + budget

    def take(self, those, reserved=0):
        """Try each once more if there is time for it and for `reserved` others after it. Return the last Reading."""
        reading = None
        for one in those:
            began = self.now()
            rest = self.until - began
            if one.failed or len(one.rates) == MOST_TRIALS or rest < self.longest * (1 + reserved):
                continue
            reading = self.measure(one.way, min(rest, PATIENCE * self.longest or rest))
            one.add(reading)
            if reading.rate is not None:
                self.longest = max(self.longest, self.now() - began)
        return reading


def search(measure, ways, left, budget=BUDGET_SECONDS, now=clock):
    """Return everything that was tried, the default first, and why nothing could be decided, None if something was.

    ways(start): what else to try; left(reading): how long the training takes with the default, None if unknown."""
    turns, default = Turns(measure, budget, now), Tried({})
    first = turns.take([default])
    if default.failed:
        return [default], default.failed
    remaining = left(first)
    if remaining is not None and remaining <= budget:
        return [default], "the training itself takes %.0f s" % remaining
    tried = [default] + [Tried(way) for way in ways(first.start)]
    turns.take(tried[1:], reserved=2)  # for the best of them and the default once more
    best = finalists(tried)
    tried += [one for one in best if one not in tried]
    those = best[:1] + [default] + best[1:]
    for _ in range(MOST_TRIALS if best else 0):
        turns.take(those)
        those.reverse()
    sure = winner(tried) is not default or all(is_settled(one, default) for one in tried[1:])
    return tried, None if sure else "there was no time to try everything that might be faster"


def is_settled(one, default):
    """Return whether a way needs no more trials: it failed, was tried often enough, or is not faster than the
    default."""
    return bool(one.failed or len(one.rates) >= LEAST_TRIALS or (one.rates and one.median <= default.median))


def ways(asked, workload, start, here, free):
    """Return each way that differs from the default in one setting that was not typed; start: the default's event,
    free: bytes on its device, None if unknown."""
    found, is_cpu = [], start["device"] == "cpu"
    if is_cpu and asked.threads is None and not {"OMP_NUM_THREADS", "MKL_NUM_THREADS"} & set(asked.variables):
        small = workload.FLOPS * asked.batch < SMALL_STEP_FLOPS
        found += [{"threads": count} for count in thread_counts(here, small, asked.replicas)]
    if start["framework"] == "pytorch" and start["channels_last"] is not None and asked.channels_last is None:
        found.append({"channels_last": not start["channels_last"]})
    if start["framework"] == "tf2" and is_cpu and "TF_ENABLE_ONEDNN_OPTS" not in asked.variables:
        found.append({"onednn": False})
    if can_be_resident(asked, workload, start, free):
        found.append({"feed": "resident"})
    return found


def thread_counts(here, is_small, replicas=1):
    """Return the numbers of threads worth trying. The frameworks' own default is left out where it is known: all
    processors, if no two of them are threads of one core."""
    allowed = max(here.allowed // replicas, 1)
    counts = {allowed, min(here.physical or here.allowed, here.allowed) // replicas, allowed - 1, int(is_small)}
    is_known = here.physical in (None, here.usable)
    own = {max(here.usable // replicas, 1)} if is_known or replicas > 1 else set()
    return sorted((count for count in counts - own if count > 0), reverse=True)


def can_be_resident(asked, workload, start, free):
    """Return whether data that is prefetched would fit on the device by a wide margin, counted as floats."""
    images = start["dataset_images"]
    if not asked.is_feed_free or asked.teacher not in (None, "none") or not getattr(workload, "EPOCHS", True):
        return False
    if asked.data and asked.dataset == "pictures":
        return False  # decoded when needed
    return None not in (free, images) and 4 * images * int(np.prod(workload.INPUT)) < SHARE_OF_FREE * free


def worded(way):
    """Describe a way: "1 thread, fed resident"."""
    words = ["%d thread%s" % (way["threads"], "s"[way["threads"] == 1:])] if "threads" in way else []
    words += ["channels %s" % ("last" if way["channels_last"] else "first")] if "channels_last" in way else []
    words += ["without oneDNN"] if "onednn" in way else []
    words += ["fed %s" % way["feed"]] if "feed" in way else []
    return ", ".join(words) or "the default"


def is_choice(way, tries):
    """Return whether the way is valid, and `tries` has trials of it and of the default."""
    timed = [one["way"] for one in tries if one["trials"] and 0 < one["least"] <= one["examples_per_second"]]
    return is_way(way) and way in timed and {} in timed and all("name" in one and "failed" in one for one in tries)


def is_way(value):
    kinds = {"threads": lambda it: isinstance(it, int) and not isinstance(it, bool) and it > 0,
             "channels_last": lambda it: isinstance(it, bool), "onednn": lambda it: it is False,
             "feed": lambda it: it == "resident"}
    return isinstance(value, dict) and all(name in kinds and kinds[name](value[name]) for name in value)
