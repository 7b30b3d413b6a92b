"""The two sampling threads, on cards that answer late or never. test_apart.py covers the driver itself."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ngcdl.folder import lines
from ngcdl.telemetry.host import Cpu
from ngcdl.telemetry.sampler import Gap, Sources
from ngcdl.telemetry.watched_sampler import WatchedSampler


class Cards:
    """Cards that answer each query with its number while `may` is set. `hangs` is set if a query waits for `may`."""

    def __init__(self) -> None:
        self.may, self.hangs = threading.Event(), threading.Event()
        self.may.set()
        self.questions = 0

    def read(self, is_brief: bool = False) -> list[dict[str, Any]]:
        self.questions += 1
        number = self.questions
        end = time.monotonic() + 200
        while not self.may.wait(0.01):
            self.hangs.set()
            assert time.monotonic() < end
        return [{"index": number, "uuid": None, "error": None}]


@contextmanager
def relayed(path: Path, cards: Any, patience: float = 0.2) -> Iterator[WatchedSampler]:
    relay = WatchedSampler(path, Sources(lambda: Cpu(1.0), gpus=cards), 0.1)
    relay._patience = patience  # not OPENING_SECONDS
    running = threading.Thread(target=relay.run)
    running.start()
    try:
        yield relay
    finally:
        relay.stop()
        running.join(240)
        assert not running.is_alive()


def until(path: Path, met: Callable[[list[dict[str, Any]]], Any]) -> list[dict[str, Any]]:
    """Wait for rows that meet the condition; return all rows."""
    end = time.monotonic() + 240
    while time.monotonic() < end:
        if met(found := list(lines(path))):
            return found
        time.sleep(0.02)
    raise AssertionError(f"no such rows in 240 s: {found[-3:]}")


def test_each_tick_has_an_answer_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ngcdl.telemetry.watched_sampler.PATIENCE_SECONDS", 600.0)  # a busy machine does not hang
    with relayed(tmp_path / "s", Cards(), patience=600.0):
        found = until(tmp_path / "s", lambda rows: len(rows) >= 5)
    assert [row["gpus"][0]["index"] for row in found[:5]] == [1, 2, 3, 4, 5]
    assert all(re.fullmatch(r"(\d+ ticks before this one were missed)?", row["gap"] or "") for row in found)


def test_while_a_call_hangs_the_others_are_read_and_its_late_answer_is_thrown_away(tmp_path: Path) -> None:
    cards = Cards()
    with relayed(tmp_path / "s", cards) as relay:
        until(tmp_path / "s", lambda rows: len(rows) >= 2)
        cards.may.clear()
        assert cards.hangs.wait(240)
        asked, before = cards.questions, len(list(lines(tmp_path / "s")))
        until(tmp_path / "s", lambda rows: sum(not row["gpus"] for row in rows[before:]) >= 5)
        cards.may.set()
        found = until(tmp_path / "s", lambda rows: rows[-1]["gpus"])
    lacking = [row for row in found if not row["gpus"]]
    assert all("GPUs: NVML gave no answer for " in row["gap"] for row in lacking)
    assert {row["host_cpu_percent"] for row in lacking if "host_cpu_percent" in row} == {1.0}
    assert asked not in [row["gpus"][0]["index"] for row in found if row["gpus"]], "it was asked before the hang"
    assert found[-1]["gpus"][0]["index"] > asked
    assert [row["seconds"] for row in found] == sorted(row["seconds"] for row in found)
    assert relay.problems == ()


def test_it_hangs_again_and_again_and_comes_back_each_time(tmp_path: Path) -> None:
    cards = Cards()
    with relayed(tmp_path / "s", cards):
        for _ in range(3):
            count = len(until(tmp_path / "s", lambda rows: rows and rows[-1]["gpus"]))
            cards.may.clear()
            until(tmp_path / "s", lambda rows, count=count: rows[count:] and not rows[-1]["gpus"])
            cards.may.set()
        until(tmp_path / "s", lambda rows: rows[-1]["gpus"])


def test_it_ends_while_a_call_hangs_and_nothing_is_written_after_its_end(tmp_path: Path) -> None:
    cards = Cards()
    with relayed(tmp_path / "s", cards):
        until(tmp_path / "s", lambda rows: rows)
        cards.may.clear()
        until(tmp_path / "s", lambda rows: not rows[-1]["gpus"])
    before = list(lines(tmp_path / "s"))
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            assert link.readlink() != tmp_path / "s"
    cards.may.set()
    assert list(lines(tmp_path / "s")) == before


def test_cards_that_cannot_be_read_are_a_gap_with_its_words(tmp_path: Path) -> None:
    class Closed:
        def read(self, is_brief: bool = False) -> list[dict[str, Any]]:
            raise Gap("It is not loaded.")

    with relayed(tmp_path / "s", Closed(), patience=600.0):
        found = until(tmp_path / "s", lambda rows: len(rows) >= 2)
    missed = r"(\d+ ticks before this one were missed; )?"
    assert re.fullmatch(rf"{missed}GPUs: It is not loaded\.", found[0]["gap"])
