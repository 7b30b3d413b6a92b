"""The child process that asks the driver: slow, hanging, crashing, and whose processes are on a card."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ngcdl.telemetry import container, gpu_reader, gpu_worker
from ngcdl.telemetry.card import GpuProcess, GpuReading
from ngcdl.telemetry.gpu_reader import Gap, GpuReader
from ngcdl.telemetry.host import Cpu
from ngcdl.telemetry.sampler import Sampler, Sources

from .stand_in import Host

FIRST = "GPU-5f1e2d3c-0a1b-4c2d-8e3f-105010501050"


@pytest.fixture
def host(card: Host, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A host whose driver is the stand-in, for the children of this process."""
    for name, value in card.environment().items():
        monkeypatch.setenv(name, value)
    return card


def until(done: Callable[[], Any]) -> Any:
    """Try until it gives something: at most 10 s."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            return done()
        except Gap:
            continue
    raise AssertionError("no answer in 10 s")


def test_it_reads_the_run_s_cards_only(host: Host) -> None:
    reader = GpuReader([FIRST])
    assert reader.ready(10)
    (only,) = until(reader.read)
    assert (only.uuid, only.gpu_percent, only.foreign_processes) == (FIRST, 87, None)
    assert len(until(reader.read)) == 1
    reader.close()
    reader.close()
    with pytest.raises(Gap, match="closed"):
        reader.read()


def test_a_call_that_hangs_is_a_gap_until_it_returns(host: Host) -> None:
    reader = GpuReader([FIRST], patience_seconds=0.2)
    reader.ready(10)
    until(reader.read)
    host.set(hang__DeviceGetPowerUsage=1, gpu0__utilization=13)
    for _ in range(3):
        before = time.monotonic()
        with pytest.raises(Gap, match=r"NVML gave no answer for \d\.\d s"):
            reader.read()
        assert time.monotonic() - before < 1.5
    host.set(gpu0__utilization=14)
    (only,) = until(reader.read)
    assert only.gpu_percent == 14, "what was read before the hang is not what is now"
    reader.close()


def test_a_driver_that_hangs_at_its_start_does_not_hold_up_the_sampler(host: Host, tmp_path: Path) -> None:
    host.set(hang__Init=1)
    path = tmp_path / "s.jsonl"
    sampler = Sampler(path, Sources(lambda: Cpu(1.0), gpus=GpuReader(patience_seconds=0.1)), 0.1)
    sampler.start()
    end = time.monotonic() + 10
    while sampler.taken < 3 and time.monotonic() < end:
        time.sleep(0.05)
    before = time.monotonic()
    sampler.stop()
    assert time.monotonic() - before < 2
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) >= 3
    assert all(row["gpus"] == [] and "NVML gave no answer" in row["gap"] for row in rows)
    assert all(row["host_cpu_percent"] == 1.0 for row in rows)
    assert sampler.problems == ()


def test_a_driver_that_is_not_there_is_a_gap_with_its_words(host: Host) -> None:
    host.state.unlink()
    reader = GpuReader()
    reader.ready(10)
    for _ in range(2):
        with pytest.raises(Gap, match="installed but not loaded"):
            reader.read()
    reader.close()


def test_a_driver_that_crashes_takes_only_the_child_along(host: Host) -> None:
    reader = GpuReader()
    reader.ready(10)
    assert reader._process is not None
    os.kill(reader._process.pid, signal.SIGSEGV)
    for _ in range(2):
        with pytest.raises(Gap, match=r"ended by itself \(signal 11\)"):
            reader.read()


def test_a_child_ends_with_its_parent(host: Host) -> None:
    code = """
import os
from ngcdl.telemetry.gpu_reader import GpuReader
reader = GpuReader()
reader.ready(10)
print(reader._process.pid, flush=True)
os._exit(1)
"""
    pid = int(host.python(code).stdout)
    end = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text() and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text()


def test_a_program_that_cannot_be_started_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(Gap, match="can't be started"):
        GpuReader().read()
    assert gpu_reader._abandoned == []


def test_processes_of_others_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "pids_are_the_hosts", lambda: True)
    monkeypatch.setattr(container, "cgroup_text", lambda pid: None if pid == 404 else "0::/")
    ours, theirs, hidden = GpuProcess(1, container_id="a"), GpuProcess(2, container_id="b"), GpuProcess(404)
    on = {"container": "a", "pid": None}
    assert gpu_worker.foreign(GpuReading(0, processes=(ours, theirs, GpuProcess(3))), on) == 2
    assert gpu_worker.foreign(GpuReading(0, processes=()), on) == 0
    assert gpu_worker.foreign(GpuReading(0, processes=(ours, hidden)), on) is None
    assert gpu_worker.foreign(GpuReading(0, processes=None), on) is None
    assert gpu_worker.foreign(GpuReading(0, processes=(ours,)), {}) is None
    with subprocess.Popen(["sleep", "60"]) as child:  # our parent may be process 1 itself
        here = GpuReading(0, processes=(GpuProcess(child.pid), GpuProcess(1)))
        assert gpu_worker.foreign(here, {"pid": os.getpid()}) == 1
        child.kill()


def test_the_processes_of_others_are_looked_at_twice_a_second_at_most_and_known_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(container, "pids_are_the_hosts", lambda: True)
    monkeypatch.setattr(container, "cgroup_text", {2: "0::/"}.get)
    now = iter([0.0, 0.4, 0.6])
    others = gpu_worker.Others({"container": "a", "pid": None}, lambda: next(now))
    assert others.are_due()
    (first,) = others.samples([GpuReading(0, "GPU-1", processes=(GpuProcess(2, container_id="b"),))], fresh=True)
    assert not others.are_due()
    (second,) = others.samples([GpuReading(0, "GPU-1")], fresh=False)
    assert others.are_due()
    assert (first.foreign_processes, second.foreign_processes) == (1, 1)


def test_a_sample_has_the_energy_and_the_reasons(host: Host) -> None:
    host.set(gpu0__clock_reasons=4, gpu0__energy_mj=2500)
    reader = GpuReader([FIRST])
    assert reader.ready(10)
    (only,) = until(reader.read)
    assert (only.energy_joules, only.throttle_reasons, only.memory_mhz) == (2.5, ("sw_power_cap",), 3504)
    reader.close()
