"""A run that can't write its log, samples or record continues, saying so once."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes import FakeJob, FakeShow, ready

from ngcdl.engines.values import Chunk, Exit
from ngcdl.errors import EngineLost
from ngcdl.folder import LOG, RECORD, SAMPLES
from ngcdl.running import launch, meanwhile
from ngcdl.storing.store import Store


def test_a_log_that_can_t_be_written_is_said_once_and_the_run_goes_on(store: Store) -> None:
    prepared, folder = ready(store, FakeJob((b"a\n", b"b\n")))
    (folder / LOG).mkdir()
    show = FakeShow()
    run = launch.follow(prepared, store, show)
    assert (run.status, show.shown) == ("finished", b"a\nb\n")
    why = os.strerror(errno.EISDIR)
    assert show.said == [f"log.txt can't be written ({why}); the run goes on without it.", *run.notes]
    assert run.notes == (f"log.txt may lack its end ({why}):  docker logs c0ffee",)


class PipedJob(FakeJob):
    def hang_up(self, stream: str) -> bool:
        self.asked.append(f"hang up {stream}")
        return True


@pytest.mark.parametrize(("kind", "asked", "said"), [
    (FakeJob, ["remove"], "stdout is closed; the run goes on, log.txt has all of it. To end it:  ngcdl stop {}"),
    (PipedJob, ["hang up stdout", "remove"], "stdout is closed; so the command's is closed now, too, as without ngcdl; "
                                             "log.txt has what came until then."),
])  # fmt: skip
def test_a_stream_that_nobody_reads_any_more_is_said_once_and_closed_where_that_may_end_the_run(
    store: Store, kind: type[FakeJob], asked: list[str], said: str
) -> None:
    job = kind((b"a\n", b"b\n"))
    prepared, folder = ready(store, job)
    show = FakeShow(unread=("stdout",))
    run = launch.follow(prepared, store, show)
    assert (run.status, show.said, (folder / LOG).read_bytes()) == ("finished", [said.format(run.id)], b"a\nb\n")
    assert job.asked == asked


class Elsewhere(FakeJob):
    """A job whose output can be read only once, as that of a process of this host, or of an engine that has gone."""

    is_read = False

    def output(self) -> Iterator[Chunk]:
        if self.is_read:
            raise EngineLost("read the run's output")
        self.is_read = True
        yield from super().output()


@pytest.fixture
def unsampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the sampler: the limit on file sizes holds for the whole process, so the sampler could run into it,
    too."""
    monkeypatch.setattr(meanwhile, "sampling", lambda *_: contextlib.nullcontext(meanwhile.Unmeasured(problems=())))


def full_for_a_moment(job: FakeJob, room_bytes: int) -> Callable[[], None]:
    """Let `job` write while files can't grow beyond `room_bytes`, and then again without that limit. Return the
    function that lifts the limit."""
    least, most = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room_bytes, most))

    def make_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))

    job.chunks = (b"a\n", fill, b"bb\n", make_room, b"c\n")
    return make_room


TOO_LARGE = os.strerror(errno.EFBIG)


@pytest.mark.parametrize(
    ("size_gib", "free_mib", "written"), [(100, 1023, 6), (100, 1025, 12), (2, 103, 12), (2, 102, 6)]
)
def test_a_log_leaves_some_of_the_disk_to_others(
    store: Store, monkeypatch: pytest.MonkeyPatch, size_gib: int, free_mib: int, written: int
) -> None:
    """The disk's numbers are made up."""
    disk = types.SimpleNamespace(f_blocks=size_gib << 18, f_bavail=free_mib << 8, f_frsize=4096)
    monkeypatch.setattr(os, "fstatvfs", lambda _: disk)
    monkeypatch.setattr(meanwhile, "LOOK_BYTES", 8)
    prepared, folder = ready(store, Elsewhere((b"y\ny\n", b"y\n", b"y\ny\n", b"y\n")))
    show = FakeShow()
    run = launch.follow(prepared, store, show)
    assert (run.status, show.shown, (folder / LOG).stat().st_size) == ("finished", b"y\n" * 6, written)
    why = f"log.txt can't be written any more (only {free_mib:,} MiB are left on its disk); the run goes on without it."
    assert (why in show.said) == (written < 12)


@pytest.mark.usefixtures("unsampled")
@pytest.mark.parametrize("room_bytes", [2, 3])  # with 3 bytes the file takes a part of the chunk
def test_a_log_that_can_t_be_written_any_more_is_completed_from_the_engine_s(store: Store, room_bytes: int) -> None:
    job, show = FakeJob(), FakeShow()
    prepared, folder = ready(store, job)
    make_room = full_for_a_moment(job, room_bytes)
    try:
        run = launch.follow(prepared, store, show)
    finally:
        make_room()
    assert show.said == [f"log.txt can't be written any more ({TOO_LARGE}); the run goes on without it."]
    assert (folder / LOG).read_bytes() == b"a\nbb\nc\n"
    assert (run.status, run.notes, job.asked) == ("finished", (), ["remove"])
    assert store.load(run.id) == run


@pytest.mark.usefixtures("unsampled")
@pytest.mark.parametrize("is_early", [True, False])  # before or after the log could not be written
def test_what_a_completed_log_shows_is_diagnosed_and_said_once(store: Store, is_early: bool) -> None:
    bus = b"ERROR: Unexpected bus error encountered in worker. ... insufficient shared memory (shm).\n"
    job, show = FakeJob(exit=Exit(1, False)), FakeShow()
    prepared, _ = ready(store, job, train=False)
    make_room = full_for_a_moment(job, len(bus) + 2 if is_early else 2)
    job.chunks = (bus, *job.chunks) if is_early else (*job.chunks, bus)
    try:
        run = launch.follow(prepared, store, show)
    finally:
        make_room()
    assert run.diagnosis
    assert run.diagnosis.name == "shm-too-small"
    assert len([line for line in show.said if "--shm-size" in line]) == 1
    assert store.load(run.id) == run


@pytest.mark.usefixtures("unsampled")
@pytest.mark.parametrize(("has_containers", "where", "asked"), [
    (True, ":  docker logs c0ffee", []), (False, ".", ["remove"]),
])  # fmt: skip
def test_a_log_that_can_t_be_completed_says_so_and_its_container_is_kept(
    store: Store, has_containers: bool, where: str, asked: list[str]
) -> None:
    job, show = Elsewhere(), FakeShow()
    prepared, folder = ready(store, job, has_containers=has_containers)
    make_room = full_for_a_moment(job, 3)
    try:
        run = launch.follow(prepared, store, show)
    finally:
        make_room()
    assert (folder / LOG).read_bytes() == b"a\nb"
    assert run.notes == (f"log.txt may lack its end ({TOO_LARGE}){where}",)
    assert (run.status, job.asked, store.load(run.id)) == ("finished", asked, run)
    assert show.said[1:] == (list(run.notes) if has_containers else [])


@pytest.mark.parametrize("planted", ["link", "pipe"])
def test_a_log_that_the_run_made_another_file_of_is_not_written(store: Store, tmp_path: Path, planted: str) -> None:
    """The folder is mounted in the container, so the run can put a link there, which ngcdl would follow with the
    caller's rights."""
    precious = tmp_path / "authorized_keys"
    precious.write_text("mine\n")
    prepared, folder = ready(store, FakeJob((b"theirs\n",)))
    if planted == "link":
        (folder / LOG).symlink_to(precious)
    else:
        os.mkfifo(folder / LOG)
    show = FakeShow()
    assert launch.follow(prepared, store, show).status == "finished"
    assert ["log.txt can't be written" in line for line in show.said] == [True, False]
    assert precious.read_text() == "mine\n"


def test_samples_that_can_t_be_written_are_a_note(store: Store) -> None:
    prepared, folder = ready(store, FakeJob())
    (folder / SAMPLES).mkdir()
    with pytest.warns(UserWarning, match=f"{SAMPLES} can't be read"):
        run = launch.follow(prepared, store, FakeShow())
    assert run.status == "finished"
    assert "no samples" in run.notes[0]


def test_a_record_that_can_t_be_written_at_the_close_is_said_and_the_run_s_end_given(store: Store) -> None:
    job = FakeJob()
    prepared, folder = ready(store, job)

    def gone() -> None:
        folder.rename(folder.with_name("gone"))

    job.chunks = (gone,)
    show = FakeShow()
    run = launch.follow(prepared, store, show)
    assert (run.status, run.exit_code) == ("finished", 0)
    assert "Its record is not up to date" in show.said[-1]
    assert job.asked == [], "the engine's word on how it ended is all there is, and stays for the next command"


def test_a_record_that_can_t_be_written_meanwhile_costs_nothing_when_it_can_at_the_close(store: Store) -> None:
    job = FakeJob()
    prepared, folder = ready(store, job)
    record = folder / RECORD
    record.unlink()
    record.mkdir()
    job.chunks = (record.rmdir,)
    show = FakeShow()
    run = launch.follow(prepared, store, show)
    assert "The run goes on" in show.said[0]
    assert (store.load(run.id), job.asked) == (run, ["remove"])
