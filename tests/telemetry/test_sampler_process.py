"""The sampling process on a driver that hangs, crashes or is missing, and the sampler that takes over from it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import house
import pytest

from ngcdl import processes
from ngcdl.folder import lines
from ngcdl.telemetry import card_samples, container, sampler_process
from ngcdl.telemetry.sampler_process import SamplerProcess
from ngcdl.telemetry.usage import ContainerMeter, ProcessMeter

from .stand_in import Host

FIRST = "GPU-5f1e2d3c-0a1b-4c2d-8e3f-105010501050"
RUN = card_samples.RunProcesses([FIRST])


@pytest.fixture
def host(card: Host, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A host whose driver is the stand-in, for the children of this process."""
    for name, value in card.environment().items():
        monkeypatch.setenv(name, value)
    return card


def rows(path: Path) -> list[dict[str, Any]]:
    return list(lines(path))


def until(path: Path, met: Callable[[dict[str, Any]], Any], after: int = 0) -> dict[str, Any]:
    """Wait for a matching row beyond the first `after`; return it."""
    end = time.monotonic() + 240
    while time.monotonic() < end:
        if found := [row for row in rows(path)[after:] if met(row)]:
            return found[0]
        time.sleep(0.02)
    raise AssertionError(f"no such row in 240 s; the last one is {rows(path)[-1:]}")


def gaps(row: dict[str, Any]) -> list[str]:
    """Return the reasons in a row's gap, without the ticks that a busy machine missed."""
    return [one for one in (row["gap"] or "").split("; ") if one and "ticks before this one were missed" not in one]


def test_a_run_s_cards_its_host_and_its_usage_are_in_a_line(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    host.set(gpu0__clock_reasons=4, gpu0__energy_mj=2500)
    known = "container_cpu_percent", "memory_bytes"  # it forks, and a moment after that its memory is not
    with SamplerProcess(path, ProcessMeter(os.getpid()), RUN, 0.1) as sampler:
        row = until(path, lambda row: row["gpus"] and None not in map(row.get, known) and not gaps(row))
    (gpu,) = row["gpus"]
    assert (gpu["uuid"], gpu["index"], gpu["gpu_percent"], gpu["foreign_processes"]) == (FIRST, 0, 87, None)
    assert (gpu["energy_joules"], gpu["throttle_reasons"], gpu["memory_mhz"]) == (2.5, ["sw_power_cap"], 3504)
    assert row["memory_bytes"] > 0
    assert row["host_memory_bytes"] > 0
    assert row["cpu_percents"] is None or len(row["cpu_percents"]) == os.cpu_count()
    assert sampler.problems == ()
    assert rows(path)[0]["seconds"] > 0, "seconds are since the start here, not since that of the process"


def test_a_hanging_call_leaves_the_other_readings_and_comes_back_when_it_returns(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    with SamplerProcess(path, None, RUN, 0.1) as sampler:
        well = until(path, lambda row: row["gpus"])
        first = rows(path).index(well)
        host.set(hang__DeviceGetPowerUsage=1, gpu0__utilization=13)
        hung = time.time()  # a busy machine may have kept an earlier call waiting, too
        row = until(path, lambda row: "NVML gave no answer" in (row["gap"] or "") and row["t"] > hung, after=first)
        assert row["gpus"] == []
        assert until(path, lambda row: not row["gpus"] and row.get("host_memory_bytes"), after=rows(path).index(row))
        missed = until(path, lambda row: "missed" in (row["gap"] or ""), after=rows(path).index(row))
        assert "ticks before this one were missed" in missed["gap"]
        host.set(gpu0__utilization=14)
        before = well["gpus"][0]["gpu_percent"]
        back = until(
            path, lambda row: row["gpus"] and row["gpus"][0]["gpu_percent"] != before, after=rows(path).index(row)
        )
        assert back["gpus"][0]["gpu_percent"] == 14, "what was read before the hang is not what is now"
    assert sampler.problems == ()


def test_a_driver_that_hangs_at_its_start_holds_up_neither_the_samples_nor_the_end(host: Host, tmp_path: Path) -> None:
    host.set(hang__Init=1)
    path = tmp_path / "s.jsonl"
    sampler = SamplerProcess(path, ContainerMeter(container.folders(os.getpid())), RUN, 0.1)
    sampler.start()
    sampler.start()
    row = until(path, lambda row: row.get("host_cpu_percent") is not None)
    assert row["gpus"] == []
    assert "GPUs: NVML gave no answer for " in row["gap"]
    sampler.stop()  # it returns, though the driver never does
    sampler.stop()
    assert sampler.problems == ()


def test_a_driver_that_is_not_there_is_a_gap_with_its_words(host: Host, tmp_path: Path) -> None:
    host.state.unlink()
    with SamplerProcess(tmp_path / "s.jsonl", None, RUN, 0.1):
        row = until(tmp_path / "s.jsonl", lambda row: "NVML gave no answer" not in row["gap"])
    assert gaps(row) == ["GPUs: The NVIDIA driver is installed but not loaded."]


def test_a_driver_that_crashes_takes_the_process_along_and_the_other_readings_go_on_here(
    host: Host, tmp_path: Path
) -> None:
    path = tmp_path / "s.jsonl"
    with SamplerProcess(path, ContainerMeter(container.folders(os.getpid())), RUN, 0.1) as sampler:
        until(path, lambda row: row["gpus"])
        assert sampler._process is not None
        os.kill(sampler._process.pid, signal.SIGSEGV)
        row = until(path, lambda row: "ended" in (row["gap"] or ""))
        assert gaps(row) == ["GPUs: the sampling process ended by itself (signal 11)"]
        until(path, lambda row: row.get("host_cpu_percent") is not None, after=rows(path).index(row))
    assert row["gpus"] == []
    assert [row["seconds"] for row in rows(path)] == sorted(row["seconds"] for row in rows(path))
    sampler.stop()


def test_a_process_that_fails_leaves_its_last_words_in_the_gap(tmp_path: Path) -> None:
    with_words = SamplerProcess(tmp_path / "s.jsonl", None, RUN, 0.1)
    with_words._argument = "no JSON"
    with with_words:
        row = until(tmp_path / "s.jsonl", gaps)
    why = "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
    assert gaps(row) == [f"GPUs: the sampling process ended by itself (exit code 1: {why})"]


def test_a_process_that_writes_much_to_stderr_is_not_held_up_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nyes 'a line' | head -c 1000000 >&2\nprintf '\\nlast\\n\\n' >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))
    with SamplerProcess(tmp_path / "s.jsonl", None, RUN, 0.1):
        row = until(tmp_path / "s.jsonl", gaps)
    assert gaps(row) == ["GPUs: the sampling process ended by itself (exit code 3: last)"]


def test_a_process_that_is_silent_is_ended_and_the_other_readings_go_on_here(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler_process, "_LOOK_SECONDS", 0.1)
    path = tmp_path / "s.jsonl"
    with SamplerProcess(path, None, RUN, 0.1) as sampler:
        until(path, lambda row: row["gpus"])
        assert sampler._process is not None
        os.kill(sampler._process.pid, signal.SIGSTOP)
        sampler._silent_seconds = 0.4
        row = until(path, lambda row: "wrote" in (row["gap"] or ""))
    assert gaps(row)[0].startswith("GPUs: the sampling process wrote nothing for ")
    assert row["host_memory_bytes"] > 0


def test_a_process_that_does_not_end_is_killed(host: Host, tmp_path: Path) -> None:
    sampler = SamplerProcess(tmp_path / "s.jsonl", None, RUN, 0.1)
    sampler.start()
    process = sampler._process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    sampler.stop()
    assert process.wait(240) == -signal.SIGKILL, "a busy machine may take longer than a stop waits for it"


def test_a_child_ends_with_its_parent(host: Host, tmp_path: Path) -> None:
    code = f"""
import os, sys
from pathlib import Path
from ngcdl.telemetry import card_samples, container, sampler_process
sampler = sampler_process.SamplerProcess(Path(sys.argv[1]), None, card_samples.RunProcesses([{FIRST!r}]), 60)
sampler.start()
print(sampler._process.pid, flush=True)
os._exit(1)
"""
    pid = int(host.python(code, str(tmp_path / "s.jsonl")).stdout)
    house.until(lambda: (found := processes.look(pid)) is None or found.has_ended, "its end")


def test_a_program_that_cannot_be_started_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    abandoned = list(processes.abandoned)
    with SamplerProcess(tmp_path / "s.jsonl", None, RUN, 0.1):
        row = until(tmp_path / "s.jsonl", lambda row: row["gap"])
    assert gaps(row)[0].startswith("GPUs: the sampling process can't be started: ")
    assert processes.abandoned == abandoned


def test_samples_that_cannot_be_written_are_one_problem(host: Host, tmp_path: Path) -> None:
    with SamplerProcess(tmp_path / "no/s.jsonl", None, RUN, 0.1) as sampler:
        assert sampler._process is not None
        assert sampler._process.wait(240) == 0
    assert len(sampler.problems) == 1
    assert "No such file or directory; no samples are written from here on (0 were)" in sampler.problems[0]
