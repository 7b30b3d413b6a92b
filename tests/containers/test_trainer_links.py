"""Nodes that have met learn of each other's end, and why, while their replicas may wait for each other in vain."""

import argparse
import fcntl
import itertools
import re
import resource
import socket
from contextlib import ExitStack, closing

import pytest
from test_trainer_replicas_end import replica
from trainer_process import until

from trainer import replicas
from trainer.arguments import arguments
from trainer.events import Stop, Voice
from trainer.links import Link, Links
from trainer.signals import Signals


@pytest.fixture
def three():
    """The Links of three nodes."""
    with ExitStack() as opened:
        nodes = [opened.enter_context(closing(Links(node))) for node in range(3)]
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        for node in (1, 2):
            nodes[node].add(Link(socket.create_connection(listener.getsockname()), 0))
            nodes[0].add(Link(listener.accept()[0], node))
        yield nodes


def test_that_a_node_has_another_framework_is_the_same_news_to_all(three):
    for links, name in zip(three, ("tf2", "tf2", "pytorch"), strict=True):
        links.choose(None)
        links.choose(name)
    until(three[0].listen, "the two frameworks are known")
    three[0].end(three[0].why)
    until(three[1].listen, "node 1 has heard of node 2")
    assert three[1].why.kind == "bad_argument"
    assert three[1].why.message == "node 2 has the framework pytorch, and node 0 tf2: all need the same, by --framework"


def test_one_that_is_done_is_no_bad_news_and_one_that_is_gone_or_says_why_is(three):
    three[1].end()
    three[1].close()
    until(lambda: three[0].listen() or len(three[0].open) == 1, "node 1 is done")
    assert three[0].why is None
    three[0].end(Stop("interrupted", "told to stop", 7, 143))
    three[0].close()
    until(three[2].listen, "node 0 has ended")
    assert vars(three[2].why) == vars(Stop("interrupted", "node 0: told to stop", 7, 143))


def test_one_that_was_killed_is_gone_and_beyond_the_numbers_that_select_takes_too(three):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, before[1]))  # mostly it is 1,024
    above = fcntl.fcntl(three[0].open[1].line, fcntl.F_DUPFD, 1024)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    three[0].open[1].line.close()
    three[0].open[1].line = socket.socket(fileno=above)
    three[2].close()
    until(three[0].listen, "node 2 is gone")
    assert three[0].why.message == "node 2 is gone: it was killed, or its machine was"


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n", b"\xff\n", b"[" * 20000 + b"\n", b'{"ended": {"of": 1}}\n'])
def test_one_that_says_what_no_trainer_does_is_named_with_it_to_all(three, said):
    three[2].open[0].line.sendall(b"{}\n" + said + b"{}\n")
    until(three[0].listen, "node 2 has spoken")
    assert re.match("node 2 sent what can't be read: .{,100}$", three[0].why.message)
    three[0].end(three[0].why)
    for links in three[1:]:
        until(links.listen, "node 0 has told")
        assert links.why.message == three[0].why.message


@pytest.mark.parametrize(
    ("texts", "joined", "whom"),
    [
        (["waits", "loads"], [2], "replica 1, node 1"),
        (["waits"], [1, 2], "all of 127.0.0.1:1, which have to reach each other"),
    ],
)
def test_a_replica_that_waits_for_others_says_for_whom(three, tmp_path, monkeypatch, texts, joined, whom):
    monkeypatch.setattr(replicas, "QUIET_SECONDS", 0.1)
    does = {"waits": f"from trainer.replicas import report\nreport(joins=True)\n{STAYS}", "loads": STAYS}
    started = [replica(monkeypatch, tmp_path / name, does[name]) for name in texts]
    started[-1].rank = len(started) - 1
    for node in joined:
        three[node].join()
    said = []

    def say(text):
        said.append(text)
        for one in started:
            one.end()

    replicas.watch(started, Signals(), three[0], say)
    assert said == [f"Waiting for others to join: {whom}"]
    assert not three[2].listen()
    assert three[2].open[0].joins == ("loads" not in texts), "the others hear of it"


LOSES = "from trainer import group, replicas\nexit(replicas.Telling(1, '').tell(group.Lost('')))"
STAYS = "from trainer.replicas import Leash\nLeash().thread.join()"


@pytest.mark.parametrize("text", [LOSES, STAYS])
def test_what_another_node_says_is_the_reason_of_one_that_lost_it_or_waits_for_it(three, tmp_path, monkeypatch, text):
    """The other one's own replicas may have kept it waiting."""
    looks, listen = itertools.count(1), three[0].listen

    def listening():
        if next(looks) == 15:  # after GRACE_SECONDS
            three[1].end(Stop("disk_full", "samples"))
        return listen()

    monkeypatch.setattr(three[0], "listen", listening)
    monkeypatch.setattr(replicas, "clock", itertools.count().__next__)  # a second for each look
    one = replica(monkeypatch, tmp_path / "one", text)
    monkeypatch.setattr(replicas, "Replica", lambda *_: one)
    if text == LOSES:
        one.process.wait()
    with pytest.raises(Stop, match="node 1: samples") as stop:
        replicas.conduct(argparse.Namespace(replicas=1), [], three[0], None, Signals())
    assert stop.value.kind == "disk_full"


def test_what_nobody_foresaw_is_told_to_the_others_too(three, monkeypatch):
    def unborn(*_):
        raise OSError("no memory")

    for name, stand_in in ("Links", lambda _: three[1]), ("meet", lambda *_: []), ("Replica", unborn):
        monkeypatch.setattr(replicas, name, stand_in)
    with pytest.raises(OSError, match="no memory"):
        replicas.lead(arguments(["cifar10", "--out", "unused"]), Voice(None), Signals())
    until(three[0].listen, "node 1 has failed")
    assert three[0].why.message == "node 1: OSError: no memory"
