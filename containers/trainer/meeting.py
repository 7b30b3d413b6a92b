"""How the parents of several machines find each other: node 0 listens at MASTER_PORT and tells the others who is there.

Every other node sends a line {"node", "ports", "alike"}, one free port per replica and what all must have in common,
and gets {"workers": ["host:port", ...]}: all replicas by rank; or {"refused": why} if the nodes were not started alike:
replicas would wait for others that never come, or train on other batches than they report. The connection stays until
the end (links.py). A node's host is the address that it connected from, an IPv6 address in brackets; node 0's is
MASTER_ADDR, to which the others connected. A link-local one is told without its zone (the %eth0 of fe80::1%eth0), and
each node adds its own, because the network interface may have another name there.
"""
from __future__ import absolute_import, division, print_function

import binascii
import contextlib
import errno
import fcntl
import json
import os
import re
import socket
import struct
import time

from .events import QUIET_SECONDS, Stop, clock
from .host import text
from .links import Link, Unreadable, ready, tell

PATIENCE_SECONDS = 600.0  # each machine pulls the container image by itself
POLL_SECONDS = 0.2
ANSWER_SECONDS = 10.0
MOST_STRANGERS = 100  # a process may mostly open 1,024 files; a node that was not heard out connects again
SIOCGIFADDR = 0x8915
NCCL_FILE = "/etc/nccl.conf"
TEXT = type(b"".decode("ascii"))  # what JSON's strings become, on Python 2, too


def meet(nodes, node, ports, signals, alike, links, say):
    """Return where the replicas of all nodes listen, "host:port" by rank; ports: those of this node's replicas, in
    order; alike: {name: value} of what must be the same on all nodes; links: Links that take over the connections;
    say: tells what is waited for."""
    alike = dict(alike, NGCDL_NODES=nodes, replicas=len(ports))
    if nodes == 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # else gloo looks up the hostname, which may not resolve
        return ["127.0.0.1:%d" % port for port in ports]
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if not address or not re.match("[0-9]{1,5}$", port) or not 0 < int(port) < 65536:
        raise Stop("bad_argument", "NGCDL_NODES is %d: MASTER_ADDR and MASTER_PORT must say where node 0 is" % nodes)
    host, mark, zone = address.partition("%")
    patience = Patience(signals, say)
    if node == 0:
        workers = received(alike, host, int(port), ports, patience, links)
    else:
        workers = reported(alike, node, address, int(port), ports, patience, links)
    return [one.replace("]", mark + zone + "]") if one.lower().startswith("[fe80:") else one for one in workers]


class Patience(object):
    """Ends a wait when a signal comes, and says once what it is for."""

    def __init__(self, signals, say):
        self.signals, self.say, self.began = signals, say, clock()

    def check(self, what):
        """Raise Stop if a signal has come; return whether there is still time."""
        self.signals.check(None)
        waited = clock() - self.began
        if self.say and waited > QUIET_SECONDS:
            self.say("Waiting, at most %d s, for %s" % (PATIENCE_SECONDS, what))
            self.say = None
        return waited < PATIENCE_SECONDS


def received(alike, address, port, ports, patience, links):
    """Wait for all the others, then answer them."""
    nodes, door = alike["NGCDL_NODES"], Door(alike, port)
    try:
        while len(door.met) < nodes - 1:
            missing = listed([n for n in range(1, nodes) if n not in door.met])
            if not patience.check("others at MASTER_PORT %d: of %d nodes, these have not connected yet: %s" % (
                    port, nodes, missing)):
                raise Stop("crash", "of %d nodes, these have not connected within %d s: %s" % (
                    nodes, PATIENCE_SECONDS, missing))
            door.look()
        found = [(address, ports)] + [(guest.host, guest.ports) for _, guest in sorted(door.met.items())]
        workers = ["%s:%d" % ("[%s]" % host if ":" in host else host, port) for host, ports in found for port in ports]
        tell(door.met.values(), {"workers": workers})
        for node in list(door.met):
            links.add(door.met.pop(node))
    finally:
        door.close()
    return workers


def listed(numbers, most=10):
    rest = ["and %d more" % (len(numbers) - most)] if len(numbers) > most else []
    return ", ".join([str(number) for number in numbers[:most]] + rest)


class Door(object):
    """Where the others come to node 0. strangers: who has connected, and not yet said which node it is; met: the
    others, by node."""

    def __init__(self, alike, port):
        self.alike, self.strangers, self.met, self.listener = alike, [], {}, of_both_families()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.listener.bind(("", port))
        except EnvironmentError as error:
            self.listener.close()
            raise Stop("crash", "can't listen on MASTER_PORT %d: %s" % (port, error.strerror))
        self.listener.listen(alike["NGCDL_NODES"])
        self.listener.setblocking(False)

    def look(self):
        """Wait until something happens, but not long, and see who has come, spoken or gone."""
        there = [guest.line for guest in self.strangers + list(self.met.values())]
        if self.listener in ready([self.listener] + there, POLL_SECONDS):
            self.strangers.append(Guest(*self.listener.accept()))
        for guest in self.strangers[:-MOST_STRANGERS]:
            self.strangers.remove(guest)
            guest.line.close()
        for guest in list(self.strangers):
            told = guest.introduction()
            if told is not None:
                self.strangers.remove(guest)
                self.welcome(guest, told)
        for node in [node for node, guest in self.met.items() if is_closed(guest.line)]:
            self.met.pop(node).line.close()

    def welcome(self, guest, told):
        if not isinstance(told.get("alike"), dict):  # a stranger, or a node that died
            guest.line.close()
            return
        guest.node, guest.ports = told.get("node"), told.get("ports")
        why = unlike(guest, told["alike"], self.alike)
        if why:
            self.strangers.append(guest)
            tell([guest] + list(self.met.values()), {"refused": why})
            raise Stop("bad_argument", why)
        if guest.node in self.met:  # the node died after connecting, was started again and has connected again
            self.met[guest.node].line.close()
        self.met[guest.node] = guest
        go_by(named(guest.line.getsockname()))

    def close(self):
        self.listener.close()
        for guest in self.strangers + list(self.met.values()):
            guest.line.close()


class Guest(Link):
    """Who has connected to node 0."""

    def __init__(self, line, place):
        Link.__init__(self, line)
        line.settimeout(ANSWER_SECONDS)
        self.host, self.ports = unmapped(place[0].partition("%")[0]), None

    def introduction(self):
        """Return its first word; {} if it says what no trainer does, or nothing any more; None if it still may."""
        try:
            told, gone = self.word()
        except Unreadable:
            return {}
        return {} if gone else told


def unlike(guest, theirs, own):
    """Return how another node was started in another way than node 0; None if it was not."""
    names = [name for name in sorted(own) if theirs.get(name) != own[name]]
    if names:
        first, second = (", ".join("%s %s" % (name, those.get(name)) for name in names) for those in (theirs, own))
        return "node %s was started with %s, and node 0 with %s: all need the same" % (guest.node, first, second)
    if guest.node not in range(1, own["NGCDL_NODES"]):
        return "a node has the NGCDL_NODE %s, and there are %d: they count from 0" % (guest.node, own["NGCDL_NODES"])
    if not isinstance(guest.ports, list) or not all(isinstance(port, int) for port in guest.ports):
        return "node %d sent ports that are no numbers: %s" % (guest.node, json.dumps(guest.ports)[:100])
    return None


def of_both_families():
    """Return a socket for IPv6 and IPv4, or for IPv4 alone where the kernel has no IPv6."""
    try:
        made = socket.socket(socket.AF_INET6)
    except EnvironmentError:
        return socket.socket()
    made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    return made


def named(place):
    """Return the address in what a socket calls a place, with its zone if it has one."""
    return unmapped(socket.getnameinfo(place, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0])


def unmapped(host):
    """Return an address of IPv4 as such: to a socket of both families it is ::ffff:10.0.0.1."""
    return host[len("::ffff:"):] if host.startswith("::ffff:") and "." in host else host


def is_closed(line):
    """Return whether the other side has closed the connection: as it sends only one line, nothing but the end can be
    read."""
    return bool(ready([line], 0))


def reported(alike, node, address, port, ports, patience, links):
    """Tell node 0 that this node is there, and return its answer."""
    said, place = {"node": node, "ports": ports, "alike": alike}, "node 0 at %s:%d" % (address, port)
    while True:
        try:
            with contextlib.closing(connected(address, port)) as line:
                if line.getsockname() == line.getpeername():  # TCP can connect a port that nobody listens at to itself
                    raise EnvironmentError(errno.ECONNREFUSED, "nobody listens there yet")
                link = Link(line, 0)
                tell([link], said)
                go_by(named(line.getsockname()))
                told = answer(link, Patience(patience.signals, patience.say), place)
                if "workers" in told:
                    link.line = line.dup()
                    links.add(link)
            if "refused" in told:
                raise Stop("bad_argument", told["refused"])
            return told["workers"]
        except Unreadable:
            raise Stop("crash", "what listens at %s:%d is not node 0 of a training" % (address, port))
        except UnicodeError:
            raise Stop("bad_argument", "MASTER_ADDR is no address: %s" % address)
        except EnvironmentError as error:
            why = error.strerror or str(error)
        if not patience.check("%s, which can't be reached, or has ended: %s" % (place, why)):
            raise Stop("crash", "node 0 did not answer at %s:%d within %d s: %s" % (
                address, port, PATIENCE_SECONDS, why))
        time.sleep(POLL_SECONDS)


def answer(link, patience, place):
    """Return what node 0 answers: {"workers": [text]} or {"refused": text}."""
    told = gone = None
    while told is None:
        if gone:
            raise EnvironmentError(errno.ECONNRESET, "it closed the connection")
        if not patience.check("%s, which waits for others" % place):
            raise EnvironmentError(errno.ETIMEDOUT, "it waits for others")
        ready([link.line], POLL_SECONDS)
        told, gone = link.word()
    workers = told.get("workers")
    if "refused" not in told and not (isinstance(workers, list) and all(isinstance(one, TEXT) for one in workers)):
        raise Unreadable(told)
    return told


def connected(address, port):
    """Connect to node 0: by IPv4 if its name has both, because IPv6 may lead nowhere."""
    for found in sorted(socket.getaddrinfo(address, port, 0, socket.SOCK_STREAM), key=lambda one: one[0]):
        try:
            return socket.create_connection((named(found[4]), port), ANSWER_SECONDS)
        except EnvironmentError as error:
            failed = error
    raise failed


def go_by(address):
    """Make gloo and NCCL use the network interface that has this address, by which node 0 and this node reach each
    other.

    By default gloo uses the address that the hostname resolves to, on many machines a loopback address. NCCL uses any
    interface but loopback and docker*, such as a bridge of docker compose. The other machine may have a bridge with the
    same address, and NCCL then waits forever. The user's own setting for NCCL is kept. "=" makes NCCL match the whole
    name: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname"""
    zone = address.partition("%")[2]  # a link-local address may be that of several interfaces
    for name in [zone] if zone else having6(address) if ":" in address else having4(address):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
        if not any(line.startswith("NCCL_SOCKET_IFNAME=") for line in nccl_lines()):
            os.environ.setdefault("NCCL_SOCKET_IFNAME", "=" + name)


def having4(address):
    """Yield the names of the network interfaces that have this address of IPv4."""
    for _, name in getattr(socket, "if_nameindex", list)():
        with contextlib.closing(socket.socket()) as asking:
            try:
                found = fcntl.ioctl(asking.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode("ascii")[:15]))
            except EnvironmentError:  # it has no address
                continue
        if socket.inet_ntoa(found[20:24]) == address:
            yield name


def having6(address):
    """Yield the names of the network interfaces that have this address of IPv6."""
    wanted = binascii.hexlify(socket.inet_pton(socket.AF_INET6, address)).decode("ascii")
    for line in (text("/proc/net/if_inet6") or "").splitlines():
        if line.startswith(wanted):
            yield line.split()[-1]


def nccl_lines():
    """Return the lines of NCCL's configuration files: https://github.com/NVIDIA/nccl/blob/master/src/misc/param.cc"""
    own = os.environ.get("NCCL_CONF_FILE") or os.path.expanduser("~/.nccl.conf")
    return [line for path in (own, NCCL_FILE) for line in (text(path) or "").splitlines()]


class Ports(object):
    """Free ports of this machine, reserved until close(): a replica listens at its port only seconds later, and
    meanwhile the kernel might give the port to another process, or to a connection.

    A reserved port is bound but not listened at, so that a replica may bind it too: Linux allows this if both sockets
    set SO_REUSEADDR, as gRPC's and PyTorch's do (https://man7.org/linux/man-pages/man7/socket.7.html)."""

    def __init__(self, count):
        self.sockets = [of_both_families() for _ in range(count)]
        for one in self.sockets:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("", 0))
        self.numbers = [one.getsockname()[1] for one in self.sockets]

    def close(self):
        for one in self.sockets:
            one.close()
