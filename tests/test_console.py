"""Results on stdout, the rest on stderr, and nothing from a container or a registry controls the terminal."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import sys
import termios
from pathlib import Path

import pytest

from ngcdl import console
from ngcdl.errors import NgcdlError


def test_results_go_to_stdout_and_the_rest_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    console.result("figures")
    console.say("pulling")
    console.show_error(NgcdlError("It broke.", "Mend it:\n    mend it"))
    seen = capsys.readouterr()
    assert seen.out == "figures\n"
    assert seen.err == "ngcdl: pulling\nngcdl: It broke.\n  Mend it:\n      mend it\n"


def test_json_is_ascii_and_knows_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    console.result_json({"name": "Müller", "none": None})
    out = capsys.readouterr().out
    assert out.isascii()
    assert json.loads(out) == {"name": "Müller", "none": None}
    with pytest.raises(ValueError, match="JSON"):
        console.result_json({"x": float("nan")})


def test_a_word_too_long_for_an_indented_line_stands_alone_and_not_indented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    address = f"https://x.example/{'a' * 40}"
    assert console.wrapped(f"reason       it says [{address[:-4]}] so, and more", sys.stdout, 13) == (
        f"reason       it says\n[{address[:-4]}]\n             so, and more"
    )
    for line in ("ngcdl stop last-1", "./scripts/ngcdl report 20231114-230000-compare-aaa111"):
        told = console.wrapped(f"check with: ngcdl gpu or ngcdl logs, now or later; end it with: {line}", sys.stdout)
        assert told.endswith(line), "a line to type is not broken"
        assert told.count("\n") < 3
    assert console.wrapped(f"reason       {'a' * 47} b", sys.stdout, 13) == f"reason       {'a' * 47}\n             b"


def test_an_error_that_shows_control_sequences_is_cleaned_too(capsys: pytest.CaptureFixture[str]) -> None:
    console.show_error(NgcdlError("Docker said: \x1b[2Jno.", "\x1b]0;x\x07try"))
    assert "\x1b" not in capsys.readouterr().err


def test_a_result_is_cleaned_but_for_our_own_colours_and_what_a_program_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    console.result("\x1b]52;c;AAAA\x07a\x1b[2J")
    console.result("\x1b[31mb\x1b[0m", styled=True)
    console.result_exact("c\x1b[2J")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    console.result_exact("d\x1b[2J")
    assert capsys.readouterr().out == "a\n\x1b[31mb\x1b[0m\nc\x1b[2J\nd\n"


def test_what_the_terminal_can_t_spell_is_shown_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    console.result("Müller, \udcff")
    assert raw.getvalue() == b"M\\xfcller, \\udcff\n"


def test_a_stderr_that_is_closed_full_or_gone_loses_the_line_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    with Path("/dev/full").open("wb", buffering=0) as raw:
        full = io.TextIOWrapper(raw, write_through=True)
        with pytest.raises(OSError, match="No space left"):
            full.write("it is full")
        for stream in (closed, full, None):
            monkeypatch.setattr(sys, "stderr", stream)
            console.say("lost")
        with contextlib.suppress(OSError):
            full.close()


def test_a_terminal_that_can_t_move_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    assert console.on_terminal(Terminal())
    assert not console.on_terminal(io.StringIO())
    assert not console.on_terminal(None)
    monkeypatch.setenv("TERM", "dumb")
    assert not console.on_terminal(Terminal())


def test_the_width_is_that_of_the_stream_s_own_terminal_if_stdout_is_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    ours, theirs = pty.openpty()
    with os.fdopen(ours), os.fdopen(theirs, "w") as terminal:
        termios.tcsetwinsize(theirs, (24, 57))
        assert console.columns(terminal) == 57
