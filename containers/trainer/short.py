"""A short training in its own child process and in a temporary folder: the building block of every trial.

It trains with its parent's arguments, except for the length, the folder and what is tried. If memory runs out, the
kernel kills the child first (oom_score_adj), and the parent, which has loaded no framework, survives; except where the
kernel kills a container as a whole for one process (Kubernetes with memory.oom.group). If less than a thirty-second of
the machine's memory is left, the child is killed here, before the kernel has to choose a victim.
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

from . import host
from .events import clock, stopped_by

RESERVE = 1 / 32  # the share of the machine's memory that no child may take
POLL_SECONDS = 0.1
PRESSED, LATE = "it took memory that others need", "it took too long"  # why a child was killed here
# arguments that a child does not get: the length, the folders, and what becomes of the result
OWN = ("--batch", "--steps", "--epochs", "--seconds", "--out", "--runs", "--resume", "--checkpoint-seconds",
       "--log-frequency", "--trace", "--choices", "--trial-seconds")
OWN_FLAGS = "--record", "--no-eval", "--autotune"
EXPENDABLE = ["sh", "-c", 'echo 1000 2>/dev/null >/proc/self/oom_score_adj; exec "$@"', "sh"]

# How a child ended: its exit code (None if it was killed here, for the reason in `ended`: PRESSED or LATE), its events,
# and the end of its output.
Outcome = collections.namedtuple("Outcome", "code ended events said")


def again(argv):
    """Return a training's arguments without those that a child does not get."""
    own = argparse.ArgumentParser(add_help=False)
    for name in OWN:
        own.add_argument(name)
    for name in OWN_FLAGS:
        own.add_argument(name, action="store_true")
    return own.parse_known_args(argv)[1]


class Short(object):
    """Short trainings with the arguments of argv, one after the other."""

    def __init__(self, argv, folder, signals, command=None):
        self.argv, self.folder, self.signals = again(argv), folder, signals
        self.command, self.is_pressed = command or [sys.executable, "-m", "trainer"], pressed

    def train(self, words, variables=(), seconds=None):
        """Train with these arguments too, for at most this many seconds, and return the Outcome. A signal to this
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
        """Return (exit code, None); if the child was killed here, (None, the reason)."""
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
    """Return this process's environment plus these variables, for a child that must find the trainer."""
    above = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = os.pathsep.join([above] + [one for one in [os.environ.get("PYTHONPATH")] if one])
    return dict(os.environ, PYTHONPATH=path, **variables)


def lines(path):
    if os.path.exists(path):
        with open(path) as file:
            for line in file:
                try:
                    yield json.loads(line)
                except ValueError:  # torn: the child was killed mid-line
                    return


def pressed():
    """Return whether hardly any of the machine's memory is left; False if nothing reports how much there is."""
    known = host.memory()
    # kernels before 3.14 have no MemAvailable
    return "MemAvailable" in known and known["MemAvailable"] < RESERVE * known["MemTotal"]
