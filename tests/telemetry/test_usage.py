from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ngcdl.telemetry import container
from ngcdl.telemetry.usage import ContainerMeter, Meter, ProcessMeter, Usage, meter

A = "a1" * 32


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_a_container_of_version_2_is_measured(tmp_path: Path) -> None:
    clock = Clock()
    (tmp_path / "cpu.stat").write_text("usage_usec 1000000\nuser_usec 5\n")
    (tmp_path / "memory.current").write_text("5000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 1500\n")
    (tmp_path / "memory.max").write_text("4000\n")
    measured = ContainerMeter({"": tmp_path}, clock)
    clock.seconds += 2
    (tmp_path / "cpu.stat").write_text("usage_usec 4000000\nuser_usec 5\n")
    (tmp_path / "memory.pressure").write_text("some avg10=2.50 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 ...\n")
    (tmp_path / "memory.events").write_text("max 4\noom 1\noom_kill 1\n")
    assert measured.read() == Usage(150.0, 3500, 4000, 2.5, 1)
    clock.seconds += 1
    (tmp_path / "cpu.stat").write_text("usage_usec 3000000\n")
    assert measured.read().cpu_percent is None, "a counter that fell tells nothing, and not 0"
    for file in ("cpu.stat", "memory.current"):
        (tmp_path / file).write_text("")
    assert measured.read() == Usage(None, None)


def test_a_container_of_version_1_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(container, "PROC", tmp_path / "proc")
    monkeypatch.setattr(container, "CGROUPS", tmp_path)
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text(f"5:cpu,cpuacct:/docker/{A}\n4:memory:/docker/{A}/init.scope\n0::/\n")
    cpu, memory = tmp_path / f"cpu,cpuacct/docker/{A}", tmp_path / f"memory/docker/{A}"
    cpu.mkdir(parents=True)
    memory.mkdir(parents=True)
    (cpu / "cpuacct.usage").write_text("1000000000\n")
    (memory / "memory.usage_in_bytes").write_text("9000\n")
    (memory / "memory.stat").write_text("inactive_file 1\ntotal_inactive_file 1000\n")
    (memory / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (memory / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    measured = ContainerMeter(7, clock)
    clock.seconds += 1
    (cpu / "cpuacct.usage").write_text("1250000000\n")
    assert measured.read() == Usage(25.0, 8000, psutil.virtual_memory().total, None, 2)
    (tmp_path / "proc/7/cgroup").write_text("4:memory:/docker\n")
    (tmp_path / "memory/docker/memory.usage_in_bytes").write_text("9000\n")
    assert ContainerMeter(7).read() == Usage(), "the engine gives it no group: what is there is everybody's"


def test_a_tree_of_processes_is_measured_with_its_children() -> None:
    clock = Clock()
    grow = "x = bytearray(40 << 20); print(len(x), flush=True); input()"
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grow!r}])"
    with subprocess.Popen([sys.executable, "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        measured = ProcessMeter(process.pid, clock)
        clock.seconds += 1
        usage = measured.read()
        process.communicate(b"\n")
    assert usage.memory_bytes is not None
    assert usage.memory_bytes > 40 << 20
    assert usage.cpu_percent is not None
    assert measured.read() == Usage()


def test_what_befell_others_in_the_same_control_group_is_not_a_process_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory.max").write_text("4000\n")
    (tmp_path / "memory.pressure").write_text("some avg10=42.00 avg60=0.00 avg300=0.00 total=1\n")
    (tmp_path / "memory.events").write_text("oom_kill 3\n")
    monkeypatch.setattr(container, "folders", lambda _: {"": tmp_path})
    usage = ProcessMeter(os.getpid()).read()
    assert usage.memory_bytes
    assert (usage.memory_limit_bytes, usage.memory_pressure_percent, usage.memory_oom_kills) == (4000, None, None)


def test_a_process_that_is_gone_is_unknown() -> None:
    assert ProcessMeter(2**22 + 1).read() == Usage()
    assert ContainerMeter(2**22 + 1).read() == Usage()
    assert meter(ContainerMeter(2**22 + 1).told()).read() == Usage()


def test_another_process_makes_the_same_meter_of_what_it_is_told() -> None:
    def again(one: Meter) -> Meter:
        return meter(json.loads(json.dumps(one.told())))

    folders = container.folders(os.getpid())
    assert again(ContainerMeter(folders)).told() == {"folders": {name: str(path) for name, path in folders.items()}}
    mine = ProcessMeter(os.getpid())
    assert again(mine).told() == mine.told()
    assert again(mine).read().memory_bytes


def test_a_process_that_has_the_number_of_one_that_ended_is_not_measured_for_it() -> None:
    told = ProcessMeter(os.getpid()).told()
    assert meter(told | {"began": told["began"] - 1}).read() == Usage()


def test_where_a_host_has_both_versions_the_container_is_measured_by_version_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 2's path there is the starting service's, which covers all that it ever started."""
    clock = Clock()
    monkeypatch.setattr(container, "PROC", tmp_path / "proc")
    monkeypatch.setattr(container, "CGROUPS", tmp_path)
    paths = f"4:memory:/docker/{A}\n2:cpuacct:/docker/{A}\n0::/system.slice/containerd.service\n"
    files = {
        "proc/7/cgroup": paths,
        f"cpuacct/docker/{A}/cpuacct.usage": "0\n",
        f"memory/docker/{A}/memory.usage_in_bytes": "7000\n",
        "unified/system.slice/containerd.service/cpu.stat": "usage_usec 0\n",
        "unified/system.slice/containerd.service/memory.pressure": "some avg10=50.00 avg60=0.00\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    measured = ContainerMeter(7, clock)
    clock.seconds += 1
    (tmp_path / f"cpuacct/docker/{A}/cpuacct.usage").write_text("500000000\n")
    (tmp_path / "unified/system.slice/containerd.service/cpu.stat").write_text("usage_usec 9000000\n")
    assert measured.read() == Usage(50.0, 7000)
