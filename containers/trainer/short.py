"""A short training in a child of its own, in a folder that is taken away after it: what trying something is made of.

It trains as its parent will, but for how far, where to, and what is tried. The child offers itself to the kernel first
when memory ends (oom_score_adj), and the parent holds no framework, so that it lives on; where a container is ended as
a whole for one process (Kubernetes with memory.oom.group) it does not. One that leaves less than a thirty-second of the
machine's memory to all others is killed before the kernel looks for somebody.
"""
from __future__ import absolute_import, division, print_function

import argparse
import collections
import json
import os
import shutil
import subprocess
import sys
import time

from .events import clock, stopped_by

RESERVE = 1 / 32  # of the machine's memory, that no child may take
POLL_SECONDS = 0.1
PRESSED, LATE = "it took memory that others need", "it took too long"  # why a child was ended here
# what a child is not told again: how far, where to, and what is made of it
OWN = ("--batch", "--steps", "--epochs", "--seconds", "--out", "--runs", "--resume", "--checkpoint-seconds",
       "--log-frequency", "--trace", "--choices", "--trial-seconds")
OWN_FLAGS = "--record", "--no-eval", "--autotune"
EXPENDABLE = ["sh", "-c", 'echo 1000 2>/dev/null >/proc/self/oom_score_adj; exec "$@"', "sh"]

# How it ended: exit code (None where it was ended here: PRESSED or LATE in ended), its events, and what it said.
Outcome = collections.namedtuple("Outcome", "code ended events said")


def again(argv):
    """Give the words of a training without those that say how far, where to, and with which batch."""
    own = argparse.ArgumentParser(add_help=False)
    for name in OWN:
        own.add_argument(name)
    for name in OWN_FLAGS:
        own.add_argument(name, action="store_true")
    return own.parse_known_args(argv)[1]


class Short(object):
    """Trainings like the one of argv, one after the other."""

    def __init__(self, argv, folder, signals, command=None, is_pressed=None):
        self.argv, self.folder, self.signals = again(argv), folder, signals
        self.command = command or [sys.executable, "-m", "trainer"]
        self.is_pressed = is_pressed or pressed

    def train(self, words, variables=(), seconds=None):
        """Train with these words too, at most so many seconds of the clock, and give the Outcome. A signal to this
        process ends the child, and raises Stop."""
        try:
            shutil.rmtree(self.folder, ignore_errors=True)
            os.makedirs(self.folder)
            told = self.command + self.argv + [str(word) for word in words] + ["--out", self.folder, "--no-eval"]
            code, ended = self.ended(told, dict(variables), seconds)
            return Outcome(code, ended, list(lines(os.path.join(self.folder, "events.jsonl"))), self.said())
        except EnvironmentError as error:
            raise stopped_by(error, self.folder)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def ended(self, words, variables, seconds):
        """Give the child's exit code, None where it was ended here, and why it was."""
        until, why = None if seconds is None else clock() + seconds, None
        with open(os.devnull) as nothing, open(os.path.join(self.folder, "said"), "wb") as said:
            child = subprocess.Popen(EXPENDABLE + words, stdin=nothing, stdout=said, stderr=said,
                                     env=environment(**variables))
            try:
                while why is None and child.poll() is None:
                    self.signals.check(None)
                    why = PRESSED if self.is_pressed() else LATE if until is not None and clock() > until else None
                    if why is None:
                        time.sleep(POLL_SECONDS)
            finally:
                if child.poll() is None:
                    child.kill()
                    child.wait()
        self.signals.check(None)
        return (None if why else child.returncode), why

    def said(self):
        with open(os.path.join(self.folder, "said"), "rb") as file:
            return file.read().decode("utf-8", "replace").strip()[-2000:]


def environment(**variables):
    """Give this process's environment and these variables, for a child that is to find the trainer."""
    above = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = os.pathsep.join([above] + [one for one in [os.environ.get("PYTHONPATH")] if one])
    return dict(os.environ, PYTHONPATH=path, **variables)


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
