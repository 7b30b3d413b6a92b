"""The process that starts a machine's replicas: it holds record, lock and signals, and loads no framework.

A replica is `python -m trainer` with NGCDL_REPLICA in its environment. Its stdin is a pipe that nobody writes to. The
pipe closes when all replicas are done or this process is gone; the replica then exits at once. On stdout a replica
prints its lines, of which only replica 0's are passed on, and, after MARK, the framework that it has loaded, whether it
waits for the others to join it, why it stops, or {} when it is done. If one replica dies, all end.

With several machines each has one such process: NGCDL_NODES, NGCDL_NODE (from 0), MASTER_ADDR and MASTER_PORT in the
environment say how they find each other (meeting.py), and if one fails, all end (links.py). Only node 0's process
writes events and prints lines.
"""
from __future__ import absolute_import, division, print_function

import contextlib
import io
import json
import os
import subprocess
import sys
import threading
import time
import traceback

from . import short
from .events import QUIET_SECONDS, Events, Stop, clock, complain
from .group import VARIABLE, Lost
from .links import Links
from .meeting import Ports, listed, meet
from .signals import Signals, interrupted

MARK = "\x1e"
GRACE_SECONDS = 10.0  # once a replica has failed, for the others to end by themselves
POLL_SECONDS = 0.05
# What the nodes could not train together without, or not notice, or only at the first checkpoint.
ALIKE = ("workload", "framework", "device", "batch", "steps", "epochs", "seconds", "seed", "feed", "precision",
         "compile", "clip", "no_dropout", "queue_fraction")


def check(asked, workload):
    """Raise Stop for what several replicas can't do."""
    for refused, why in (
            (not getattr(workload, "TRAINS", True), "%s trains nothing" % asked.workload),
            (not getattr(workload, "REPLICAS", True), "%s trains on one GPU only" % asked.workload),
            (asked.feed == "input", "--feed input trains nothing"),
            (asked.teacher not in (None, "none"), "a teacher serves one replica only (use --teacher none)"),
            (asked.largest and asked.nodes > 1, "--batch largest searches on one machine only")):
        if refused:
            raise Stop("bad_argument", "%s; or leave out --replicas, or the other machines" % why)
    least = least_batch(asked, workload)
    if asked.batch < least and not asked.largest:
        raise Stop("bad_argument", "a batch of %d is too small for %d replicas: use --batch %d or more" % (
            asked.batch, asked.replicas * asked.nodes, least))


def least_batch(asked, workload):
    """Return the smallest batch that gives every replica something to do."""
    return asked.replicas * asked.nodes * getattr(workload, "LEAST_BATCH", 1)


def lead(asked, voice, signals):
    """Start this machine's replicas and wait for them. If they stop early, raise the reason as a Stop."""
    links = Links(asked.node)
    with contextlib.closing(Ports(asked.replicas)) as ports, contextlib.closing(links):  # until all have ended
        alike = {name: getattr(asked, name) for name in ALIKE}
        say = complain if asked.node else voice.say
        workers = meet(asked.nodes, asked.node, ports.numbers, signals, alike, links, say)
        try:
            signals.check(None)
            conduct(asked, workers, links, voice, signals, say)
            links.end()
        except Stop as stop:
            links.end(stop)
            raise
        except Exception as error:  # there is no memory for another process, for example
            links.end(Stop("crash", "%s: %s" % (type(error).__name__, error)))
            raise


def conduct(asked, workers, links, voice, signals, say=None):
    started = []
    try:
        for local in range(asked.replicas):
            started.append(Replica(asked, local, workers, voice))
        watch(started, signals, links, say)
    finally:
        for replica in started:
            replica.end()
    reasons = sorted((replica.reason(signals.received) for replica in started if replica.has_failed()),
                     key=lambda found: found[:2])
    if reasons and reasons[0][0]:  # they have lost others, which say why
        wait(links, signals)
    if links.why and not all(replica.is_done for replica in started) and (not reasons or reasons[0][0]):
        raise links.why
    if reasons:
        raise reasons[0][-1]


def wait(links, signals):
    """Wait until other nodes have said why they end. They wait for their replicas, too, and node 0 passes on only then
    what it has heard. Less long after a signal, which a kill may follow."""
    began = clock()
    while not links.listen() and links.open and clock() < began + GRACE_SECONDS * (1 if signals.received else 3):
        time.sleep(POLL_SECONDS)


def watch(started, signals, links, say=None):
    """Wait until all replicas have ended. Forward the first signal to them; once one has failed, here or on another
    node, give the others GRACE_SECONDS; none if the nodes could not begin together. say: tells for whom they wait."""
    passed, until, since = None, None, None
    while any(replica.is_running() for replica in started):
        if signals.received and not passed:
            passed = signals.received
            for replica in started:
                replica.signal(passed)
        links.choose(started[0].framework)
        if all(replica.joins is not None for replica in started):
            links.join()
        if say and any(replica.joins for replica in started):
            since = since or clock()
            if clock() > since + QUIET_SECONDS:
                say("Waiting for others to join: " + missing(started, links))
                say = None
        if until is None and (links.listen() or any(replica.has_failed() for replica in started)):
            is_late = not links.why or links.why.kind != "bad_argument"
            until = clock() + (GRACE_SECONDS if is_late else 0)
        if until is not None and clock() > until:
            return
        if all(replica.is_done or not replica.is_running() for replica in started):
            for replica in started:
                replica.dismiss()
        time.sleep(POLL_SECONDS)


def missing(started, links):
    """Return who is not there yet, as far as this node knows, or else where all have to reach each other."""
    late = ["replica %d" % replica.rank for replica in started if replica.joins is None]
    late += ["node %d" % link.node for link in links.open if not link.joins]
    return listed(late) or "all of %s, which have to reach each other" % listed(started[0].workers)


class Replica(object):
    """A child of this process, and the thread that listens to it."""

    def __init__(self, asked, local, workers, voice):
        group = {"rank": asked.node * asked.replicas + local, "size": asked.nodes * asked.replicas, "local": local,
                 "here": asked.replicas, "nodes": asked.nodes, "workers": workers}
        self.rank, self.workers, self.voice = group["rank"], workers, voice
        self.told, self.framework, self.joins, self.broken = None, None, None, None
        self.ended, self.is_killed = None, False
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trainer", asked.workload], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            close_fds=True, env=short.environment(**{VARIABLE: json.dumps({"group": group, "asked": vars(asked)})}))
        self.listener = threading.Thread(target=self.listen)
        self.listener.daemon = True
        self.listener.start()

    def listen(self):
        try:
            # a library may print what is not UTF-8
            with io.open(self.process.stdout.fileno(), encoding="utf-8", errors="replace", closefd=False) as said:
                for line in iter(said.readline, ""):
                    self.hear(line)
        except Stop as stop:  # the log's disk is full
            self.broken = stop
        except Exception as error:
            complain(traceback.format_exc())
            self.broken = Stop("crash", "%s: %s" % (type(error).__name__, error))
        self.process.stdout.close()
        if self.broken:
            self.process.kill()  # nobody hears any more that it is done, and it would wait for the others for ever

    def hear(self, line):
        _, mark, told = line.partition(MARK)  # a library may have begun a line of its own and not ended it
        told = json.loads(told) if mark else None
        if mark and "framework" in told:
            self.framework = told["framework"]
        elif mark and "joins" in told:
            self.joins = told["joins"]
        elif mark:
            self.told = told
        elif self.rank == 0:
            self.voice.say(line.rstrip("\n"))

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
        """Let the replica exit, after it has reported that it is done. Harmless twice."""
        self.process.stdin.close()

    def end(self):
        """Kill the replica if it runs, and wait for its last output. Harmless twice."""
        if self.is_running():
            self.is_killed = True
            self.process.kill()
        self.process.wait()
        self.listener.join(GRACE_SECONDS)
        self.process.stdin.close()

    def reason(self, signal=None):
        """Return (whether it only lost another replica, when it ended, the Stop). Of all replicas' reasons, the
        smallest is reported. signal: which one this process has received."""
        if self.broken:
            return False, self.ended, self.broken
        if self.told:
            told = dict(self.told)
            return told.pop("lost"), self.ended, Stop(**told)
        code = self.process.returncode
        if signal and code in (-signal, 1):  # before it could handle it; 1: Ctrl-C's, before Python 3.8
            return False, self.ended, interrupted(signal)
        how = "was killed by signal %d" % -code if code < 0 else "ended with exit code %d" % code
        return False, self.ended, Stop("crash", "replica %d %s, without a message" % (self.rank, how))


# -- in the replica ---------------------------------------------------------------------------------------------------


class Patient(Signals):
    """Signals of a replica, which a second signal does not end: a terminal, or Slurm, sends the first signal to all
    processes, and the parent sends it to the replicas again."""

    def receive(self, number, frame):
        self.received = self.received or number


def report(**fields):
    """Tell the parent."""
    sys.stdout.write("%s%s\n" % (MARK, json.dumps(fields)))
    sys.stdout.flush()


class Telling(object):
    """Events of a replica. Only replica 0 writes them; an error goes to the parent, which writes one error event for
    all."""

    def __init__(self, rank, folder):
        self.events = Events(folder) if rank == 0 else None

    def write(self, event, **fields):
        if self.events and event != "error":
            self.events.write(event, **fields)

    def tell(self, stop):
        """Tell the parent why this replica stops, and return the exit code."""
        report(lost=isinstance(stop, Lost), **vars(stop))
        return stop.exit_code


class Unheard(object):
    """Events that are dropped: those of the parents on all nodes but node 0."""

    def write(self, event, **fields):
        pass


class Leash(object):
    """Ends this process at once when its stdin closes: the parent holds the other end, which closes however the parent
    ends."""

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
        """Report that this replica is done, and wait until all replicas of this machine are. Its last message to the
        others may still be in transit (TensorFlow's threads send it), and would be lost if it ended now. Does not
        return."""
        self.code = 0
        report()
        self.thread.join()
