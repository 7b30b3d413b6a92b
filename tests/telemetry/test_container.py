from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngcdl.telemetry import container
from ngcdl.telemetry.container import ContainerMeter, ProcessMeter, Usage

A, B = "a1" * 32, "b2" * 32

LINES = {
    "docker, v2, cgroupfs": (f"0::/docker/{A}", A),
    "docker, v2, systemd": (f"0::/system.slice/docker-{A}.scope", A),
    "docker, v2, an init inside": (f"0::/system.slice/docker-{A}.scope/init.scope", A),
    "docker, v1": (
        f"12:pids:/docker/{A}\n4:cpu,cpuacct:/docker/{A}\n1:name=systemd:/docker/{A}\n0::/system.slice/c.service",
        A,
    ),
    "docker, rootless": (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{A}.scope", A),
    "docker, cgroup-parent": (f"0::/jobs.slice/jobs-batch.slice/docker-{A}.scope", A),
    "podman": (f"0::/machine.slice/libpod-{A}.scope/container", A),
    "podman, rootless": (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{A}.scope", A),
    "podman, cgroupfs": (f"3:memory:/libpod_parent/libpod-{A}", A),
    "podman, split": (f"0::/system.slice/web.service/libpod-payload-{A}", A),
    "podman's conmon": (f"0::/machine.slice/libpod-conmon-{A}.scope", None),
    "containerd, Kubernetes, systemd": (
        "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_5.slice/" + f"cri-containerd-{A}.scope",
        A,
    ),
    "containerd, Kubernetes, colons": (
        f"0::/system.slice/containerd.service/kubepods-burstable-pod12.slice:cri-containerd:{A}",
        A,
    ),
    "Kubernetes, cgroupfs": (f"9:cpuset:/kubepods/besteffort/pod12-34/{A}", A),
    "CRI-O": (f"0::/kubepods.slice/kubepods-pod12.slice/crio-{A}.scope", A),
    "nerdctl": (f"0::/system.slice/nerdctl-{A}.scope", A),
    "containerd's ctr": (f"0::/default/{A}", A),
    "ECS": (f"4:memory:/ecs/0123456789abcdef/{A}", A),
    "Docker in Docker": (f"4:memory:/docker/{A}/docker/{B}", A),
    "a session": ("0::/user.slice/user-1000.slice/session-3.scope", None),
    "a service": ("0::/system.slice/docker.service", None),
    "lxc": ("0::/lxc.payload.web", None),
    "the root": ("0::/", None),
    "nothing": ("", None),
    "garbage": ("no colon\n::\n0::" + "f" * 63, None),
    "an image's digest in a name": (f"0::/build-{A}-x", None),
}


@pytest.mark.parametrize(("text", "expected"), LINES.values(), ids=LINES.keys())
def test_a_container_is_known_by_its_cgroup(text: str, expected: str | None) -> None:
    ids = container.container_ids(text)
    assert (ids[0] if ids else None) == expected


def test_the_containers_around_us_are_not_the_process_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "PROC", tmp_path)
    for pid, path in (("self", f"/docker/{A}"), ("7", f"/docker/{A}/docker/{B}"), ("8", f"/docker/{A}")):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cgroup").write_text(f"4:memory:{path}\n")
    assert container.container_of(7) == B
    assert container.container_of(8) is None
    assert container.container_of(9) is None
    assert container.cgroup_text(9) is None


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    assert all(len(one) == 64 for one in container.container_ids(text))
    container.whole_container(text)


def test_a_group_below_the_container_is_cut_off() -> None:
    assert container.whole_container(f"/docker/{A}/init.scope/x") == f"/docker/{A}"
    assert container.whole_container("/user.slice/x") == "/user.slice/x"


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
    meter = ContainerMeter(tmp_path, clock)
    clock.seconds += 2
    (tmp_path / "cpu.stat").write_text("usage_usec 4000000\nuser_usec 5\n")
    (tmp_path / "memory.pressure").write_text("some avg10=2.50 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 ...\n")
    (tmp_path / "memory.events").write_text("max 4\noom 1\noom_kill 1\n")
    assert meter.read() == Usage(150.0, 3500, 4000, 2.5, 1)
    clock.seconds += 1
    (tmp_path / "cpu.stat").write_text("usage_usec 3000000\n")
    assert meter.read().cpu_percent is None, "a counter that fell tells nothing, and not 0"
    for file in ("cpu.stat", "memory.current"):
        (tmp_path / file).unlink()
    assert meter.read() == Usage(None, None)


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
    meter = ContainerMeter(7, clock)
    clock.seconds += 1
    (cpu / "cpuacct.usage").write_text("1250000000\n")
    assert meter.read() == Usage(25.0, 8000, psutil.virtual_memory().total, None, 2)


def test_this_very_process_s_cgroup_can_be_read() -> None:
    assert container.cgroup_text("self")
    assert container.name_of(os.getpid())
    ContainerMeter(os.getpid()).read()


def test_a_tree_of_processes_is_measured_with_its_children() -> None:
    clock = Clock()
    grow = "x = bytearray(40 << 20); print(len(x), flush=True); input()"
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grow!r}])"
    with subprocess.Popen([sys.executable, "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        meter = ProcessMeter(process.pid, clock)
        clock.seconds += 1
        usage = meter.read()
        process.communicate(b"\n")
    assert usage.memory_bytes is not None
    assert usage.memory_bytes > 40 << 20
    assert usage.cpu_percent is not None
    assert meter.read() == Usage()


def test_a_process_that_is_gone_is_unknown() -> None:
    assert ProcessMeter(2**22 + 1).read() == Usage()
    assert ContainerMeter(2**22 + 1).read() == Usage()
