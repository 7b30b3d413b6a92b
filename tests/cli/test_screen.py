"""What a person sees: plain lines in a pipe, bars on a terminal, and the run's bytes, there without control strings."""

from __future__ import annotations

import contextlib
import itertools
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from house import TRAIN, House
from hypothesis import given
from hypothesis import strategies as st
from terminal import Terminal, on_terminal

from ngcdl import console
from ngcdl.cli.screen import Screen
from ngcdl.engines.values import WAITING, Chunk, PullEvent

PULL = """
from ngcdl.cli.screen import Screen
from ngcdl.engines.values import Chunk, PullEvent
with Screen() as screen:
    screen.pull(PullEvent("aaa", "Downloading", 512, 1024))
    screen.pull(PullEvent("bbb", "Already exists"))
    screen.pull(PullEvent("aaa", "Pull complete"))
    screen.say("a [bold]line[/bold]")
screen.chunk(Chunk("stdout", b"\\x1b]0;title\\x07\\x1b[31mred\\x1b[0m\\n"))
"""


def test_output_goes_where_it_came_from(capfd: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen.chunk(Chunk("stdout", b"out\n"))
    screen.chunk(Chunk("stderr", b"err\n"))
    assert capfd.readouterr() == ("out\n", "err\n")


def test_with_json_all_output_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    Screen(output_to_stderr=True).chunk(Chunk("stdout", b"out\n"))
    assert capfd.readouterr() == ("", "out\n")


def test_bytes_into_a_pipe_are_untouched(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    Screen().chunk(Chunk("stdout", b"\xff\x00\x1b]0;x\x07"))
    assert capfdbinary.readouterr().out == b"\xff\x00\x1b]0;x\x07"


def test_a_pull_into_a_pipe_is_a_line_a_layer(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    for status in ("Pulling fs layer", "Extracting", "Pull complete"):
        screen.pull(PullEvent("aaa", status))
    screen.pull(PullEvent("bbb", "Already exists"))
    screen.pull(PullEvent(None, "Trying again in 2 s"))
    assert capsys.readouterr().err.splitlines() == [
        "ngcdl: aaa: Pull complete",
        "ngcdl: bbb: Already exists",
        "ngcdl: Trying again in 2 s",
    ]


def test_the_total_of_a_pull_is_that_of_all_layers_also_of_those_whose_turn_has_not_come(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = Screen()
    for layer in range(40):
        screen.pull(PullEvent(f"{layer}", "Waiting", 100 << 20, 300 << 20))
    for layer in range(40):
        screen.pull(PullEvent(f"{layer}", "Pulling fs layer"))
    assert capsys.readouterr().err == "ngcdl: 3.9 GiB of 11.7 GiB in 40 layers\n"


def test_while_a_pull_s_layers_are_unpacked_only_news_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(clock=itertools.count(10, 10).__next__)
    for status in ("Downloading", "Extracting", "Extracting"):
        screen.pull(PullEvent("a", status, 512, 512))
    assert capsys.readouterr().err == "ngcdl: 512 B are here; unpacked: 0 of 1 layers\n"


def test_a_pull_of_which_some_layers_sizes_are_unknown_has_no_total_and_no_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def pulled() -> Screen:
        screen = Screen()
        for layer in ("aaa", "bbb", "ccc"):
            screen.pull(PullEvent(layer, "Pulling fs layer"))
        screen.pull(PullEvent("aaa", "Already exists"))
        screen.pull(PullEvent("bbb", "Downloading", 512, 1024))
        return screen

    pulled()
    assert capsys.readouterr().err.splitlines()[-1] == "ngcdl: 512 B so far; 1 of 3 layers complete"
    on_terminal(monkeypatch)
    screen = pulled()
    assert screen._progress
    assert [task.total for task in screen._progress.tasks] == [None, 1024]
    screen.pull(PullEvent("ccc", "Downloading", 0, 1024))
    assert screen._progress.tasks[0].total == 2048, "now all sizes are known"
    screen.quiet()


def test_layers_that_the_engine_has_are_no_part_of_a_pull_s_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch)
    screen = Screen()
    for status in (WAITING, "Already exists"):
        for layer in ("aaa", "bbb", "ccc"):
            screen.pull(PullEvent(layer, status, 0, 4_000_000_000))
    assert screen._progress
    (task,) = screen._progress.tasks
    assert (task.completed, task.total, task.speed, task.finished_speed) == (12_000_000_000, 12_000_000_000, None, None)
    screen.quiet()


def test_a_layer_that_the_engine_got_from_elsewhere_meanwhile_leaves_no_bar_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_terminal(monkeypatch)
    screen = Screen()
    for layer in ("aaa", "bbb"):
        screen.pull(PullEvent(layer, WAITING, 0, 1024))
    for layer in ("aaa", "bbb"):
        for status in ("Downloading", "Already exists", "Downloading"):
            screen.pull(PullEvent(layer, status, 512, 1024))
    assert screen._progress
    (task,) = screen._progress.tasks
    assert (task.description, task.fields["status"], task.completed, task.total) == ("layers", "2 of 2", 2048, 2048)
    screen.quiet()


@pytest.mark.parametrize("columns", [40, 50, 60, 75])
def test_no_figure_of_a_pull_is_cut(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    terminal = on_terminal(monkeypatch, columns)
    screen = Screen()
    screen.pull(PullEvent("0123456789ab", "Downloading", 888 << 20, 999 << 20))
    screen.quiet()
    *_, row = terminal.kept.getvalue().decode().split("0123456789ab")
    assert "888.0/999.0 MiB" in row
    assert "-:--:--" in row
    assert "…" not in row


def test_a_download_into_a_pipe_tells_rate_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen.download(60 << 20, 180 << 20, float(1 << 20))
    screen.download(61 << 20, 180 << 20, float(1 << 20))
    assert capsys.readouterr().err == "ngcdl: CIFAR-10: 60.0 MiB of 180.0 MiB at 1.0 MiB/s, 2 min left\n"
    Screen().download(5, None, None)
    assert capsys.readouterr().err == "ngcdl: CIFAR-10: 5 B of n/a\n"


def test_a_terminal_gets_bars_and_no_titles(house: House) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", PULL], stdin=theirs, stdout=theirs, stderr=theirs,
        env=house.environment(TERM="xterm", COLUMNS="100"),
    ) as process:  # fmt: skip
        os.close(theirs)
        seen = b""
        while True:
            try:
                data = os.read(ours, 4096)
            except OSError:  # Linux reports EIO once nobody holds the terminal
                break
            if not data:
                break
            seen += data
    os.close(ours)
    assert process.returncode == 0, seen
    assert b"2 of 2" in seen, "the layers that are whole, of all"
    assert b"a [bold]line[/bold]" in seen, "what a registry says is not markup"
    assert b"\x1b]0;" not in seen
    assert b"\x1b[31mred" in seen, "colours stay"


STEP = b"2018-02-16 18:21:30.123456: step %d, loss = 3.72 (592.6 examples/sec; 0.216 sec/batch)\n"


@pytest.mark.parametrize(("written", "gap"), [
    (b"50%|##", b"\n"), (b"50%\x1b[0m", b"\n"), (b"\x1b[1mdone\n\x1b[0m", b""), (b"", b""),
])  # fmt: skip
def test_a_message_does_not_go_on_in_the_line_of_a_progress_bar(
    monkeypatch: pytest.MonkeyPatch, written: bytes, gap: bytes
) -> None:
    terminal = on_terminal(monkeypatch, 80)
    monkeypatch.setattr("sys.stdout", terminal)
    screen = Screen()
    screen.chunk(Chunk("stdout", written))
    screen.say("one")
    screen.say("two")
    assert terminal.kept.getvalue() == written + gap + b"ngcdl: one\nngcdl: two\n"


def test_what_is_said_after_a_run_does_not_go_on_in_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch, 80)
    monkeypatch.setattr("sys.stdout", terminal)
    with Screen() as screen:
        screen.chunk(Chunk("stdout", b"50%|##"))
    console.say("recorded")
    assert terminal.kept.getvalue() == b"50%|##\nngcdl: recorded\n"


def test_a_message_into_a_file_has_nothing_before_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout", Terminal())
    screen = Screen()
    screen.chunk(Chunk("stdout", b"50%|##"))
    screen.say("one")
    assert capfd.readouterr().err == "ngcdl: one\n"


def test_what_a_pull_says_is_indented_where_it_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch, 80)
    screen = Screen()
    screen.pull(PullEvent("aaa", "Downloading", 512, 1024))
    screen.pull(PullEvent(None, f"Digest: sha256:{'0123456789abcdef' * 4}"))
    screen.quiet()
    assert b"ngcdl: Digest:\n  sha256:0123456789abcdef" in terminal.kept.getvalue().replace(b"\x1b[2K", b"")


@pytest.mark.parametrize(("chunks", "seen"), [
    ((b"a\x1b]52;c;d2h", b"vYW1p\x07b"), b"ab"),
    ((b"a\x1b", b"]0;title\x1b", b"\\b\x1bPq\x1b[1m", b"c"), b"ab\x1b[1mc"),
    ((b"a\x1b\x00", b"\n\x1b]0;title\x07b"), b"a\nb"),
    ((b"a\x1b", b"[31mred\x1b[", b"0m"), b"a\x1b[31mred\x1b[0m"),
    ((b"a\x1b]52;c;d2h",), b"a]52;c;d2h"),
    ((b"a\x1b]", b"x" * 5000, b"\x07b\x1b"), b"a]" + b"x" * 5000 + b"\x07b"),
    ((b"a\xc2\x9d52;c;d2h", b"vYW1p\xc2\x9cb"), b"ab"),
    ((b"a\xc2", b"\x9d0;\xc2\xa3\xc2", b"\x9cb\x1b]0;x\xc2\x9cc\xc2\x90q\x1b\\d"), b"abcd"),
    ((b"a\xc2\x00\x9d0;x\x07\xc2\x9b31mb", "£\n".encode()), b"a\xc2\x9b31mb" + "£\n".encode()),
    ((b"a\xc2\x1b]0;x\x07\x9d52;c;d2h\x07\xc2",), b"a\x9d52;c;d2h\x07"),
    ((b"a\xc2\x9f52;c;d2h",), b"a_52;c;d2h"),
])  # fmt: skip
def test_what_a_terminal_is_not_to_get_is_left_out_however_it_was_cut(
    monkeypatch: pytest.MonkeyPatch, chunks: tuple[bytes, ...], seen: bytes
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    with Screen() as screen:
        for chunk in chunks:
            screen.chunk(Chunk("stdout", chunk))
    assert terminal.kept.getvalue() == seen, "what has no end is text"


@given(st.lists(st.lists(st.sampled_from(list(b"\x1b\xc2\x90\x9c\x9d]P[m\\\x07\x00\na")), max_size=8), max_size=6))
def test_no_string_for_a_terminal_begins_in_what_is_passed_on(chunks: list[list[int]]) -> None:
    terminal = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", terminal)
        with Screen() as screen:
            for chunk in chunks:
                screen.chunk(Chunk("stdout", bytes(chunk)))
    assert not re.search(rb"\x1b[\x00-\x1f]*[\]P]|\xc2[\x90\x9d]", terminal.kept.getvalue())


@given(st.text(), st.integers(1, 4))
def test_text_reaches_a_terminal_whole_however_it_was_cut(text: str, size: int) -> None:
    """The control characters that a terminal does not get are removed from `text` first."""
    text = re.sub(r"[\x00\x05\x0e\x0f\x1b\x90\x98\x9c-\x9f]", "", text)
    data, terminal = text.encode("utf-8", "surrogatepass"), Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", terminal)
        with Screen() as screen:
            for at in range(0, len(data), size):
                screen.chunk(Chunk("stdout", data[at : at + size]))
    assert terminal.kept.getvalue() == data


def test_steps_that_follow_too_fast_are_left_out_on_a_terminal_but_for_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal, now = Terminal(), [0.0]
    monkeypatch.setattr("sys.stdout", terminal)
    with Screen(is_training=True, clock=lambda: now[0]) as screen:
        for step in range(25):
            now[0] = step / 64
            for half in (STEP[:9], STEP[9:] % step):
                screen.chunk(Chunk("stdout", half))
        screen.chunk(Chunk("stdout", b"the end of it\n"))
        screen.chunk(Chunk("stdout", STEP % 25 + b"no line"))
    drawn = terminal.kept.getvalue()
    shown = [int(number) for number in re.findall(rb": step (\d+)", drawn)]
    assert shown == [0, 7, 14, 21, 24, 25]
    assert drawn.endswith(STEP % 24 + b"the end of it\n" + STEP % 25 + b"no line")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_training_that_writes_no_newline_is_not_held_back(monkeypatch: pytest.MonkeyPatch, stream: str) -> None:
    terminal = Terminal()
    monkeypatch.setattr(f"sys.{stream}", terminal)
    screen = Screen(is_training=True)
    screen.chunk(Chunk(stream, b"I0000 a line"))
    screen.chunk(Chunk(stream, b"x" * 9000))
    assert screen._started_line + screen._started_output == b""


@pytest.mark.parametrize("is_training", [True, False])
def test_into_a_pipe_every_step_is_passed_on(capfdbinary: pytest.CaptureFixture[bytes], is_training: bool) -> None:
    with Screen(is_training=is_training, clock=lambda: 0.0) as screen:
        for step in range(9):
            screen.chunk(Chunk("stdout", STEP % step))
        assert capfdbinary.readouterr().out.count(b": step ") == 9


def test_a_reader_that_has_gone_ends_the_showing_only(house: House) -> None:
    code = "import os\n" + PULL + "os.close(1)\nscreen.chunk(Chunk('stdout', b'x' * 100000))\nos._exit(7)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, env=house.environment())
    assert (done.returncode, b"Traceback" in done.stderr) == (7, False)


def test_a_closed_pipe_behind_stdout_is_said_once_and_the_exit_code_is_the_run_s(trained: House) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = trained.run(*TRAIN, stdout=closed, env={"STAND_IN": "fail"})
    assert done.returncode == 7
    assert done.stderr.count("stdout is closed; the run goes on, log.txt has all of it.") == 1


@pytest.mark.parametrize("layer", ["aaa", None])
def test_an_interrupted_pull_says_that_what_was_fetched_is_kept(
    capsys: pytest.CaptureFixture[str], layer: str | None
) -> None:
    with contextlib.suppress(KeyboardInterrupt), Screen() as screen:
        screen.pull(PullEvent(layer, "Downloading", 512, 1024))
        raise KeyboardInterrupt
    more = "; what was fetched is kept, and the same command goes on" if layer else ""
    assert capsys.readouterr().err.splitlines()[-1] == f"ngcdl: interrupted{more}"


def test_a_full_disk_behind_stdout_is_said_once_and_the_exit_code_tells_it(trained: House) -> None:
    with Path("/dev/full").open("w") as full:
        done = trained.run(*TRAIN, stdout=full)
        failed = trained.run(*TRAIN, stdout=full, env={"STAND_IN": "fail"})
    assert (done.returncode, failed.returncode) == (125, 7)
    said = "stdout can't be written to any more (No space left on device); log.txt has all of it."
    assert done.stderr.count(said) == 1
    assert trained.record()["status"] == "failed"
    assert trained.record("last-1")["status"] == "finished"
