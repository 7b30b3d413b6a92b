"""What the parents of several machines tell each other between the meeting and the end.

A replica learns from its framework that another one is gone, but not why; and before they have joined it waits for the
other, for hours. So the connections of the meeting stay: node 0 sends lines of JSON to all others, and they to node 0.
{"framework": name} says what a replica has loaded, {"joins": true} that all replicas of a node wait for the others, or
have joined them. {"ended": null}, the last line, says that all replicas of a node are done, {"ended": {"kind",
"message", "step", "exit_code"}} why they are not.
"""
from __future__ import absolute_import, division, print_function

import errno
import json
import select
import socket

from .events import Stop

LONGEST = 2 ** 20  # bytes of a line: when nodes meet, the address of a replica takes 30
# A machine that is lost says nothing. Ten minutes: what gloo and NCCL send survives a network that is down for some.
ALIVE = ((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
         (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 60), (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 9))


class Links(object):
    """Node 0's connections to all other parents, or another node's to node 0's. why: the first bad news, as the Stop
    that all nodes report."""

    def __init__(self, node):
        self.node, self.open, self.framework, self.joins, self.why = node, [], None, False, None

    def add(self, link):
        for option in ALIVE:
            link.line.setsockopt(*option)
        link.line.setblocking(False)
        self.open.append(link)

    def close(self):
        while self.open:
            self.open.pop().line.close()

    def choose(self, framework):
        """Tell the others which framework this node's replicas have loaded; None: none yet."""
        if framework and not self.framework:
            self.framework = framework
            tell(self.open, {"framework": framework})

    def join(self):
        """Tell the others, once, that this node's replicas are there."""
        if not self.joins:
            self.joins = True
            tell(self.open, {"joins": True})

    def end(self, stop=None):
        """Say the last word: that all replicas are done, or why they are not."""
        if stop:
            message = stop.message if stop is self.why else "node %d: %s" % (self.node, stop.message)
            stop = dict(vars(stop), message=message)
        tell(self.open, {"ended": stop})

    def listen(self):
        """Take in what has come, and return whether there is bad news."""
        for link in list(self.open):
            try:
                gone = self.take(link)
            except Unreadable as error:  # the line stays open: that node is told, too
                gone, self.why = None, self.why or Stop("crash", "node %d %s" % (link.node, error))
            if self.framework and link.framework not in (None, self.framework):
                self.why = self.why or Stop("bad_argument", "node %d has the framework %s, and node %d %s: all need "
                                            "the same, by --framework" % (
                                                link.node, link.framework, self.node, self.framework))
            if gone:
                link.line.close()
                self.open.remove(link)
                if not link.is_done:
                    self.why = self.why or Stop("crash", "node %d %s" % (link.node, gone))
        return self.why is not None

    def take(self, link):
        """Take in what a link's other side has said; return what became of that side if it says no more, else None."""
        told, gone = link.word()
        while told is not None and "ended" not in told:
            link.framework, link.joins = told.get("framework", link.framework), told.get("joins", link.joins)
            told, gone = link.word()
        if told is None:
            return gone
        ended = stopped(told["ended"])
        self.why, link.is_done = self.why or ended, not ended
        return "has ended"


class Unreadable(ValueError):
    """No trainer sends this."""

    def __init__(self, said):
        ValueError.__init__(self, "sent what can't be read: %s" % json.dumps(said)[:100])


def stopped(told):
    """Return the Stop that another node tells of, None for its good end."""
    try:
        return Stop(**told) if told else None
    except TypeError:
        raise Unreadable(told)


class Link(object):
    """A connection to another node, and the words that come by it."""

    def __init__(self, line, node=None):
        self.line, self.node, self.said, self.gone = line, node, b"", None
        self.framework, self.joins, self.is_done = None, False, False

    def word(self):
        """Return (word, None): the next word that has come, a dict by a line of JSON; (None, None) if there is none
        yet; (None, what became of the other side) if none comes any more. Raise Unreadable."""
        self.read()
        said, end, rest = self.said.partition(b"\n")
        if not end and len(said) < LONGEST:
            return None, self.gone
        try:
            told = json.loads(said.decode("ascii"))
        except (ValueError, RuntimeError):  # RuntimeError: thousands of brackets
            told = None
        if not isinstance(told, dict):
            raise Unreadable(said.decode("latin-1"))
        self.said = rest
        return told, None

    def read(self):
        try:
            while not self.gone and len(self.said) < LONGEST and ready([self.line], 0):
                more = self.line.recv(4096)
                self.said, self.gone = self.said + more, None if more else "is gone: it was killed, or its machine was"
        except EnvironmentError as error:
            self.gone = "is gone: %s" % (error.strerror or error)


def tell(links, what):
    """Send a word to other nodes. What became of one that is gone is seen when it is listened to, or connected to."""
    for link in links:
        try:
            link.line.sendall((json.dumps(what) + "\n").encode("ascii"))
        except EnvironmentError:
            continue


def ready(lines, seconds):
    """Wait until something can be read from one of them; return those. A signal may end the wait early."""
    asking = select.poll()  # select() takes no number above 1,023 of an open file
    for line in lines:
        asking.register(line, select.POLLIN)
    try:
        found = dict(asking.poll(int(seconds * 1000)))
        return [line for line in lines if line.fileno() in found]
    except select.error as error:
        if error.args[0] != errno.EINTR:  # Python 2.7 raises it for a signal that was handled
            raise
        return []
