"""`ngcdl gpu --watch` with stdout not a terminal."""

from __future__ import annotations

import io
import json
import os
import re
from dataclasses import replace

import pytest

from ngcdl import processes
from ngcdl.cli.gpu import _card, _processes, _watch, gpu
from ngcdl.errors import BadOption
from ngcdl.telemetry.card import Driver, GpuProcess, GpuReading
from ngcdl.terminal_text import plain


class FakeNvml:
    """A driver with one card; the third reading raises KeyboardInterrupt."""

    left = 3

    def read(self, activity: bool) -> tuple[GpuReading, ...]:
        assert activity, "one reading alone can't tell how much of a card worked"
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt
        return (GpuReading(0, name="Tesla T4"),)

    def driver(self) -> Driver:
        return Driver("535.104.05", None, "12.2")


class EightCards(FakeNvml):
    """A driver with eight cards; the second reading raises KeyboardInterrupt."""

    left = 2

    def read(self, activity: bool) -> tuple[GpuReading, ...]:
        (card,) = super().read(activity)
        return tuple(
            replace(
                card, index=at, gpu_percent=97, memory_used_bytes=40 << 30, memory_total_bytes=80 << 30, watts=650.2,
                celsius=61, processes=(GpuProcess(1234, 40 << 30, "python"),), error="GPU is lost" if at == 7 else None,
            )
            for at in range(8)
        )  # fmt: skip


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(monkeypatch: pytest.MonkeyPatch, columns: int, rows: int) -> list[str]:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    for name, value in {"TERM": "xterm", "COLUMNS": f"{columns}", "LINES": f"{rows}", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(KeyboardInterrupt):
        _watch(EightCards(), False, 0.0)
    *_, frame = plain(terminal.getvalue()).rpartition("Driver")
    return [line.rstrip() for line in f"Driver{frame}".splitlines()]


def test_where_the_cards_don_t_fit_each_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    head, names, *cards = drawn(monkeypatch, 80, 24)
    assert head == "Driver 535.104.05   CUDA 12.2   NVML n/a"
    assert names == "GPU   USE             MEMORY  POWER  TEMP  PROCESSES  NAME"
    assert cards == [
        *(f"  {at}  97 %  40960 / 81920 MiB  650 W  61 C  1          Tesla T4" for at in range(7)),
        "  7  97 %  40960 / 81920 MiB  650 W  61 C  1          error: GPU is lost",
    ]
    assert drawn(monkeypatch, 80, 100)[2] == "GPU 0  Tesla T4   compute capability n/a", "there is room for all"
    assert drawn(monkeypatch, 40, 24)[2].endswith("…"), "what is cut has a mark"


def test_where_not_even_a_line_for_each_card_fits_it_says_how_many_there_are_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = drawn(monkeypatch, 80, 8)
    assert len(lines) == 8
    assert (lines[-2][:3], lines[-1]) == ("  4", "3 more: ngcdl gpu shows all GPUs")


def test_a_narrow_terminal_gets_whole_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, 40, 100)[4:10] == [
        *("  use 97 %   memory 40960 / 81920 MiB", "    memory traffic n/a"),
        *("  power 650 / n/a W   clock n/a", "    temperature 61 C"),
        *("   PID     MEMORY  USER  NAME", "      CONTAINER"),
    ]


@pytest.mark.parametrize(("columns", "name"), [("60", "python"), ("120", "python train.py"), (None, "python train.py")])
def test_a_python_has_its_script_beside_it_where_that_needs_no_second_line(
    monkeypatch: pytest.MonkeyPatch, columns: str | None, name: str
) -> None:
    monkeypatch.setattr(processes, "script", {os.getpid(): "train.py"}.get)
    if columns:
        monkeypatch.setattr("sys.stdout", Terminal())
        monkeypatch.setenv("COLUMNS", columns)
    rows = _processes(
        (GpuProcess(os.getpid(), 1 << 30, "python", "c1"), GpuProcess(1)), {"c1": "ngcdl-20261121-143222"}
    )
    assert [re.split(" {2,}", row.strip())[3:] for row in rows[1:]] == [
        [name, "ngcdl-20261121-143222"], ["n/a", "-"],
    ], rows  # fmt: skip


def watched(capsys: pytest.CaptureFixture[str], as_json: bool) -> str:
    with pytest.raises(KeyboardInterrupt):
        _watch(FakeNvml(), as_json, 0.0)
    return capsys.readouterr().out


def test_a_log_gets_the_text_of_each_reading_with_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    heads = re.findall(
        r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d   (.*)\n\n(.*) compute", watched(capsys, as_json=False), re.MULTILINE
    )
    assert heads == [("Driver 535.104.05   CUDA 12.2   NVML n/a", "GPU 0  Tesla T4  ")] * 2


def test_a_program_gets_a_line_of_json_for_each_reading(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [json.loads(line) for line in watched(capsys, as_json=True).splitlines()]
    assert [line["gpus"][0]["name"] for line in lines] == ["Tesla T4"] * 2
    assert all(line["t"] > 0 for line in lines)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan"), 1e10])
def test_seconds_that_nobody_can_wait_are_refused(seconds: float) -> None:
    with pytest.raises(BadOption, match=r"--watch .*: must be a number of seconds above 0, at most 1,000,000,000"):
        gpu(watch=seconds)


@pytest.mark.parametrize(("mode", "said"), [
    ("Prohibited", ["  compute mode Prohibited: no program can compute on it"]), ("Default", []), (None, []),
    ("Exclusive_Process", [
        "  compute mode Exclusive_Process: only one program can compute on it (several through MPS)",
    ]),
])  # fmt: skip
def test_who_may_compute_on_a_card_is_said_where_not_everybody_may(mode: str | None, said: list[str]) -> None:
    lines = _card(GpuReading(0, "GPU-1", compute_mode=mode), {}).splitlines()
    assert [line for line in lines if "compute mode" in line] == said
    lines = _card(GpuReading(0, "GPU-1", compute_mode=mode, mig=True), {}).splitlines()
    assert [line for line in lines if "compute mode" in line] == [], "of a card with MIG on, its MIG devices count"


def test_how_much_of_a_card_worked_is_said_where_it_is_known() -> None:
    worked = GpuReading(
        0, gpu_percent=97, sm_active_percent=12.4, tensor_active_percent=0.0, dram_bandwidth_percent=0.3
    )
    _, _, use, activity, *_ = _card(worked, {}).splitlines()
    assert use.startswith("  use 97 %")
    assert activity == "  SMs active 12 %, occupancy n/a, tensor cores 0 %, DRAM 0.30 %"
    assert "SMs" not in _card(GpuReading(0, gpu_percent=97), {})
