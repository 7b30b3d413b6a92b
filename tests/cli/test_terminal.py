"""The caller's stdin, forwarded to a run."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import signal
import sys
import termios
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fakes import FakeJob
from house import until

from ngcdl import console
from ngcdl.cli.terminal import UNHEARD, RawTerminal, _forward, is_here, is_piped_into


@pytest.mark.parametrize("stdin", [None, io.StringIO()], ids=["closed", "no file"])
def test_a_stdin_that_can_t_be_read_is_at_its_end(monkeypatch: pytest.MonkeyPatch, stdin: io.StringIO | None) -> None:
    monkeypatch.setattr(sys, "stdin", stdin)
    job = FakeJob()
    _forward(job)
    assert job.asked == ["write b''", "close_input"]


def test_a_file_or_pipe_is_piped_in_as_long_as_something_is_left_to_read(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    assert not is_piped_into(reader)
    os.write(writer, b"one")
    assert is_piped_into(reader)
    os.close(writer)
    assert is_piped_into(reader), "its writer has ended"
    os.read(reader, 3)
    assert not is_piped_into(reader)
    os.close(reader)
    assert not is_piped_into(reader)
    (tmp_path / "list").write_text("two")
    with (tmp_path / "list").open() as file, Path(os.devnull).open() as nothing:
        assert is_piped_into(file.fileno())
        file.read()
        assert not is_piped_into(file.fileno())
        assert not is_piped_into(nothing.fileno())


def test_a_terminal_is_not_here_for_what_runs_in_its_background(terminal: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open() as nowhere:
        monkeypatch.setattr(sys, "stdout", nowhere)
        assert not is_here()
    monkeypatch.setattr(sys, "stdout", sys.stdin)
    assert is_here(), "it belongs to no shell"
    for foreground, expected in ((os.getpgrp(), True), (os.getpgrp() + 1, False)):
        monkeypatch.setattr(os, "tcgetpgrp", lambda _, group=foreground: group)
        assert is_here() == expected


@dataclass
class TornJob(FakeJob):
    """A job whose input pipe breaks once `torn` is set."""

    torn: threading.Event = field(default_factory=threading.Event)

    def write(self, data: bytes) -> None:
        if self.torn.is_set():
            raise BrokenPipeError


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Make stdin a terminal; yield its other end."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield ours
    with contextlib.suppress(OSError):  # a test may have closed it
        os.close(ours)


def test_ctrl_c_is_a_signal_again_once_nobody_reads_the_keyboard(
    terminal: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, raw, said = TornJob(until_stopped=True), RawTerminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)  # capsys empties it while another thread may write
    raw.settle_seconds = 0.05

    def takes_signals() -> bool:
        return bool(termios.tcgetattr(terminal)[3] & termios.ISIG)

    output = raw.pump(job, job.output())
    assert takes_signals()
    next(output)
    assert not takes_signals()
    job.torn.set()
    until(takes_signals, "the old state")
    until(lambda: UNHEARD.split(";")[0] in said.getvalue(), "the line that says so")
    job.stop(0)
    assert list(output) == []


def test_a_line_of_ngcdl_s_on_a_raw_terminal_ends_in_the_first_column(
    terminal: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = FakeJob(until_stopped=True)
    output = RawTerminal().pump(job, job.output())
    next(output)
    with os.fdopen(os.dup(sys.stdin.fileno()), "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        console.say("stopping")
    assert os.read(terminal, 100) == b"ngcdl: stopping\r\n"
    job.stop(0)
    assert list(output) == []


@dataclass
class AskingJob(TornJob):
    """A job whose requests to the engine take a lock, as urllib3's do."""

    lock: threading.Lock = field(default_factory=threading.Lock)

    def resize(self, rows: int, columns: int) -> None:
        if self.lock.acquire(timeout=240):
            super().resize(rows, columns)
            self.lock.release()


def test_a_window_that_changes_while_the_engine_is_asked_something_is_told_after_that(terminal: int) -> None:
    job, raw, before = AskingJob(until_stopped=True), RawTerminal(), signal.getsignal(signal.SIGWINCH)
    raw.settle_seconds = 0.05
    output = raw.pump(job, job.output())
    next(output)
    assert "resize 24 80" in job.asked
    with job.lock:
        os.kill(os.getpid(), signal.SIGWINCH)
    until(lambda: job.asked.count("resize 24 80") == 2, "the second size")
    job.stop(0)
    assert list(output) == []
    assert signal.getsignal(signal.SIGWINCH) == before
    job.torn.set()
    until(lambda: "close_input" in job.asked, "the keyboard's thread")


def test_a_terminal_that_is_gone_does_not_fail_the_run(terminal: int) -> None:
    job = FakeJob(until_stopped=True)
    output = RawTerminal().pump(job, job.output())
    next(output)
    os.close(terminal)
    until(lambda: "close_input" in job.asked, "the keyboard's thread")
    job.stop(0)
    assert list(output) == []
