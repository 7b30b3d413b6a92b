from __future__ import annotations

import os
from pathlib import Path

import pytest

from ngcdl.telemetry import container
from ngcdl.telemetry.processors import processors

HERE = float(len(os.sched_getaffinity(0)))
GROUPS = {
    "none": ("0::/", {}, HERE),
    "version 2, no limit": ("0::/", {"cpu.max": "max 100000\n"}, HERE),
    "version 2, in a container": ("0::/", {"cpu.max": "50000 100000\n"}, 0.5),
    "version 2, a limit further out": (
        "0::/a.slice/b.scope", {"a.slice/cpu.max": "75000 100000\n", "a.slice/b.scope/cpu.max": "max 100000\n"}, 0.75,
    ),
    "version 1": (
        "4:cpu,cpuacct:/a",
        {"cpu,cpuacct/a/cpu.cfs_quota_us": "25000\n", "cpu,cpuacct/a/cpu.cfs_period_us": "100000\n"},
        0.25,
    ),
    "version 1, no limit": ("4:cpu:/", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, HERE),
    "version 1, a container that sees its own group as the root": (
        "4:cpu:/docker/x\n0::/", {"cpu/cpu.cfs_quota_us": "10000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.1,
    ),
    "more than there are": ("0::/", {"cpu.max": "99900000 100000\n"}, HERE),
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPS)
def test_a_process_has_as_many_processors_as_its_groups_let_it_have(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member, files, wanted = GROUPS[name]
    for path, text in {"proc/self/cgroup": f"{member}\n", **{f"groups/{one}": it for one, it in files.items()}}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.setattr(container, "PROC", tmp_path / "proc")
    monkeypatch.setattr(container, "CGROUPS", tmp_path / "groups")
    assert processors() == wanted


def test_a_process_that_may_run_on_one_has_one() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert processors() <= 1
    finally:
        os.sched_setaffinity(0, allowed)
