"""Text from elsewhere controls no terminal, and none is wider than it."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from ngcdl import console
from ngcdl.terminal_text import cut, plain, table


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
    assert plain(sent) == shown


@given(st.text(alphabet="a\x1b]0;[m\x07\\\n\t\r\x9b", max_size=40))
def test_no_control_byte_is_left_whatever_was_sent(text: str) -> None:
    assert not [one for one in plain(text) if (ord(one) < 32 and one not in "\n\t") or 127 <= ord(one) < 160]


def test_columns_with_wide_characters_are_aligned_and_such_words_are_wrapped_by_their_width(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [("NAME", "N", "WHAT"), ("语言", "7", "语言 语言 语言"), ("a", "70", "b")]
    assert table(rows, right={1}) == ["NAME   N  WHAT", "语言   7  语言 语言 语言", "a     70  b"]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    text = "训练模型 " * 9
    lines = console.wrapped(f"command  {text}", sys.stdout, 9).splitlines()
    assert [cell_len(line) for line in lines] == [35, 35, 35]
    assert " ".join("".join(lines).split()) == f"command {text}".strip()


def test_a_text_is_cut_by_its_width_and_has_a_mark() -> None:
    assert cut("训练模型", 8) == "训练模型"
    assert cut("训练模型", 7) == "训练..."
    assert cut("ab cdef", 6) == "ab..."


def test_a_table_puts_the_columns_that_have_no_room_on_a_line_below() -> None:
    rows = [("RUN", "STEPS", "IMAGE"), ("first", "7", "pytorch:26.07-py3"), ("second", "1,000", "tensorflow")]
    assert table(rows) == [
        "RUN     STEPS  IMAGE",
        "first   7      pytorch:26.07-py3",
        "second  1,000  tensorflow",
    ]
    assert table([("NAME", "WHAT"), ("lstm", "two layers on text that is made up")], 30) == [
        "NAME",
        "    WHAT",
        "lstm",
        "    two layers on text that is",
        "      made up",
    ]
    assert table(rows, 25, {1}) == [
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
    assert table(rows, 20) == [
        "IMAGE  SIZE   HERE",
        "a:1    1 GiB  runs",
        "a:2    1 GiB",
        "    can't tell: too",
        "      new",
        "b      9",
    ]
    assert table(rows, 80)[2] == "a:2    1 GiB  can't tell: too new"
    assert table([*rows[:1], rows[2], rows[2]], 20)[:2] == ["IMAGE  SIZE", "    HERE"]


# "语" and "🚀" are two columns wide.
@given(st.lists(st.tuples(*[st.text("ab,语🚀", max_size=7)] * 4), min_size=1), st.integers(20, 60))
def test_a_table_is_no_wider_than_its_terminal_and_loses_no_cell(rows: list[tuple[str, ...]], width: int) -> None:
    lines = table(rows, width)
    assert max(map(cell_len, lines)) <= width
    assert "".join("".join(lines).split()) == "".join("".join(row) for row in rows)
