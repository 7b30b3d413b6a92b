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
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from ngcdl import console
from ngcdl.cli.app import app
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


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link", "link"),
        ("a\rb\x08c\x9b31m", "abc31m"),
        ("line\n\ttab", "line\n\ttab"),
        ("\x9d0;title\x9c\x85b", "0;titleb"),
        ("\u202egpj.\u2066exe\u2069\u202c", "gpj.exe"),
        ("שלום عربى e\u0301 \u200d", "שלום عربى e\u0301 \u200d"),
    ],
)
def test_control_sequences_are_taken_out(sent: str, shown: str) -> None:
    assert console.plain(sent) == shown


@given(st.text(alphabet="a\x1b]0;[m\x07\\\n\t\r\x9b", max_size=40))
def test_no_control_byte_is_left_whatever_was_sent(text: str) -> None:
    assert not [one for one in console.plain(text) if (ord(one) < 32 and one not in "\n\t") or 127 <= ord(one) < 160]


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


def test_sizes_and_numbers_are_rounded_and_unknown_is_not_zero() -> None:
    assert [console.size(value) for value in (None, 0, 1023, 1536, 5 << 20, 3 << 40)] == [
        "n/a",
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 MiB",
        "3072.0 GiB",
    ]
    assert console.number(None, 1, "%") == "n/a"
    assert console.number(0.0) == "0.0"
    assert console.number(1234.56, 1, " W") == "1,234.6 W"


def test_a_small_figure_has_two_digits_and_is_never_0() -> None:
    assert [console.measured(value) for value in (None, 0.0, 0.934, 1.0, 599.94, 4688.2)] == [
        "n/a",
        "0.0",
        "0.93",
        "1.0",
        "599.9",
        "4,688.2",
    ]
    assert [console.measured(value, 4) for value in (0.0881, 0.00012, 0.0000314)] == ["0.0881", "0.00012", "0.000031"]


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


def test_columns_with_wide_characters_are_aligned_and_such_words_are_wrapped_by_their_width(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [("NAME", "N", "WHAT"), ("语言", "7", "语言 语言 语言"), ("a", "70", "b")]
    assert console.table(rows, right={1}) == ["NAME   N  WHAT", "语言   7  语言 语言 语言", "a     70  b"]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    text = "训练模型 " * 9
    lines = console.wrapped(f"command  {text}", sys.stdout, 9).splitlines()
    assert [cell_len(line) for line in lines] == [35, 35, 35]
    assert " ".join("".join(lines).split()) == f"command {text}".strip()


def test_a_text_is_cut_by_its_width_and_has_a_mark() -> None:
    assert console.cut("训练模型", 8) == "训练模型"
    assert console.cut("训练模型", 7) == "训练..."
    assert console.cut("ab cdef", 6) == "ab..."


def test_the_width_is_that_of_the_stream_s_own_terminal_if_stdout_is_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    ours, theirs = pty.openpty()
    with os.fdopen(ours), os.fdopen(theirs, "w") as terminal:
        termios.tcsetwinsize(theirs, (24, 57))
        assert console.columns(terminal) == 57


def test_a_table_puts_the_columns_that_have_no_room_on_a_line_below() -> None:
    rows = [("RUN", "STEPS", "IMAGE"), ("first", "7", "pytorch:26.07-py3"), ("second", "1,000", "tensorflow")]
    assert console.table(rows) == [
        "RUN     STEPS  IMAGE",
        "first   7      pytorch:26.07-py3",
        "second  1,000  tensorflow",
    ]
    assert console.table([("NAME", "WHAT"), ("lstm", "two layers on text that is made up")], 30) == [
        "NAME",
        "    WHAT",
        "lstm",
        "    two layers on text that is",
        "      made up",
    ]
    assert console.table(rows, 25, {1}) == [
        "RUN     STEPS",
        "    IMAGE",
        "first       7",
        "    pytorch:26.07-py3",
        "second  1,000",
        "    tensorflow",
    ]


def test_a_few_long_cells_of_the_last_column_move_no_other_row_to_two_lines() -> None:
    rows = [("IMAGE", "SIZE", "HERE"), ("a:1", "1 GiB", "runs"), ("a:2", "1 GiB", "can't tell: too new")]
    rows.append(("b", "9", ""))
    assert console.table(rows, 20) == [
        "IMAGE  SIZE   HERE",
        "a:1    1 GiB  runs",
        "a:2    1 GiB",
        "    can't tell: too",
        "      new",
        "b      9",
    ]
    assert console.table(rows, 80)[2] == "a:2    1 GiB  can't tell: too new"
    assert console.table([*rows[:1], rows[2], rows[2]], 20)[:2] == ["IMAGE  SIZE", "    HERE"]


# "语" and "🚀" are two columns wide.
@given(st.lists(st.tuples(*[st.text("ab,语🚀", max_size=7)] * 4), min_size=1), st.integers(20, 60))
def test_a_table_is_no_wider_than_its_terminal_and_loses_no_cell(rows: list[tuple[str, ...]], width: int) -> None:
    lines = console.table(rows, width)
    assert max(map(cell_len, lines)) <= width
    assert "".join("".join(lines).split()) == "".join("".join(row) for row in rows)


# ---- ngcdl's name ----


def _there(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    path.chmod(0o755)
    return path


def test_where_path_has_no_ngcdl_command_lines_have_what_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv(console.TYPED, "./my scripts/ngcdl")
    console.show_error(NgcdlError("It broke, says ngcdl run.", "Type:\n    A=1 ngcdl login && ngcdl run ... --gpus 1"))
    console.result("why  see ngcdl doctor; an older ngcdl reads less, ngcdl/run stays, my-ngcdl run too")
    console.result_json({"advice": "    ngcdl run"})
    seen = capsys.readouterr()
    assert seen.err == (
        "ngcdl: It broke, says './my scripts/ngcdl' run.\n  Type:\n"
        "      A=1 './my scripts/ngcdl' login && './my scripts/ngcdl' run ... --gpus 1\n"
    )
    assert "see './my scripts/ngcdl' doctor; an older ngcdl reads less, ngcdl/run stays, my-ngcdl run too\n" in seen.out
    assert '"    ngcdl run"' in seen.out, "what machines read is the same everywhere"
    _there(tmp_path / "bin/ngcdl")
    assert console.typable("    ngcdl login") == "    ngcdl login"


@pytest.mark.parametrize(("typed", "shown"), [
    (".venv/bin/ngcdl", ".venv/bin/ngcdl"), ("ngcdl", "ngcdl"), ("/venv/ngcdl/__main__.py", "ngcdl"), ("", "ngcdl"),
])  # fmt: skip
def test_a_program_that_was_typed_by_its_path_is_advised_by_it(
    typed: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(console.TYPED, raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "argv", [typed])
    assert console.program() == shown


def test_every_command_of_the_application_is_known_in_a_command_line() -> None:
    commands: Any = typer.main.get_command(app)
    assert sorted(console.COMMANDS) == sorted(commands.commands)
