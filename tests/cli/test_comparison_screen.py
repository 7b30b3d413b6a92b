"""What is shown during a comparison: the run under way and the last line that it wrote, only on a terminal."""

from __future__ import annotations

import pytest
from terminal import on_terminal

from ngcdl.cli.comparison_screen import ComparisonScreen
from ngcdl.engines.values import Chunk


def test_the_last_line_of_the_run_under_way_is_drawn_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch, 44)
    screen = ComparisonScreen(is_cluster=False)
    screen._clock = iter(range(100)).__next__
    screen.begins("round 1 of 3, cpu")
    assert terminal.said() == "\rround 1 of 3, cpu: running\x1b[K"
    screen.chunk(Chunk("stdout", b"step 1\nste"))
    assert terminal.said() == "\rround 1 of 3, cpu: ste\x1b[K"
    screen.chunk(Chunk("stderr", b"p 2 \x1b]0;title\x07of 9 " + b"x" * 90 + b"\r"))
    assert terminal.said() == f"\r{'round 1 of 3, cpu: step 2 of 9 ' + 'x' * 90:.38}...\x1b[K", "^C fits behind it"
    screen.chunk(Chunk("stdout", "语言\r\n\n".encode()))
    assert terminal.said() == "\rround 1 of 3, cpu: 语言\x1b[K"
    screen.say("round 1 of 3, cpu: took 5 s")
    assert terminal.said() == "\r\x1b[Kngcdl: round 1 of 3, cpu: took 5 s\n"
    screen.begins("round 1 of 3, gpu")
    assert "cpu" not in terminal.said()
    for advice, shown in (("too old\n    update", 1), ("too old\n    update", 0), ("one line", 1), ("one line", 1)):
        screen.say(advice)
        assert terminal.said().count("ngcdl: ") == shown
    screen.begins("round 1 of 3, gpu")
    terminal.said()
    screen.quiet()
    assert terminal.said() == "\r\x1b[K"
    screen.quiet()
    assert terminal.said() == ""


def test_of_a_training_s_step_the_speed_is_whole_on_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch, 80)
    screen = ComparisonScreen(is_cluster=False)
    screen._clock = iter(range(100)).__next__
    screen.begins("round 1 of 3, device=gpu")
    terminal.said()
    step = b"2018-02-16 18:21:30.123456: step 1230, loss = 4.68 (4721.3 examples/sec; 0.027 sec/batch)\n"
    screen.chunk(Chunk("stdout", step))
    said = terminal.said()
    assert said.startswith("\rround 1 of 3, device=gpu: step 1230, loss = 4.68 (4721.3 examples/sec; ")
    assert said.endswith("...\x1b[K")


def test_tensorflow_s_chatter_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch, 44)
    screen = ComparisonScreen(is_cluster=False)
    screen._clock = iter(range(100)).__next__
    screen.begins("round 1 of 3, cpu")
    terminal.said()
    screen.chunk(Chunk("stderr", b"I0000 00:00:1795749864.404123 11648 port.cc:153] oneDNN custom operations are on\n"))
    assert terminal.said() == ""
    screen.chunk(Chunk("stdout", b"step 1\n"))
    screen.chunk(Chunk("stderr", b"I0000 00:00:1795749864.404123 11648 port.cc:153] more of it\n"))
    assert set(terminal.said().split("\r")[1:]) == {"round 1 of 3, cpu: step 1\x1b[K"}


def test_output_that_comes_too_fast_to_read_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch, 44)
    screen = ComparisonScreen(is_cluster=False)
    screen._clock = lambda: 1.0
    screen.chunk(Chunk("stdout", b"one\n"))
    screen.chunk(Chunk("stdout", b"two\n"))
    assert "two" not in terminal.said()


def test_elsewhere_nothing_is_drawn_but_what_a_cluster_says(capsys: pytest.CaptureFixture[str]) -> None:
    screen = ComparisonScreen(is_cluster=True)
    screen.begins("round 1 of 3, cpu")
    screen.chunk(Chunk("stdout", b"step 1\n"))
    screen.chunk(Chunk("stderr", b"waits for Resources\n"))
    screen.quiet()
    assert capsys.readouterr() == ("", "ngcdl: waits for Resources\n")
