"""`ngcdl logs`: a run's output, byte for byte."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import pty
import re
import signal
from pathlib import Path

import pytest
from house import House, until

from ngcdl.cli import logs
from ngcdl.record import Owner, Run

GOLDEN = Path(__file__).parents[1] / "golden/run-format-1"
GONE = Owner(2**22 + 1, 5)


def test_logs_are_printed_as_they_were_written(kept: House) -> None:
    assert kept.run("logs", "last").stdout == (GOLDEN / "log.txt").read_text()
    assert kept.run("logs", "--follow").stdout == (GOLDEN / "log.txt").read_text()


@pytest.mark.parametrize("end", ["", "\n"])
def test_the_last_lines_of_a_log_are_printed_and_nothing_before_them_is_read(kept: House, end: str) -> None:
    log, text = kept.store.folder(GOLDEN.name) / "log.txt", ["x" * 70_000 + "\n", "\n", f"last{end}"]
    with log.open("w") as file:
        file.seek(1 << 40)  # a sparse file, which nobody reads to its end
        file.write("".join(["\n", *text]))
    for count in range(len(text) + 1):
        assert kept.run("logs", "-n", str(count)).stdout == "".join(text[len(text) - count :])
    log.write_text(f"a\nb{end}")
    assert kept.run("logs", "last", "--tail", "3", "-f").stdout == f"a\nb{end}"


def test_a_log_of_which_no_engine_tells_the_end_is_followed_on_and_that_is_said(house: House) -> None:
    folder = house.store.create(Run("x-1", "running", 1.0, engine="docker", container="c0ffee", owner=GONE))
    (folder / "log.txt").write_text("up\n")
    out, wide, (ours, theirs) = house.home / "out", {"COLUMNS": "500"}, pty.openpty()
    with out.open("w") as file, house.popen("logs", "-f", stdout=file, stderr=theirs, env=wide) as process:
        os.close(theirs)
        said = b""
        while b"known yet" not in said:
            said += os.read(ours, 65536)
        until(out.read_text, "a word")
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while data := os.read(ours, 65536):
                said += data
    os.close(ours)
    (told,) = said.decode().splitlines()
    assert (process.returncode, out.read_text()) == (-signal.SIGINT, "up\n"), "for the shell, which ends a loop by that"
    assert told.startswith("ngcdl: No Docker engine answers at ")
    assert told.endswith("What became of the run is not known yet.")


def test_it_is_said_once_that_a_run_of_this_host_lost_what_wrote_its_log(house: House) -> None:
    with house.popen("run", "--", "sh", "-c", "echo up; exec sleep 3600") as watcher:
        assert watcher.stdout
        watcher.stdout.readline()
        until(lambda: house.store.load(house.store.find("last")).container)
        watcher.kill()
        watcher.communicate(timeout=240)
    with house.popen("logs", "-f") as process:
        assert process.stderr
        told = process.stderr.readline()
        house.run("stop", "last")
        out, more = process.communicate(timeout=240)
    assert (process.returncode, out, more) == (0, "up\n", "")
    assert "no ngcdl watches this run any more, so nothing more comes into its log; waiting for its end." in told


def test_a_run_that_wrote_nothing_is_there_and_has_no_log(kept: House) -> None:
    (kept.store.folder(GOLDEN.name) / "log.txt").unlink()
    done = kept.run("logs", "last")
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith(f"ngcdl: {GOLDEN.name} has no log: it wrote nothing.\n")
    assert f"ngcdl show {GOLDEN.name}" in done.stderr


def shown(monkeypatch: pytest.MonkeyPatch, *pieces: bytes) -> str:
    """Return what a terminal shows of a log that was read in these pieces: a line is blanked, then written anew."""
    with io.BytesIO() as kept:
        monkeypatch.setattr("sys.stdout", Terminal())
        monkeypatch.setenv("TERM", "xterm")
        write = logs._writer(kept)
        for piece in pieces:
            write(piece)
        text = kept.getvalue().decode()
    assert not re.search(r"\r(?!\x1b\[K)", text)
    return re.sub(r"[^\n]*\r\x1b\[K", "", text)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("data", "seen"), [
    (b"a 1%\ra 2%\rdone\n", "done\n"),
    (b"a 100%\r\nb\r\r\n\r\nc 1%\r", "a 100%\nb\n\nc 1%"),
    (b"a\n\x1b[32mGREEN\x1b[0m end\n\x1b[2K\rb 1%\x1b[2K\rb\n", "a\nGREEN end\nb\n"),
    (b"a\x1b]0;title\x07b\x1b]8;;x\x1b\\c \xe8\xaf\xad\n", "abc \u8bed\n"),
])  # fmt: skip
def test_a_terminal_gets_the_last_state_of_each_line_wherever_the_log_was_cut(
    monkeypatch: pytest.MonkeyPatch, data: bytes, seen: str
) -> None:
    for at in range(len(data) + 1):
        assert shown(monkeypatch, data[:at], data[at:]) == seen
    assert shown(monkeypatch, *(bytes([one]) for one in data)) == seen


def test_an_escape_sequence_without_an_end_holds_back_no_more_than_a_few_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert shown(monkeypatch, b"a\x1b]", b"x" * 5000, b"b\n") == "ab\n"


def test_many_returns_are_held_back_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Terminal())
    write = logs._writer(io.BytesIO())
    write(b"\r" * 9000)
    assert inspect.getclosurevars(write).nonlocals["unfinished"] == "\r"


def test_a_log_that_is_no_text_is_passed_on(kept: House) -> None:
    (kept.store.root / GOLDEN.name / "log.txt").write_bytes(b"\xff\x00\n")
    assert kept.run("logs").stdout.encode(errors="surrogateescape") == b"\xff\x00\n"


def test_pipes_in_the_place_of_a_run_s_files_are_never_waited_for(kept: House) -> None:
    folder = kept.store.root / GOLDEN.name
    for name in ("log.txt", "events.jsonl", "samples.jsonl"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
    done = kept.run("logs", "last")
    assert (done.returncode, done.stdout) == (125, "")
    assert "log.txt is not a record that ngcdl can read: it is not a regular file" in done.stderr
    assert kept.run("show").returncode == 0
    assert kept.run("report", "--markdown", "-").returncode == 0
    (folder / "run.json").unlink()
    os.mkfifo(folder / "run.json")
    assert kept.run("show").returncode == 125
    assert kept.run("runs").returncode == 0


def test_a_run_without_a_log_says_so(kept: House) -> None:
    (kept.store.root / GOLDEN.name / "log.txt").unlink()
    done = kept.run("logs")
    assert done.returncode == 125
    assert "wrote nothing" in done.stderr
