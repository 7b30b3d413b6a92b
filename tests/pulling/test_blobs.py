"""One blob on this disk: what is kept, what is requested, and what happens if two processes want it."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest
from blob_line import CONTENT, DIGEST, NAME, Line
from house import until

from ngcdl.errors import BlobMissing, DigestMismatch, KeyRejected, RateLimited, RegistryAnswer, RegistryUnreachable
from ngcdl.pulling.blob_folder import STALE_SECONDS, here_bytes, sweep
from ngcdl.pulling.blobs import TRIES, Blob, FolderTrouble, Stopped


@pytest.fixture
def blob(tmp_path: Path) -> Iterator[Blob]:
    one = Blob(tmp_path, DIGEST, len(CONTENT))
    yield one
    one.close()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_blob_that_came_whole_has_its_digest_for_a_name_and_is_the_user_s_alone(blob: Blob, tmp_path: Path) -> None:
    blob.fill(Line().open)
    assert (blob.is_whole, blob.read()) == (True, CONTENT)
    assert names(tmp_path) == [NAME]
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600


def test_a_cut_goes_on_from_the_last_byte_after_longer_and_longer_waits(blob: Blob) -> None:
    line, naps = Line(cuts=[100_000, 150_000, 4_000_000, 4_000_001]), list[float]()
    blob.fill(line.open, naps.append)
    assert line.starts == [0, 100_000, 150_000, 4_000_000, 4_000_001]
    assert naps == [1.0, 2.0, 1.0, 2.0]  # more than a megabyte in between resets the waits
    assert (blob.read(), blob.came_bytes) == (CONTENT, len(CONTENT))


def test_a_line_that_brings_nothing_is_given_up_and_what_came_is_kept(blob: Blob, tmp_path: Path) -> None:
    line, naps = Line(cuts=[2_000_000] * 99), list[float]()
    with pytest.raises(RegistryUnreachable, match="cut at byte 2000000"):
        blob.fill(line.open, naps.append)
    assert len(line.starts) == TRIES
    blob.close()
    assert here_bytes(tmp_path, DIGEST) == 2_000_000
    again = Line()
    with_rest = Blob(tmp_path, DIGEST, len(CONTENT))
    with_rest.fill(again.open)
    assert (again.starts, with_rest.read()) == ([2_000_000], CONTENT)
    with_rest.close()


@dataclass
class Busy:
    """A registry that refuses the first requests, and asks for `seconds` of patience."""

    seconds: float | None
    error: Callable[[float | None], Exception]
    refusals: int = 2

    def open(self, start: int) -> Line:
        self.refusals -= 1
        if self.refusals >= 0:
            raise self.error(self.seconds)
        return Line().open(start)


@pytest.mark.parametrize(("asked", "waits", "told"), [
    (45.0, [45.0, 45.0], [45.0, 45.0]), (4000.0, [300.0, 300.0], [300.0, 300.0]),
    (1.5, [1.5, 2.0], [1.5]), (None, [1.0, 2.0], []),
])  # fmt: skip
@pytest.mark.parametrize("error", [
    lambda seconds: RateLimited("nvcr.io", seconds), lambda seconds: RegistryAnswer("nvcr.io", "503.", seconds),
], ids=["429", "503"])  # fmt: skip
def test_a_registry_that_asks_for_patience_gets_it_for_minutes(
    tmp_path: Path,
    asked: float | None,
    waits: list[float],
    told: list[float],
    error: Callable[[float | None], Exception],
) -> None:
    heard, naps = list[float](), list[float]()
    blob = Blob(tmp_path, DIGEST, len(CONTENT), lambda _, seconds: heard.append(seconds))
    blob.fill(Busy(asked, error).open, naps.append)
    assert (naps, heard, blob.read()) == (waits, told, CONTENT)
    blob.close()


@pytest.mark.parametrize("error", [BlobMissing("nvcr.io", DIGEST), KeyRejected("nvcr.io")])
def test_what_no_other_try_can_mend_is_not_tried_again(blob: Blob, error: Exception) -> None:
    asked = []

    def refuse(start: int) -> Line:
        asked.append(start)
        raise error

    with pytest.raises(type(error)):
        blob.fill(refuse)
    assert asked == [0]


@pytest.mark.parametrize("start_of", [lambda _: 0, lambda start: start // 65536 * 65536], ids=["all", "aligned"])
def test_what_is_sent_once_more_is_passed_over(blob: Blob, start_of: Callable[[int], int]) -> None:
    line = Line(cuts=[3_000_000], start_of=start_of)
    blob.fill(line.open, lambda _: None)
    assert (line.starts, blob.read()) == ([0, 3_000_000], CONTENT)


def test_a_part_from_a_later_byte_on_is_refused_and_what_came_is_kept(blob: Blob, tmp_path: Path) -> None:
    line = Line(cuts=[3_000_000], start_of=lambda start: start and start + 1)
    with pytest.raises(RegistryAnswer, match="byte 3000001 on where 3000000 was requested"):
        blob.fill(line.open, lambda _: None)
    blob.close()
    assert here_bytes(tmp_path, DIGEST) == 3_000_000


def test_wrong_bytes_are_refused_and_no_file_is_left(blob: Blob, tmp_path: Path) -> None:
    wrong = Line(content=b"x" + CONTENT[1:])
    with pytest.raises(DigestMismatch, match=DIGEST):
        blob.fill(wrong.open)
    assert wrong.starts == [0]
    blob.close()
    assert names(tmp_path) == []


@pytest.mark.parametrize("half", [b"\0" * 3_000_000, b"\0" * 6_000_000], ids=["zeros", "too-long"])
def test_a_half_that_is_not_the_beginning_is_fetched_anew_once(tmp_path: Path, half: bytes) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(half)
    blob, line = Blob(tmp_path, DIGEST, len(CONTENT)), Line()
    blob.fill(line.open)
    assert (line.starts[-1], blob.read()) == (0, CONTENT)
    blob.close()


def test_what_another_one_left_since_the_file_was_opened_is_not_fetched_again(tmp_path: Path) -> None:
    blob, line = Blob(tmp_path, DIGEST, len(CONTENT)), Line()
    (tmp_path / f"{NAME}.part").write_bytes(CONTENT[:1_000_000])
    blob.fill(line.open)
    assert (line.starts, blob.read()) == ([1_000_000], CONTENT)
    blob.close()


def test_a_whole_file_that_lost_its_end_is_fetched_anew(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(CONTENT[:1000])
    blob, line = Blob(tmp_path, DIGEST, len(CONTENT)), Line()
    blob.fill(line.open)
    assert (line.starts, blob.read()) == ([0], CONTENT)
    assert names(tmp_path) == [NAME]
    blob.close()


def test_a_second_one_who_wants_the_blob_waits_and_fetches_nothing(tmp_path: Path) -> None:
    first, second = (Blob(tmp_path, DIGEST, len(CONTENT)) for _ in range(2))
    is_half, may_go_on = threading.Event(), threading.Event()

    def at_piece() -> None:
        if first.event().current_bytes >= 2_000_000 and not is_half.is_set():
            is_half.set()
            assert may_go_on.wait(240)

    worker = threading.Thread(target=first.fill, args=(Line(at_piece=at_piece).open,))
    worker.start()
    assert is_half.wait(240)
    seen: list[int] = []

    def look(_seconds: float) -> None:
        seen.append(second.event().current_bytes)
        may_go_on.set()
        worker.join(240)

    line = Line()
    second.fill(line.open, look)
    assert (line.starts, seen, second.read()) == ([], [first_bytes(2_000_000)], CONTENT)
    first.close(keep=False)
    assert names(tmp_path) == [NAME], "the second one needs it still"
    second.close(keep=False)
    assert names(tmp_path) == []


def first_bytes(at_least: int) -> int:
    """Return the number of bytes at the end of the first piece that reaches `at_least`."""
    return -(-at_least // 100_000) * 100_000


def test_what_the_first_one_had_and_removed_the_second_one_still_has(tmp_path: Path) -> None:
    first, second = (Blob(tmp_path, DIGEST, len(CONTENT)) for _ in range(2))
    first.fill(Line().open)
    first.close(keep=False)
    assert names(tmp_path) == []
    line = Line()
    second.fill(line.open)
    assert (line.starts, second.read()) == ([], CONTENT)
    second.close()


def test_a_blob_that_became_whole_under_another_name_is_found(tmp_path: Path) -> None:
    late = Blob(tmp_path, DIGEST, len(CONTENT))
    (tmp_path / f"{NAME}.part").rename(tmp_path / "elsewhere")  # as if the file was opened between a check and a rename
    (tmp_path / NAME).write_bytes(CONTENT)
    line = Line()
    late.fill(line.open)
    assert (line.starts, late.read()) == ([], CONTENT)
    late.close()


def test_when_the_first_one_fails_with_wrong_bytes_the_second_one_begins_anew(tmp_path: Path) -> None:
    first, second = (Blob(tmp_path, DIGEST, len(CONTENT)) for _ in range(2))
    with pytest.raises(DigestMismatch):
        first.fill(Line(content=b"x" * len(CONTENT)).open)
    first.close()
    line = Line()
    second.fill(line.open, lambda _: None)
    assert (line.starts, second.read()) == ([0], CONTENT)
    second.close()


def test_a_closed_blob_stops_whoever_fills_it_and_keeps_the_bytes(tmp_path: Path) -> None:
    blob = Blob(tmp_path, DIGEST, len(CONTENT))
    with pytest.raises(Stopped):
        blob.fill(Line(at_piece=lambda: blob.close() if blob.event().current_bytes >= 1_000_000 else None).open)
    assert here_bytes(tmp_path, DIGEST) == 1_100_000, "with the piece that was under way"
    with pytest.raises(Stopped):
        blob.fill(Line().open)


@pytest.mark.parametrize("end", [lambda blob: blob.fail(RegistryUnreachable("nvcr.io", "cut")), Blob.close])
def test_readers_wait_for_bytes_and_are_told_when_none_will_come(blob: Blob, end: Callable[[Blob], None]) -> None:
    told: list[int] = []
    has_all, stopped = threading.Event(), []

    def read() -> None:
        try:
            for _file, _begin, upto in blob.arriving(0):
                told.append(upto)
                if upto == 2_000_000:
                    has_all.set()
        except Stopped:
            stopped.append("reader")

    def wait() -> None:
        try:
            blob.until_whole()
        except Stopped:
            stopped.append("waiter")

    threads = [threading.Thread(target=one, daemon=True) for one in (read, wait)]
    for thread in threads:
        thread.start()
    with pytest.raises(RegistryUnreachable):
        blob.fill(Line(cuts=[2_000_000] * 99).open, lambda _: None)
    assert has_all.wait(60)
    end(blob)
    for thread in threads:
        thread.join(60)
    assert (sorted(stopped), told[-1]) == (["reader", "waiter"], 2_000_000)


def test_a_reader_that_waits_reads_the_file_that_is_filled_though_another_took_its_own_away(tmp_path: Path) -> None:
    nobodys, blob = (Blob(tmp_path, DIGEST, len(CONTENT)) for _ in range(2))
    found: list[bytes] = []

    def read() -> None:
        for file, begin, end in blob.arriving(0):
            found.append(os.pread(file, end - begin, begin))

    reader = threading.Thread(target=read)
    reader.start()
    until(lambda: is_asleep(reader))
    nobodys.close()
    assert not list(tmp_path.iterdir()), "what is empty is not kept"
    blob.fill(Line().open)
    reader.join(240)
    assert b"".join(found) == CONTENT


def is_asleep(thread: threading.Thread) -> bool:
    return Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_a_folder_that_takes_nothing_is_no_failure_of_the_registry(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FolderTrouble, match="file"):
        Blob(tmp_path / "file/blobs", DIGEST, 1)


def test_halves_that_nobody_came_back_for_are_swept_and_those_in_use_are_not(tmp_path: Path) -> None:
    for number, name in enumerate(["sha256-a.part", "sha256-b", "sha256-c.part", "pull-x"]):
        (tmp_path / name).write_bytes(b"x")
        age = 0.0 if number == 2 else STALE_SECONDS + 60
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    line = Line()
    held = Blob(tmp_path, DIGEST, len(CONTENT))

    def at_piece() -> None:
        os.utime(tmp_path / f"{NAME}.part", (1e8, 1e8))
        sweep(tmp_path)

    line.at_piece = at_piece
    held.fill(line.open)
    assert set(names(tmp_path)) == {"pull-x", "sha256-c.part", NAME}
    held.close()


def test_on_nfs_too_which_locks_only_what_is_open_for_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock = fcntl.flock

    def as_nfs(file: IO[bytes] | int, how: int) -> None:
        number = file if isinstance(file, int) else file.fileno()
        if how & fcntl.LOCK_EX and fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))  # https://man7.org/linux/man-pages/man2/flock.2.html
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", as_nfs)
    (tmp_path / "sha256-a.part").write_bytes(b"x")
    os.utime(tmp_path / "sha256-a.part", (1e8, 1e8))
    sweep(tmp_path)
    assert names(tmp_path) == []
