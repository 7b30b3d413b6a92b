"""The text that a container writes arrives exactly once, whatever connection breaks in between."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import docker
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngcdl.engines.docker.stream import Seen, Shortened, attached, close, send
from ngcdl.engines.values import Chunk

PIECES = st.lists(st.builds(Chunk, st.sampled_from(["stdout", "stderr"]), st.binary(max_size=400)), max_size=12)


def _of(chunks: list[Chunk], stream: str) -> bytes:
    return b"".join(chunk.data for chunk in chunks if chunk.stream == stream)


@given(PIECES, st.integers(0, 12), st.integers(0, 12))
def test_a_log_read_again_gives_what_was_not_seen(chunks: list[Chunk], first: int, second: int) -> None:
    seen = Seen()
    got = list(seen.noted(iter(chunks[:first])))
    for end in (first + second, len(chunks)):  # it breaks twice
        # The log may order and split the two streams differently.
        log = [Chunk(one, _of(chunks[:end], one)) for one in ("stderr", "stdout")]
        got += list(seen.noted(seen.beyond(iter(log))))
    for one in ("stdout", "stderr"):
        assert _of(got, one) == _of(chunks, one)


def test_a_log_that_lost_its_beginning_is_not_counted_off() -> None:
    seen = Seen()
    list(seen.noted(iter([Chunk("stdout", b"line 1\nline 2\n")])))
    with pytest.raises(Shortened):
        list(seen.beyond(iter([Chunk("stdout", b"line 2\nline 3\n")])))


def test_output_that_came_together_with_the_answer_s_header_is_not_lost_and_the_line_closes(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        server.listen()

        def answer() -> None:
            with server.accept()[0] as client:
                while not client.recv(65536).endswith(b"}"):
                    pass
                client.sendall(b"HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\n\r\n\1\0\0\0\0\0\0\5hello")
                has_answered.set()
                client.settimeout(240)
                left.append(client.recv(1))  # what comes of a connection that is closed

        has_answered, left = threading.Event(), list[bytes]()
        thread = threading.Thread(target=answer)
        thread.start()
        client = docker.APIClient(f"unix://{tmp_path}/socket", version="1.41")
        line = client.exec_start("x", socket=True)
        assert has_answered.wait(240)
        assert next(attached(line, False, lambda: True)) == Chunk("stdout", b"hello")
        close(line)
        thread.join()
        close(line)
        client.close()
    assert left == [b""], "the connection is closed though somebody still has the attachment"


def test_input_that_is_sent_before_the_output_is_read_arrives_whole() -> None:
    here, there = socket.socketpair()
    with here, there:
        here.settimeout(240)  # as the SDK's connections have; such a socket does not block
        data, got = bytes(range(256)) * 8192, bytearray()

        def receive() -> None:
            while len(got) < len(data) and (some := there.recv(4096)):
                got.extend(some)

        reader = threading.Timer(0.2, receive)  # by then nothing more fits in between
        reader.start()
        send(here, data)
        reader.join()
    assert got == data


@pytest.mark.usefixtures("hurried")
def test_output_is_given_up_only_after_two_looks_in_turn_that_find_nothing_running() -> None:
    here, there = socket.socketpair()
    looks = iter([False, True, False])

    def is_running() -> bool:
        if (found := next(looks, None)) is None:
            there.sendall(b"$ ")
            return True
        return found

    with here, there:
        assert next(attached(here.makefile("rb", buffering=0), True, is_running)).data == b"$ "
