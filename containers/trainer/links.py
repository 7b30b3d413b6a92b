"""What the parents of several machines tell each other between the meeting and the end.

A replica learns from its framework that another one is gone, but not why; and before they have joined it waits for the
other, for hours. So the connections of the meeting stay: node 0 sends lines of JSON to all others, and they to node 0.
{"framework": name} says what a replica has loaded. {"ended": null}, the last line, says that all replicas of a node are
done, {"ended": {"kind", "message", "step", "exit_code"}} why they are not.
"""
from __future__ import absolute_import, division, print_function

import json
import select
import socket

from .events import Stop

# A machine that is lost says nothing. Ten minutes: what gloo and NCCL send survives a network that is down for some.
ALIVE = ((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
         (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 60), (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 9))


class Links(object):
    """Node 0's connections to all other parents, or another node's to node 0's. why: the first bad news, as the Stop
    that all nodes report."""

    def __init__(self, node):
        self.node, self.open, self.framework, self.why = node, [], None, None

    def add(self, node, line):
        for option in ALIVE:
            line.setsockopt(*option)
        line.setblocking(False)
        self.open.append(Link(node, line))

    def close(self):
        while self.open:
            self.open.pop().line.close()

    def tell(self, what):
        for link in self.open:
            try:
                link.line.sendall((json.dumps(what) + "\n").encode("ascii"))
            except EnvironmentError:  # listen() will say why
                continue

    def choose(self, framework):
        """Tell the others which framework this node's replicas have loaded; None: none yet."""
        if framework and not self.framework:
            self.framework = framework
            self.tell({"framework": framework})

    def end(self, stop=None):
        """Say the last word: that all replicas are done, or why they are not."""
        if stop:
            message = stop.message if stop is self.why else "node %d: %s" % (self.node, stop.message)
            stop = {"kind": stop.kind, "message": message, "step": stop.step, "exit_code": stop.exit_code}
        self.tell({"ended": stop})

    def listen(self):
        """Take in what has come, and return whether there is bad news."""
        for link in list(self.open):
            self.take(link, *link.heard())
        return self.why is not None

    def take(self, link, words, gone):
        for told in words:
            link.framework = told.get("framework", link.framework)
            if "ended" in told:
                gone = gone or "it has ended"
                self.why = self.why or (Stop(**told["ended"]) if told["ended"] else None)
                link.is_done = not told["ended"]
        if self.framework and link.framework not in (None, self.framework):
            self.why = self.why or Stop("bad_argument", "node %d has the framework %s, and node %d %s: all need the "
                                        "same, by --framework" % (
                                            link.node, link.framework, self.node, self.framework))
        if gone:
            link.line.close()
            self.open.remove(link)
            if not link.is_done:
                self.why = self.why or Stop("crash", "node %d is gone: %s" % (link.node, gone))


class Link(object):
    def __init__(self, node, line):
        self.node, self.line, self.rest, self.framework, self.is_done = node, line, b"", None, False

    def heard(self):
        """Return the words that have come, by whole lines, and why none can come any more, or None."""
        said, gone = self.rest, None
        try:
            while gone is None and select.select([self.line], [], [], 0)[0]:
                more = self.line.recv(4096)
                said, gone = said + more, None if more else "it was killed, or its machine was"
        except EnvironmentError as error:
            gone = error.strerror or str(error)
        whole, _, self.rest = said.rpartition(b"\n")
        return [json.loads(word.decode("ascii")) for word in whole.splitlines()], gone
