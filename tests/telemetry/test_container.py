from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngcdl.telemetry import container

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


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (f"4:memory:/docker/{A}/docker/{B}/x\n0::/docker/{A}", ["memory"]),
        (f"4:memory:/docker/{A}\n0::/docker/{A}", []),
        ("0::/user.slice/user-1000.slice/session-3.scope", []),
        (f"0::/user.slice/user-1000.slice/docker-{B}.scope/init.scope", [""]),
    ],
)
def test_only_groups_that_name_the_container_are_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, names: list[str]
) -> None:
    monkeypatch.setattr(container, "PROC", tmp_path)
    for pid, content in (("self", f"0::/docker/{A}"), ("7", text)):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cgroup").write_text(content)
    found = container.folders_of_container(7)
    assert list(found) == names
    assert all(B in folder.name for folder in found.values())


def test_this_very_process_s_cgroup_can_be_read() -> None:
    assert container.cgroup_text("self")
    assert container.name_of(os.getpid())
