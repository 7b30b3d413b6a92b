"""The text that a container writes arrives exactly once, whatever connection breaks in between."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngcdl.engines.docker.stream import Seen, Shortened
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
