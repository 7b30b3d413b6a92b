"""Several machines meet at a port of the first one, whoever else knocks there."""

import socket
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import until

from trainer import meeting
from trainer.signals import Signals

LIMIT = 120


@pytest.fixture
def port(monkeypatch):
    """Where node 0 is met."""
    (free,) = meeting.free_ports(1)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free))
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    return free


def test_who_knocks_and_goes_does_not_keep_the_machines_apart(port):
    with ThreadPoolExecutor() as threads:
        first = threads.submit(meeting.meet, 2, 0, 1, Signals())
        until(lambda: knocked(port), "node 0 listens")
        second = threads.submit(meeting.meet, 2, 1, 1, Signals())
        assert first.result(LIMIT) == second.result(LIMIT)


def test_a_machine_that_dies_while_it_waits_and_comes_again_keeps_nobody_apart(port):
    with ThreadPoolExecutor() as threads:
        first = threads.submit(meeting.meet, 3, 0, 1, Signals())
        until(lambda: knocked(port, b'{"node": 1, "ports": [1]}\n'), "node 0 listens")
        others = [threads.submit(meeting.meet, 3, node, 1, Signals()) for node in (1, 2)]
        found = first.result(LIMIT)
        assert [other.result(LIMIT) for other in others] == [found, found]
    assert "127.0.0.1:1" not in found, "the ports that it has now"


def knocked(port, word=b""):
    """Connect and go: without a word as one who looks for open ports does, or with one as who dies."""
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if line.connect_ex(("127.0.0.1", port)):
            return False
        line.sendall(word)
        return True
