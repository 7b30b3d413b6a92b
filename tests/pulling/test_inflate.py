"""The tar in a layer, with real gzips in real files; and how far tars may run ahead of an engine."""

from __future__ import annotations

import gzip
import hashlib
import random
import threading
import zlib
from pathlib import Path

import pytest
from blob_line import Line

from ngcdl.pulling.blobs import Blob, Stopped
from ngcdl.pulling.inflate import Lead, NoGzip, lead_bytes, pieces

TAR = random.Random(2).randbytes(3_000_000) + bytes(5_000_000) + b"words and words " * 100_000
HALF = len(TAR) // 2
GZIPS = {
    "one": gzip.compress(TAR, 1),
    "several": gzip.compress(TAR[:HALF], 1) + gzip.compress(b"") + gzip.compress(TAR[HALF:], 9),
    "stored": gzip.compress(TAR, 0),
}


def blob_of(folder: Path, content: bytes, line: Line | None = None) -> Blob:
    blob = Blob(folder, f"sha256:{hashlib.sha256(content).hexdigest()}", len(content))
    blob.fill((line or Line(content)).open, sleep=lambda _: None)
    return blob


@pytest.mark.parametrize("packed", GZIPS.values(), ids=GZIPS)
def test_the_tar_comes_whole_in_pieces_that_memory_holds(tmp_path: Path, packed: bytes) -> None:
    found = list(pieces(blob_of(tmp_path, packed)))
    assert b"".join(found) == TAR
    assert 0 < max(len(piece) for piece in found) <= 1 << 20
    assert min(len(piece) for piece in found) > 0, "an empty piece would end the answer"


def test_an_empty_tar_is_no_piece_at_all(tmp_path: Path) -> None:
    assert list(pieces(blob_of(tmp_path, gzip.compress(b"")))) == []


def test_what_has_arrived_is_given_before_the_rest_has(tmp_path: Path) -> None:
    packed, gate = GZIPS["stored"], threading.Event()
    line = Line(packed)
    came = 0

    def at_piece() -> None:
        nonlocal came
        came += 1
        assert came < 20 or gate.wait(240)

    line.at_piece = at_piece
    blob = Blob(tmp_path, f"sha256:{hashlib.sha256(packed).hexdigest()}", len(packed))
    filling = threading.Thread(target=blob.fill, args=(line.open,))
    filling.start()
    tar = pieces(blob)
    begin = next(tar)
    assert not gate.is_set()
    gate.set()
    assert begin + b"".join(tar) == TAR
    filling.join()


@pytest.mark.parametrize("content", [
    b"a tar, but no gzip" * 100, GZIPS["one"][:-9], GZIPS["one"][:1000], gzip.compress(TAR)[:-8] + bytes(8),
    GZIPS["one"] + b"something else", zlib.compress(TAR),
], ids=["plain", "no-end", "cut", "checksum", "rubbish", "zlib"])  # fmt: skip
def test_what_is_no_whole_gzip_is_told(tmp_path: Path, content: bytes) -> None:
    blob = blob_of(tmp_path, content)
    with pytest.raises(NoGzip, match=blob.digest):
        list(pieces(blob))


def test_a_layer_whose_rest_will_not_come_is_given_up(tmp_path: Path) -> None:
    blob = Blob(tmp_path, f"sha256:{'0' * 64}", 100)
    blob.fail(RuntimeError("the line is dead"))
    with pytest.raises(Stopped):
        list(pieces(blob))


def test_a_damaged_half_of_another_day_is_no_layer_that_is_no_gzip(tmp_path: Path) -> None:
    packed = GZIPS["stored"]
    name = f"sha256-{hashlib.sha256(packed).hexdigest()}"
    (tmp_path / f"{name}.part").write_bytes(packed[:2_000_000] + bytes(4_000_000))
    blob = Blob(tmp_path, name.replace("-", ":"), len(packed))
    gate = threading.Event()
    line = Line(packed)
    line.at_piece = lambda: bool(gate.wait(240)) and None
    filling = threading.Thread(target=blob.fill, args=(line.open,))
    tar = pieces(blob)
    assert next(tar)
    filling.start()
    gate.set()
    with pytest.raises(Stopped):
        list(tar)
    filling.join()
    assert b"".join(pieces(blob)) == TAR, "whoever asks again gets it"


# -- how far ahead --------------------------------------------------------------------------------------------------


class Sender:
    """Sends `count` bytes of a tar, in its own thread."""

    def __init__(self, lead: Lead, digest: str, count: int) -> None:
        self.was_stopped = False
        self._lead, self._digest, self._count, self._is_through = lead, digest, count, threading.Event()
        self.turn = lead.begin(digest)
        threading.Thread(target=self._send, daemon=True).start()

    def _send(self) -> None:
        try:
            self._lead.wait(self._digest, self.turn, self._count)
        except Stopped:
            self.was_stopped = True
        self._is_through.set()

    def gets_on(self) -> bool:
        return self._is_through.wait(60)

    def is_held(self) -> bool:
        return not self._is_through.wait(0.1)


@pytest.fixture
def many_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)))


@pytest.mark.usefixtures("many_processors")
def test_what_is_not_taken_holds_up_all_but_the_lowest_under_way() -> None:
    lead = Lead("abc", limit_bytes=100)
    assert Sender(lead, "b", 150).gets_on()
    assert Sender(lead, "b", 150).gets_on(), "the lowest of those under way, however far it is"
    held = Sender(lead, "c", 1)
    assert held.is_held()
    lead.taken("b")
    assert held.gets_on()


@pytest.mark.usefixtures("many_processors")
def test_the_one_that_becomes_the_lowest_goes_on() -> None:
    lead = Lead("ab", limit_bytes=100)
    first = Sender(lead, "a", 150)
    assert first.gets_on()
    held = Sender(lead, "b", 1)
    assert held.is_held()
    lead.sent_whole("a")
    lead.end("a", first.turn)
    assert held.gets_on()
    assert (lead.size_bytes("a"), lead.size_bytes("b")) == (150, None)


def test_who_asks_again_takes_the_place_of_what_was_asked_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    lead = Lead("abc", limit_bytes=10**9)
    given_up, again = lead.begin("a"), lead.begin("a")
    held = Sender(lead, "b", 1)
    assert held.is_held()
    lead.wait("a", again, 70)
    with pytest.raises(Stopped):
        lead.wait("a", given_up, 50)
    lead.sent_whole("a")
    lead.end("a", again)
    assert held.gets_on(), "what was given up is under way no more"
    lead.end("a", given_up)
    assert lead.size_bytes("a") == 70


@pytest.mark.parametrize(("processors", "at_once"), [(1, 1), (2, 1), (4, 3)])
def test_the_engine_keeps_a_processor(monkeypatch: pytest.MonkeyPatch, processors: int, at_once: int) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(processors)))
    lead = Lead("abcd", limit_bytes=10**9)
    senders = [Sender(lead, name, 1) for name in "abcd"]
    assert all(sender.gets_on() for sender in senders[:at_once])
    assert all(sender.is_held() for sender in senders[at_once:])


@pytest.mark.usefixtures("many_processors")
def test_at_the_end_nobody_waits() -> None:
    lead = Lead("ab", limit_bytes=0)
    assert Sender(lead, "a", 1).gets_on()
    held = Sender(lead, "b", 1)
    assert held.is_held()
    lead.stop()
    assert held.gets_on()
    assert held.was_stopped


def test_the_lead_is_a_part_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {"SC_PHYS_PAGES": 1 << 20, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr("os.sysconf", pages.__getitem__)
    assert lead_bytes() == 256 << 20
    pages["SC_PHYS_PAGES"] = 1 << 30
    assert lead_bytes() == 4 << 30
