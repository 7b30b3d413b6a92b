"""The process that starts a machine's replicas: it holds record, lock and signals, and nothing of a framework.

A replica is `python -m trainer` with NGCDL_REPLICA in its environment. Its stdin is a pipe that nobody writes to: when
it ends, all are done or this process is gone, and so is the replica at once. On stdout it says its lines, which those
of replica 0 alone become the training's, and, after MARK, why it stops, or {} when it is done. One that dies ends all.

Of several machines each has one such process: NGCDL_NODES, NGCDL_NODE (from 0), MASTER_ADDR and MASTER_PORT in the
environment say how they find each other (meeting.py). Only node 0's writes events, and only there are lines.
"""
from __future__ import absolute_import, division, print_function

import json
import os
import subprocess
import sys
import threading
import time

from . import short
from .events import Events, Stop, clock
from .group import VARIABLE, Lost
from .meeting import meet
from .signals import Signals

MARK = "\x1e"
GRACE_SECONDS = 10.0  # that the others have to end by themselves when one has
POLL_SECONDS = 0.05


def check(asked, workload):
    """Refuse what can't be done by several replicas."""
    for refused, why in (
            (not getattr(workload, "TRAINS", True), "%s trains nothing" % asked.workload),
            (not getattr(workload, "REPLICAS", True), "%s trains on one GPU alone" % asked.workload),
            (asked.feed == "input", "--feed input trains nothing"),
            (asked.teacher not in (None, "none"), "a teacher answers for one replica alone: say --teacher none"),
            (asked.largest and asked.nodes > 1, "--batch largest is looked for on one machine")):
        if refused:
            raise Stop("bad_argument", "%s: leave --replicas, or the other machines, away" % why)
    least = least_batch(asked, workload)
    if asked.batch < least:
        raise Stop("bad_argument", "a batch of %d is too small for %d replicas: say --batch %d or more" % (
            asked.batch, asked.replicas * asked.nodes, least))


def least_batch(asked, workload):
    """Give the smallest batch that all have something to do with."""
    return asked.replicas * asked.nodes * getattr(workload, "LEAST_BATCH", 1)


def lead(asked, events, voice, signals):
    """Start this machine's replicas and see them through. Why they stopped, if they did, is raised as a Stop."""
    workers = meet(asked.nodes, asked.node, asked.replicas, signals)
    signals.check(None)
    started = []
    try:
        for local in range(asked.replicas):
            started.append(Replica(asked, local, workers, voice))
        watch(started, signals)
    finally:
        for replica in started:
            replica.end()
    reasons = sorted((replica.reason() for replica in started if replica.has_failed()), key=lambda found: found[:2])
    if reasons:
        if not any(replica.told or replica.broken for replica in started):
            signals.check(None)  # it came before they could hear it, and was their end
        raise reasons[0][-1]


def watch(started, signals):
    """Wait until all have ended; a signal is passed on, and when one has failed the others have a while."""
    passed, until = None, None
    while any(replica.is_running() for replica in started):
        if signals.received and not passed:
            passed = signals.received
            for replica in started:
                replica.signal(passed)
        if until is None and any(replica.has_failed() for replica in started):
            until = clock() + GRACE_SECONDS
        if until is not None and clock() > until:
            return
        if all(replica.is_done or not replica.is_running() for replica in started):
            for replica in started:
                replica.dismiss()
        time.sleep(POLL_SECONDS)


class Replica(object):
    """A child of this process, and the thread that listens to it."""

    def __init__(self, asked, local, workers, voice):
        group = {"rank": asked.node * asked.replicas + local, "size": asked.nodes * asked.replicas, "local": local,
                 "here": asked.replicas, "nodes": asked.nodes, "workers": workers}
        self.rank, self.voice = group["rank"], voice
        self.told, self.broken, self.ended, self.is_killed = None, None, None, False
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trainer", asked.workload], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            close_fds=True, universal_newlines=True,
            env=short.environment(**{VARIABLE: json.dumps({"group": group, "asked": vars(asked)})}))
        self.listener = threading.Thread(target=self.listen)
        self.listener.daemon = True
        self.listener.start()

    def listen(self):
        for line in iter(self.process.stdout.readline, ""):
            _, mark, told = line.partition(MARK)  # a library may have begun a line of its own and not ended it
            if mark:
                self.told = json.loads(told)
            elif self.rank == 0 and self.broken is None:
                try:
                    self.voice.say(line.rstrip("\n"))
                except Stop as stop:  # the log's disk is full
                    self.broken = stop
                    self.process.kill()
        self.process.stdout.close()

    @property
    def is_done(self):
        return self.told == {}

    def is_running(self):
        if self.process.poll() is not None and self.ended is None:
            self.ended = clock()
        return self.ended is None

    def has_failed(self):
        return not self.is_running() and not self.is_killed and self.process.returncode != 0

    def signal(self, number):
        if self.is_running():
            self.process.send_signal(number)

    def dismiss(self):
        """Let it end, when it has said that it is done. Harmless twice."""
        self.process.stdin.close()

    def end(self):
        """Kill it if it runs, and wait for its last words. Harmless twice."""
        if self.is_running():
            self.is_killed = True
            self.process.kill()
        self.process.wait()
        self.listener.join(GRACE_SECONDS)
        self.process.stdin.close()

    def reason(self):
        """Give (is it another's end, when, the Stop): the smallest is the one to tell."""
        if self.broken:
            return False, self.ended, self.broken
        if self.told:
            stop = Stop(self.told["kind"], self.told["message"], self.told["step"], self.told["exit_code"])
            return self.told["lost"], self.ended, stop
        code = self.process.returncode
        how = "was killed by signal %d" % -code if code < 0 else "ended with exit code %d" % code
        return False, self.ended, Stop("crash", "replica %d %s, without a word" % (self.rank, how))


# -- in the replica ---------------------------------------------------------------------------------------------------


class Patient(Signals):
    """A second signal does not end a replica: a terminal, or Slurm, sends the first one to all processes, and the
    parent passes it on."""

    def receive(self, number, frame):
        self.received = self.received or number


class Telling(object):
    """The events of a replica: those of replica 0 are the training's; an error is told to the parent, which writes one
    for all."""

    def __init__(self, rank, folder):
        self.events = Events(folder) if rank == 0 else None

    def write(self, event, **fields):
        if self.events and event != "error":
            self.events.write(event, **fields)

    def tell(self, stop):
        """Tell why it stops, and give the exit code."""
        said = {"kind": stop.kind, "message": stop.message, "step": stop.step, "exit_code": stop.exit_code,
                "lost": isinstance(stop, Lost)}
        sys.stdout.write("%s%s\n" % (MARK, json.dumps(said)))
        sys.stdout.flush()
        return stop.exit_code


class Unheard(object):
    """The events of a parent that is not node 0's."""

    def write(self, event, **fields):
        pass


class Leash(object):
    """stdin, whose other end the parent holds: when it is gone, however it went, this process ends at once."""

    def __init__(self):
        self.code = 1
        self.thread = threading.Thread(target=self.follow)
        self.thread.daemon = True
        self.thread.start()

    def follow(self):
        while os.read(0, 1):
            pass
        os._exit(self.code)

    def stay(self):
        """Say that this replica is done, and stay until all of this machine are: what it said last to the others may
        still be on its way (threads of TensorFlow send it), and would be lost with it. Does not return."""
        self.code = 0
        sys.stdout.write("%s{}\n" % MARK)
        sys.stdout.flush()
        self.thread.join()
