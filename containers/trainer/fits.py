"""Which is the largest batch whose steps fit into memory: looked for by trying, each try in a child of its own.

Doubled from the workload's own batch (or halved, where that does not fit), then the interval is halved until it is no
more than a sixteenth of what fits. A try trains for two steps; what it comes to is tried once more for as many as fill
the line of batches that lie ready, and is taken back by a sixteenth where that does not fit. No batch is larger than
the data set.

A try that memory did not suffice for is one that says so (a framework's or Python's own error), that the kernel killed,
or that left less than a thirty-second of the machine's memory to all others: it is killed then, before the kernel looks
for somebody. Every other failure ends the search. The child offers itself to the kernel first (oom_score_adj), and this
process holds no framework, so that it lives on; where a container is ended as a whole for one process (Kubernetes with
memory.oom.group) it does not.
"""
from __future__ import absolute_import, division, print_function

import argparse
import json
import os
import shutil
import subprocess
import sys
import time

from .ahead import DEPTH
from .events import Stop, stopped_by

STEPS, SURE_STEPS = 2, DEPTH + 4
PART = 16         # of what fits, is what the answer may be off by
RESERVE = 1 / 32  # of the machine's memory, that no try may take
POLL_SECONDS = 0.1
TEXTS = ("out of memory", "OOM when allocating", "ResourceExhausted", "Resource exhausted", "RESOURCE_EXHAUSTED",
         "CUDA_ERROR_OUT_OF_MEMORY", "_STATUS_ALLOC_FAILED", "DefaultCPUAllocator", "annot allocate memory",
         "bad_alloc", "Unable to allocate", "MemoryError")
# what a try is not told again: how far, where to, and what is made of it
OWN = "--batch", "--steps", "--epochs", "--seconds", "--out", "--runs", "--resume", "--checkpoint-seconds"
OWN_FLAGS = "--record", "--no-eval"
EXPENDABLE = ["sh", "-c", 'echo 1000 2>/dev/null >/proc/self/oom_score_adj; exec "$@"', "sh"]


def is_out_of_memory(text):
    return any(sign in text for sign in TEXTS)


def largest(start, least, tries, events, voice):
    """Give the largest batch that fits. None does: Stop("out_of_memory"). Each answer is said, and told as an event."""
    good, bad, refused, batch = None, None, None, start
    while batch is not None:
        is_good = tries.fits(batch, STEPS)
        good, bad = (least_of(batch, tries.most), bad) if is_good else (good, batch)
        refused = batch if is_good is False else refused
        say(batch, is_good, good, refused, events, voice)
        batch = following(least, tries.most, good, bad)
    while good is not None and not sure(good, tries, voice):
        refused, good = good, good - max(good // PART, 1)
        good = good if good >= least else None
        say(refused, False, good, refused, events, voice)
    if good is None:
        raise Stop("out_of_memory", "not even a batch of %d fits into memory" % least)
    voice.say("The largest batch that fits is %d" % good)
    return good


def sure(batch, tries, voice):
    voice.say("A batch of %d is tried once more, for %d steps" % (batch, SURE_STEPS))
    return tries.fits(batch, SURE_STEPS)


def least_of(batch, most):
    return batch if most is None else min(batch, most)


def say(batch, is_good, good, refused, events, voice):
    voice.say("A batch of %d %s" % (
        batch, {True: "fits", False: "does not fit", None: "is more than the data set has"}[is_good]))
    if refused is not None:
        events.write("oom", batch=refused, fits=good)


def following(least, most, good, bad):
    """Give the batch to try next; None: it is found, or there is none. most None: no limit; good fits and bad doesn't,
    None: not yet known."""
    if good is None:
        return max(bad // 2, least) if bad > least else None
    if bad is None:
        return 2 * good if most is None else min(2 * good, most) if good < most else None
    return good + (bad - good) // 2 if bad - good > max(good // PART, 1) else None


def again(argv):
    """Give the words of a training without those that say how far, where to, and with which batch."""
    own = argparse.ArgumentParser(add_help=False)
    for name in OWN:
        own.add_argument(name)
    for name in OWN_FLAGS:
        own.add_argument(name, action="store_true")
    return own.parse_known_args(argv)[1]


class Tries(object):
    """Trainings of a few steps in a child, in a folder that is taken away.

    most: of examples, None without a limit, or until a try has told how many the data set has.
    """

    def __init__(self, argv, folder, signals, is_limited=True, command=None, is_pressed=None):
        self.argv, self.folder, self.signals, self.is_limited = again(argv), folder, signals, is_limited
        self.most, self.fitted = None, None
        self.command = command or [sys.executable, "-m", "trainer"]
        self.is_pressed = is_pressed or pressed

    def fits(self, batch, steps):
        """Give True, False, or None where the data set has no such batch. What is no matter of memory raises Stop."""
        try:
            shutil.rmtree(self.folder, ignore_errors=True)
            os.makedirs(self.folder)
            code = self.ended(self.command + self.argv + [
                "--batch", str(batch), "--steps", str(steps), "--out", self.folder, "--no-eval"])
            return self.judged(batch, code)
        except EnvironmentError as error:
            raise stopped_by(error, self.folder)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def ended(self, words):
        """Give the child's exit code; None where it was ended for taking what others need."""
        path = os.pathsep.join([above()] + [one for one in [os.environ.get("PYTHONPATH")] if one])
        with open(os.devnull) as nothing, open(os.path.join(self.folder, "said"), "wb") as said:
            child = subprocess.Popen(EXPENDABLE + words, stdin=nothing, stdout=said, stderr=said,
                                     env=dict(os.environ, PYTHONPATH=path))
            try:
                while child.poll() is None:
                    self.signals.check(None)
                    if self.is_pressed():
                        return None
                    time.sleep(POLL_SECONDS)
            finally:
                if child.poll() is None:
                    child.kill()
                    child.wait()
        self.signals.check(None)
        return child.returncode

    def judged(self, batch, code):
        told = list(lines(os.path.join(self.folder, "events.jsonl")))
        counts = [event.get("dataset_images") for event in told if event.get("event") == "start"]
        self.most = counts[-1] if counts and self.is_limited else self.most
        if code == 0:
            self.fitted = max(batch, self.fitted or 0)
            return True
        errors = [event for event in told if event.get("event") == "error"]
        kind, message = (errors[-1]["kind"], errors[-1]["message"]) if errors else ("crash", self.said())
        if code in (None, -9, 137) or kind == "out_of_memory" or is_out_of_memory(message):
            return False
        if kind == "bad_argument" and self.fitted:
            return None
        known = "; a batch of %d fits" % self.fitted if self.fitted else ""
        raise Stop(kind, "with a batch of %d: %s%s" % (batch, message or "exit code %s, and not a word" % code, known))

    def said(self):
        with open(os.path.join(self.folder, "said"), "rb") as file:
            return file.read().decode("utf-8", "replace").strip()[-2000:]


def above():
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def lines(path):
    if os.path.exists(path):
        with open(path) as file:
            for line in file:
                try:
                    yield json.loads(line)
                except ValueError:  # torn: the child was killed in mid-line
                    return


def pressed():
    """Is hardly any of the machine's memory left? Where nobody says how much there is, no."""
    try:
        with open("/proc/meminfo") as file:
            read = dict(line.split()[:2] for line in file)
        return int(read["MemAvailable:"]) < RESERVE * int(read["MemTotal:"])
    except (EnvironmentError, KeyError, ValueError):  # a kernel before 3.14 has no MemAvailable
        return False
