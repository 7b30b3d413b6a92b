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
import select
import socket
import struct
import time

from .events import Stop, clock
from .host import text

PATIENCE_SECONDS = 600.0  # each machine pulls the container image by itself
POLL_SECONDS = 0.2
ANSWER_SECONDS = 10.0
LONGEST = 2 ** 20  # bytes of a line: the address of a replica takes 30
SIOCGIFADDR = 0x8915
NCCL_FILE = "/etc/nccl.conf"


def meet(nodes, node, ports, signals, alike=(), links=None):
    """Return where the replicas of all nodes listen, "host:port" by rank; ports: those of this node's replicas, in
    order; alike: {name: value} of what must be the same on all nodes; links: Links that take over the connections."""
    alike = dict(alike, NGCDL_NODES=nodes, replicas=len(ports))
    if nodes == 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # else gloo looks up the hostname, which may not resolve
        return ["127.0.0.1:%d" % port for port in ports]
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if not address or not port.isdigit() or not 0 < int(port) < 65536:
        raise Stop("bad_argument", "NGCDL_NODES is %d: MASTER_ADDR and MASTER_PORT must say where node 0 is" % nodes)
    until = clock() + PATIENCE_SECONDS
    host, mark, zone = address.partition("%")
    if node == 0:
        workers = received(alike, host, int(port), ports, signals, until, links)
    else:
        workers = reported(alike, node, address, int(port), ports, signals, until, links)
    return [one.replace("]", mark + zone + "]") if one.lower().startswith("[fe80:") else one for one in workers]


def received(alike, address, port, ports, signals, until, links=None):
    """Wait for all the others, then answer them."""
    found, lines, nodes = {0: (address, ports)}, {}, alike["NGCDL_NODES"]
    with contextlib.closing(of_both_families()) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
        except EnvironmentError as error:
            raise Stop("crash", "can't listen on MASTER_PORT %d: %s" % (port, error.strerror))
        listener.listen(nodes)
        listener.settimeout(POLL_SECONDS)
        try:
            while len(found) < nodes:
                signals.check(None)
                if clock() > until:
                    missing = ", ".join(str(n) for n in range(nodes) if n not in found)
                    raise Stop("crash", "of %d nodes, these have not connected within %d s: %s" % (
                        nodes, PATIENCE_SECONDS, missing))
                try:
                    line, place = listener.accept()
                except socket.timeout:
                    continue
                lines[place] = line  # under its node when that is known
                line.settimeout(ANSWER_SECONDS)
                try:
                    told = first_word(line, signals, clock() + ANSWER_SECONDS)
                    came, theirs, why = told["node"], told["ports"], unlike(told["node"], told["alike"], alike)
                except (EnvironmentError, KeyError, TypeError, AttributeError):  # a stranger, or a node that died
                    lines.pop(place).close()
                    continue
                if why:
                    tell(lines.values(), {"refused": why})
                    raise Stop("bad_argument", why)
                found[came] = unmapped(place[0].partition("%")[0]), theirs
                if came in lines:  # the node died after connecting, was started again and has connected again
                    lines[came].close()
                lines[came] = lines.pop(place)
                go_by(named(line.getsockname()))
                for gone in [n for n, waiting in lines.items() if is_closed(waiting)]:
                    lines.pop(gone).close()
                    del found[gone]
            workers = ["%s:%d" % ("[%s]" % host if ":" in host else host, port)
                       for _, (host, ports) in sorted(found.items()) for port in ports]
            tell(lines.values(), {"workers": workers})
            for came in list(lines) if links else []:
                links.add(came, lines.pop(came))
        finally:
            for line in lines.values():
                line.close()
    return workers


def unlike(node, theirs, own):
    """Return how another node was started in another way than node 0; None if it was not."""
    names = [name for name in sorted(own) if theirs.get(name) != own[name]]
    if names:
        first, second = (", ".join("%s %s" % (name, those.get(name)) for name in names) for those in (theirs, own))
        return "node %s was started with %s, and node 0 with %s: all need the same" % (node, first, second)
    if not 0 < node < own["NGCDL_NODES"]:
        return "a node has the NGCDL_NODE %s, and there are %d: they count from 0" % (node, own["NGCDL_NODES"])
    return None


def tell(lines, what):
    for line in lines:
        try:
            line.sendall((json.dumps(what) + "\n").encode("ascii"))
        except EnvironmentError:  # the node died meanwhile: the replicas will fail when they connect
            continue


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
    return bool(select.select([line], [], [], 0)[0])


def reported(alike, node, address, port, ports, signals, until, links=None):
    said = {"node": node, "ports": ports, "alike": alike}
    while True:
        signals.check(None)
        try:
            with contextlib.closing(connected(address, port)) as line:
                if line.getsockname() == line.getpeername():  # TCP can connect a port that nobody listens at to itself
                    raise EnvironmentError(errno.ECONNREFUSED, "nobody listens there yet")
                line.sendall((json.dumps(said) + "\n").encode("ascii"))
                go_by(named(line.getsockname()))
                answer = first_word(line, signals, clock() + PATIENCE_SECONDS)
                if answer is None:
                    raise Stop("crash", "what listens at %s:%d is not node 0 of a training" % (address, port))
                if links and "workers" in answer:
                    links.add(0, line.dup())
            if "refused" in answer:
                raise Stop("bad_argument", answer["refused"])
            if "workers" in answer:
                return answer["workers"]
            why = "it closed the connection"
        except EnvironmentError as error:
            why = error.strerror or str(error)
        if clock() > until:
            raise Stop("crash", "node 0 did not answer at %s:%d within %d s: %s" % (
                address, port, PATIENCE_SECONDS, why))
        time.sleep(POLL_SECONDS)


def first_word(line, signals, until):
    """Return what the other side says first, a dict by a line of JSON, and read nothing of what comes after it; {} if
    the connection ends before, None for what no trainer says."""
    said = bytearray()
    while not said.endswith(b"\n"):
        signals.check(None)
        if clock() > until:
            raise EnvironmentError(errno.ETIMEDOUT, "it waits for others")
        if len(said) == LONGEST:
            return None
        if select.select([line], [], [], POLL_SECONDS)[0]:
            more = line.recv(1)
            if not more:
                return {}
            said += more
    try:
        told = json.loads(said.decode("ascii"))
    except (ValueError, RuntimeError):  # RuntimeError: thousands of brackets
        return None
    return told if isinstance(told, dict) else None


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
