"""A run that can't write its log, samples or record continues, saying so once."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest
from fakes import FakeJob, FakeShow, ready
from followed import shelf as shelf

from ngcdl import launch
from ngcdl.folder import LOG, RECORD, SAMPLES
from ngcdl.store import Store


def test_a_log_that_can_t_be_written_is_said_once_and_the_run_goes_on(shelf: Store) -> None:
    prepared, folder = ready(shelf, FakeJob((b"a\n", b"b\n")))
    (folder / LOG).mkdir()
    show = FakeShow()
    run = launch.follow(prepared, shelf, show)
    assert (run.status, show.shown) == ("finished", b"a\nb\n")
    assert [line for line in show.said if "log.txt can't be written" in line] == show.said


def test_a_log_that_can_t_be_written_any_more_is_said_once(shelf: Store) -> None:
    least, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    job = FakeJob()
    prepared, _ = ready(shelf, job)

    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2, most))

    def make_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))

    job.chunks = (b"a\n", fill, b"b\n", b"c\n", make_room)
    show = FakeShow()
    try:
        assert launch.follow(prepared, shelf, show).status == "finished"
    finally:
        make_room()
    assert show.said == [f"log.txt can't be written any more ({os.strerror(errno.EFBIG)}); the run goes on without it."]


@pytest.mark.parametrize("planted", ["link", "pipe"])
def test_a_log_that_the_run_made_another_file_of_is_not_written(shelf: Store, tmp_path: Path, planted: str) -> None:
    """The folder is mounted in the container: a link there would be followed with the caller's rights."""
    precious = tmp_path / "authorized_keys"
    precious.write_text("mine\n")
    prepared, folder = ready(shelf, FakeJob((b"theirs\n",)))
    if planted == "link":
        (folder / LOG).symlink_to(precious)
    else:
        os.mkfifo(folder / LOG)
    show = FakeShow()
    assert launch.follow(prepared, shelf, show).status == "finished"
    assert [line for line in show.said if "log.txt can't be written" in line] == show.said
    assert len(show.said) == 1
    assert precious.read_text() == "mine\n"


def test_samples_that_can_t_be_written_are_a_note(shelf: Store) -> None:
    prepared, folder = ready(shelf, FakeJob())
    (folder / SAMPLES).mkdir()
    with pytest.warns(UserWarning, match=f"{SAMPLES} can't be read"):
        run = launch.follow(prepared, shelf, FakeShow())
    assert run.status == "finished"
    assert "no samples" in run.notes[0]


def test_a_record_that_can_t_be_written_at_the_close_is_said_and_the_run_s_end_given(shelf: Store) -> None:
    job = FakeJob()
    prepared, folder = ready(shelf, job)

    def gone() -> None:
        folder.rename(folder.with_name("gone"))

    job.chunks = (gone,)
    show = FakeShow()
    run = launch.follow(prepared, shelf, show)
    assert (run.status, run.exit_code) == ("finished", 0)
    assert "Its record is not up to date" in show.said[-1]
    assert job.asked == [], "the engine's word on how it ended is all there is, and stays for the next command"


def test_a_record_that_can_t_be_written_meanwhile_costs_nothing_when_it_can_at_the_close(shelf: Store) -> None:
    job = FakeJob()
    prepared, folder = ready(shelf, job)
    record = folder / RECORD
    record.unlink()
    record.mkdir()
    job.chunks = (record.rmdir,)
    show = FakeShow()
    run = launch.follow(prepared, shelf, show)
    assert "The run goes on" in show.said[0]
    assert (shelf.load(run.id), job.asked) == (run, ["remove"])
