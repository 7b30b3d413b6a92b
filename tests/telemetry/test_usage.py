from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from ngcdl.telemetry import container, usage
from ngcdl.telemetry.usage import ContainerMeter, Meter, ProcessMeter, Usage, _Shares, meter

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
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 1500\nactive_file 1000\nshmem 700\n")
    (tmp_path / "memory.max").write_text("4000\n")
    measured = ContainerMeter({"": tmp_path}, clock)
    clock.seconds += 2
    (tmp_path / "cpu.stat").write_text("usage_usec 4000000\nuser_usec 5\n")
    (tmp_path / "memory.pressure").write_text("some avg10=2.50 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 ...\n")
    (tmp_path / "memory.events").write_text("max 4\noom 1\noom_kill 1\n")
    assert measured.read() == Usage(150.0, 2500, 4000, 2.5, 1)
    clock.seconds += 1
    (tmp_path / "cpu.stat").write_text("usage_usec 3000000\n")
    assert measured.read().cpu_percent is None, "a counter that fell tells nothing, and not 0"
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 1500\n")
    assert measured.read().memory_bytes is None, "without the file cache it isn't known, and not all of it"
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
    (memory / "memory.stat").write_text("inactive_file 1\ntotal_inactive_file 1000\ntotal_active_file 3000\n")
    (memory / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (memory / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    measured = ContainerMeter(7, clock)
    clock.seconds += 1
    (cpu / "cpuacct.usage").write_text("1250000000\n")
    assert measured.read() == Usage(25.0, 5000, psutil.virtual_memory().total, None, 2)
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
        used = measured.read()
        process.communicate(b"\n")
    assert used.memory_bytes is not None
    assert used.memory_bytes > 40 << 20
    assert used.cpu_percent is not None
    assert measured.read() == Usage()


def known(one: Meter) -> Usage:
    """Return a reading with the memory. On a busy machine one reading has not the time to look at all processes, and an
    earlier test may have left some."""
    end = time.monotonic() + 240
    while (used := one.read()).memory_bytes is None and time.monotonic() < end:
        time.sleep(0.1)
    return used


def test_pages_that_forked_workers_share_count_once() -> None:
    fork = "import os; x = b'x' * (80 << 20); all(os.fork() for _ in range(4)) and print(flush=True); os.read(0, 1)"
    with subprocess.Popen([sys.executable, "-c", fork], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        used = known(ProcessMeter(process.pid)).memory_bytes or 0
        process.communicate(b"")
    assert 80 << 20 < used < 160 << 20


@pytest.fixture
def shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that makes processes by PID, each with its share of the memory, in KiB."""
    monkeypatch.setattr(container, "PROC", tmp_path)

    def made(**processes: int) -> None:
        for pid, size in processes.items():
            (tmp_path / pid[1:]).mkdir(exist_ok=True)
            (tmp_path / pid[1:] / "smaps_rollup").write_text(f"0-1 [rollup]\nRss: 99 kB\nPss:       {size} kB\n")

    return made


def test_processes_whose_memory_can_t_be_read_have_an_unknown_sum(shares: Callable[..., None], tmp_path: Path) -> None:
    shares(p1=10, p2=20)
    assert _Shares(Clock()).read([1, 2]) == 30 << 10
    assert _Shares(Clock()).read([1, 2, 3]) == 30 << 10, "3 has ended meanwhile"
    (tmp_path / "3").mkdir()
    for family in ([1, 2, 3], [3, 2, 1]):
        assert _Shares(Clock()).read(family) is None, "and not what was read of the others"


def test_much_memory_is_looked_at_little_by_little(
    shares: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    shares(p1=10, p2=20)
    clock = Clock()
    of, looked = _Shares(clock), list[int]()

    def slow(pid: int) -> int | None:
        looked.append(pid)
        clock.seconds += 0.25
        return share(pid)

    share = usage._share
    monkeypatch.setattr(usage, "_share", slow)
    assert (of.read([1, 2]), looked) == (None, [1]), "half a sum is none"
    clock.seconds += 12
    assert (of.read([1, 2]), looked) == (None, [1]), "a fiftieth of the time is for this"
    clock.seconds += 1
    assert (of.read([1, 2]), looked) == (30 << 10, [1, 2])
    shares(p1=11)
    assert of.read([1, 2]) == 30 << 10, "until the next round is over"
    assert of.read([1]) == 30 << 10, "the pages of one that ended are now the others'"
    shares(p3=7)
    assert of.read([1, 2, 3]) is None, "the old sum isn't theirs"
    seen = []
    for _ in range(3):
        clock.seconds += 13
        seen.append(of.read([1, 2, 3]))
    assert seen == [None, None, 38 << 10]
    clock.seconds += 13
    assert of.read([1, 2, 3]) == 38 << 10, "1 is looked at for the next round"
    shares(p1=31)
    seen = []
    for _ in range(2):
        clock.seconds += 13
        seen.append(of.read([1, 3]))
    assert seen == [38 << 10, 38 << 10], "a round begins anew if one ends: its part is the others' now"
    assert looked[-3:] == [1, 1, 3]


def test_what_befell_others_in_the_same_control_group_is_not_a_process_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory.max").write_text("4000\n")
    (tmp_path / "memory.pressure").write_text("some avg10=42.00 avg60=0.00 avg300=0.00 total=1\n")
    (tmp_path / "memory.events").write_text("oom_kill 3\n")
    monkeypatch.setattr(container, "folders", lambda _: {"": tmp_path})
    used = known(ProcessMeter(os.getpid()))
    assert used.memory_bytes
    assert (used.memory_limit_bytes, used.memory_pressure_percent, used.memory_oom_kills) == (4000, None, None)


def test_a_process_that_ends_while_it_is_read_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text("4000\n")
    monkeypatch.setattr(container, "folders", lambda _: {"": tmp_path})
    mine = ProcessMeter(os.getpid())

    def gone(process: psutil.Process) -> None:
        raise psutil.NoSuchProcess(process.pid)

    monkeypatch.setattr(psutil.Process, "oneshot", gone)
    assert mine.read() == Usage()


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
    assert known(again(mine)).memory_bytes


def test_a_process_that_has_the_number_of_one_that_ended_is_not_measured_for_it() -> None:
    told = ProcessMeter(os.getpid()).told()
    assert meter(told | {"began": told["began"] - 1}).read() == Usage()


def test_where_a_host_has_both_versions_the_container_is_measured_by_version_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On such a host version 2's group is that of the service that started the container, with all else that the
    service started."""
    clock = Clock()
    monkeypatch.setattr(container, "PROC", tmp_path / "proc")
    monkeypatch.setattr(container, "CGROUPS", tmp_path)
    paths = f"4:memory:/docker/{A}\n2:cpuacct:/docker/{A}\n0::/system.slice/containerd.service\n"
    files = {
        "proc/7/cgroup": paths,
        f"cpuacct/docker/{A}/cpuacct.usage": "0\n",
        f"memory/docker/{A}/memory.usage_in_bytes": "7000\n",
        f"memory/docker/{A}/memory.stat": "total_inactive_file 0\ntotal_active_file 0\n",
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
