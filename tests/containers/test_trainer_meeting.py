"""Several machines meet at a port of the first, whoever else connects to it."""

import os
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from ipaddress import IPv6Address
from signal import SIGTERM

import pytest
from trainer_process import until

from trainer import links, meeting
from trainer.events import Stop
from trainer.group import Group
from trainer.host import text
from trainer.signals import Signals

LIMIT = 240


@pytest.fixture
def port(monkeypatch):
    """The port of node 0."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "=lo")
    monkeypatch.setattr(meeting, "PATIENCE_SECONDS", 30.0)  # a failed one leaves the other waiting
    monkeypatch.setattr(meeting, "ANSWER_SECONDS", 60.0)  # a busy machine is slow, not silent
    with closing(meeting.Ports(1)) as held:
        monkeypatch.setenv("MASTER_PORT", str(*held.numbers))
        yield held.numbers[0]


def meet(nodes, node, ports, signals, alike=(), say=print):
    with closing(links.Links(node)) as kept:
        return meeting.meet(nodes, node, ports, signals, alike, kept, say)


@pytest.mark.parametrize("word", [b"", b"GET / HTTP/1.1\r\n", b"[" * 20000 + b"\n", b"x" * 50000])
def test_who_knocks_and_goes_does_not_keep_the_machines_apart(port, monkeypatch, word):
    monkeypatch.setattr(links, "LONGEST", 30000)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(meet, 2, 0, [10], Signals())
        until(lambda: knocked(port, word), "node 0 listens")
        second = threads.submit(meet, 2, 1, [11], Signals())
        assert first.result(LIMIT) == second.result(LIMIT) == ["127.0.0.1:10", "127.0.0.1:11"]


def addresses(start):
    return [line.split() for line in (text("/proc/net/if_inet6") or "").splitlines() if line.startswith(start)]


def there(start):
    """Return addresses that begin so. Where IPv6 is off there is not even ::1: then skip, which CI counts as failed."""
    return addresses(start) or pytest.skip("this machine has no ::1")


# A machine without IPv6 on its network has no link-local address; that of the loopback it has.
@pytest.mark.parametrize("start", ["0000", *(["fe80"] if addresses("fe80") else [])])
def test_machines_without_ipv4_meet_by_ipv6(port, monkeypatch, start):
    # the oldest one: bridges of containers may go
    number, *_, name = min(there(start), key=lambda line: int(line[1], 16))
    host = str(IPv6Address(bytes.fromhex(number))) + (f"%{name}" if start == "fe80" else "")
    monkeypatch.setenv("MASTER_ADDR", host)
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    with ThreadPoolExecutor() as threads:
        nodes = [threads.submit(meet, 2, node, [10 + node], Signals()) for node in (0, 1)]
        assert [node.result(LIMIT) for node in nodes] == [[f"[{host}]:10", f"[{host}]:11"]] * 2
    assert os.environ["GLOO_SOCKET_IFNAME"] == name


@pytest.mark.parametrize(
    ("nodes", "node", "ports", "batch", "said"),
    [
        (2, 1, [11, 12], 8, "node 1 was started with replicas 2, and node 0 with replicas 1: all need the same"),
        (3, 1, [11], 9, "node 1 was started with NGCDL_NODES 3, batch 9, and node 0 with NGCDL_NODES 2, batch 8: all"),
        (2, 1, [11], None, "node 1 was started with batch None, and node 0 with batch 8: all need the same"),
        (2, 1, ["x"], 8, 'node 1 sent ports that are no numbers: ."x".'),
        (2, 2, [11], 8, "a node has the NGCDL_NODE 2, and there are 2: they count from 0"),
    ],
)
def test_nodes_that_were_not_started_alike_are_all_told_so(port, nodes, node, ports, batch, said):
    """Else each waits for replicas that nobody has started, for hours, or another batch is trained on than is told."""
    with ThreadPoolExecutor() as threads:
        both = [threads.submit(meet, 2, 0, [10], Signals(), {"batch": 8})]
        alike = {"batch": batch} if batch else {}  # as in a trainer that knows nothing of it
        both += [threads.submit(meet, nodes, node, ports, Signals(), alike)]
        for one in both:
            with pytest.raises(Stop, match=said):
                one.result(LIMIT)


@pytest.mark.tensorflow
def test_no_proxy_is_between_tensorflows_replicas_whose_addresses_are_ipv6(monkeypatch):
    from trainer.frameworks.tf2.together import announce

    kept = {}
    monkeypatch.setattr(os, "environ", kept)
    announce(Group(0, 2, workers=("[::1]:10", "10.0.0.2:11")))
    assert kept["no_grpc_proxy"] == "::1,10.0.0.2"


def test_a_connection_of_a_port_to_itself_is_not_taken_for_node_0(port, monkeypatch):
    """Linux makes one when, connecting to a local port where nobody listens, it picks that same port as the source;
    a test can't wait for that, so it binds it."""
    connect, own = socket.create_connection, []

    def connected(address, timeout):
        if own:
            return connect(address, timeout)
        with socket.socket() as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            line.bind(address)
            line.connect(address)
            own.append(line.getpeername())
            return line.dup()

    monkeypatch.setattr(socket, "create_connection", connected)
    monkeypatch.setattr(meeting, "QUIET_SECONDS", 0)
    told = []
    with ThreadPoolExecutor() as threads:
        second = threads.submit(meet, 2, 1, [11], Signals(), say=told.append)
        until(lambda: own, "the port is connected to itself")
        first = threads.submit(meet, 2, 0, [10], Signals())
        assert second.result(LIMIT) == first.result(LIMIT) == ["127.0.0.1:10", "127.0.0.1:11"]
    said = f"Waiting, at most 30 s, for node 0 at 127.0.0.1:{port}, which can't be reached, or has ended: "
    assert told == [said + "nobody listens there yet"]


@pytest.mark.parametrize(("name", "value"), [("PORT", "²"), ("ADDR", "node..0")])
def test_a_place_of_node_0_that_can_not_be_one_is_told(port, monkeypatch, name, value):
    monkeypatch.setenv(f"MASTER_{name}", value)
    with pytest.raises(Stop, match=f"MASTER_{name}"):
        meet(2, 1, [11], Signals())


def test_one_that_waits_for_the_answer_says_so_and_can_be_told_to_stop(port, monkeypatch):
    monkeypatch.setattr(meeting, "QUIET_SECONDS", 0)
    with ThreadPoolExecutor() as threads, socket.create_server(("127.0.0.1", port)) as silent:
        signals, told = Signals(), []
        second = threads.submit(meet, 2, 1, [11], signals, say=told.append)
        line, _ = silent.accept()
        with line:
            assert line.makefile().readline()
            until(lambda: told, "it says why it waits")
            signals.received = SIGTERM
            with pytest.raises(Stop, match="told to stop"):
                second.result(LIMIT)
    assert told == [f"Waiting, at most 30 s, for node 0 at 127.0.0.1:{port}, which waits for others"]


def test_who_says_nothing_does_not_keep_the_machines_apart(port, monkeypatch):
    monkeypatch.setattr(meeting, "QUIET_SECONDS", 0)
    monkeypatch.setattr(meeting, "MOST_STRANGERS", 1)
    told = []
    with ThreadPoolExecutor() as threads, socket.socket() as silent:
        first = threads.submit(meet, 2, 0, [10], Signals(), say=told.append)
        until(lambda: not silent.connect_ex(("127.0.0.1", port)), "node 0 listens")
        silent.settimeout(meeting.PATIENCE_SECONDS / 2)
        with socket.create_connection(("127.0.0.1", port)):
            assert not silent.recv(1), "of many, the last ones are kept"
        second = threads.submit(meet, 2, 1, [11], Signals())
        assert second.result(meeting.ANSWER_SECONDS / 2) == first.result(LIMIT)
    said = f"Waiting, at most 30 s, for others at MASTER_PORT {port}: of 2 nodes, these have not connected yet: 1"
    assert told == [said]


def test_of_many_missing_nodes_the_first_ones_are_named():
    assert meeting.listed(list(range(1, 300))) == "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, and 289 more"
    assert meeting.listed([3, 7]) == "3, 7"


def test_one_to_whom_a_stranger_says_nothing_can_be_told_to_stop(port):
    with ThreadPoolExecutor() as threads, socket.socket() as stranger:
        signals = Signals()
        first = threads.submit(meet, 2, 0, [10], signals)
        until(lambda: not stranger.connect_ex(("127.0.0.1", port)), "node 0 listens")
        signals.received = SIGTERM
        with pytest.raises(Stop, match="told to stop"):
            first.result(meeting.ANSWER_SECONDS / 2)


@pytest.mark.parametrize("said", [b"SSH-2.0-OpenSSH_9.6\r\n", b"[]\n", b"\xff\n", b'{"workers": [10]}\n'])
def test_that_another_program_has_node_0s_port_is_told(port, said):
    with ThreadPoolExecutor() as threads, socket.create_server(("127.0.0.1", port)) as other:
        second = threads.submit(meet, 2, 1, [11], Signals())
        line, _ = other.accept()
        with line:
            line.sendall(said)
            with pytest.raises(Stop, match="is not node 0 of a training"):
                second.result(LIMIT)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("reused", [True, False])
def test_a_held_port_is_nobody_elses_but_a_replica_may_listen_there(host, reused):
    family = socket.AF_INET6 if ":" in host and there("0000") else socket.AF_INET
    with closing(meeting.Ports(2)) as held:
        first, second = held.numbers
        assert first != second
        with socket.socket(family) as replica, socket.socket(family) as other:
            replica.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reused)
            if reused:
                replica.bind((host, first))
                replica.listen()
                assert other.connect_ex((host, first)) == 0
            else:
                with pytest.raises(OSError, match="already in use"):
                    replica.bind((host, first))
    assert [one.fileno() for one in held.sockets] == [-1, -1], "now anybody may have them"


def test_a_machine_that_dies_while_it_waits_and_comes_again_keeps_nobody_apart(port):
    with ThreadPoolExecutor() as threads:
        first = threads.submit(meet, 3, 0, [10], Signals())
        until(lambda: knocked(port, LEFT), "node 0 listens")
        others = [threads.submit(meet, 3, node, [10 + node], Signals()) for node in (1, 2)]
        found = first.result(LIMIT)
        assert [other.result(LIMIT) for other in others] == [found, found]
    assert "127.0.0.1:1" not in found, "the ports that it has now"


@pytest.mark.parametrize(
    ("chosen", "file", "wanted"),
    [
        (None, "", "=lo"),
        (None, "# NCCL_SOCKET_IFNAME=eth0\nNCCL_DEBUG=WARN\n", "=lo"),
        (None, "NCCL_SOCKET_IFNAME=eth0\n", None),
        ("ib", "", "ib"),
    ],
)
@pytest.mark.parametrize("place", ["machine", "home", "own"])
def test_nccl_goes_by_the_interface_that_reaches_node_0_unless_another_was_chosen(
    tmp_path, monkeypatch, place, chosen, file, wanted
):
    files = {"machine": tmp_path / "nccl.conf", "home": tmp_path / ".nccl.conf", "own": tmp_path / "own"}
    files[place].write_text(file)
    kept = {"HOME": str(tmp_path), **({"NCCL_SOCKET_IFNAME": chosen} if chosen else {})}
    kept |= {"NCCL_CONF_FILE": str(files["own"])} if place == "own" else {}
    monkeypatch.setattr(meeting, "NCCL_FILE", str(files["machine"]))
    monkeypatch.setattr(meeting.os, "environ", kept)
    meeting.go_by("127.0.0.1")
    assert (kept["GLOO_SOCKET_IFNAME"], kept.get("NCCL_SOCKET_IFNAME")) == ("lo", wanted)


def test_of_interfaces_that_share_a_link_local_address_the_one_that_reached_node_0_is_used(monkeypatch):
    kept = {}
    monkeypatch.setattr(meeting.os, "environ", kept)
    meeting.go_by("fe80::7%i1")
    assert (kept["GLOO_SOCKET_IFNAME"], kept["NCCL_SOCKET_IFNAME"]) == ("i1", "=i1")


LEFT = b'{"node": 1, "ports": [1], "alike": {"NGCDL_NODES": 3, "replicas": 1}}\n'


def knocked(port, word=b""):
    """Connect and drop: silently, like a port scanner, or after a word, like a node that dies."""
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if line.connect_ex(("127.0.0.1", port)):
            return False
        line.sendall(word)
        return True
