"""What a task of a run on Slurm gives its container of the node: its cards, and the folder of the login session."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from slurm_orders import CLIENT, TRAINING, program, task_of

from ngcdl.spec import GpuRequest, Placement

MIG = "MIG-fc8cbe25-5d3a-5e23-a5fc-f5bd41a8f8d5", "MIG-5d3a8cbe-fc25-5e23-a5fc-f5bd41a8f8d5"
UUIDS = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "GPU-00020000-d72c-4106-c12f-20bd9faed9f6"
NO_DRIVER = ("NVIDIA-SMI has failed",)


@pytest.mark.parametrize(
    ("step", "visible", "listed", "names"),
    [
        ("2,3", "0,1", UUIDS, UUIDS),
        ("0", "0", UUIDS[:1], UUIDS[:1]),
        ("0", "0", UUIDS, ("0",)),
        ("0,2", "0,1", UUIDS[:1], ("0", "2")),
        ("2", None, NO_DRIVER, ("2",)),
        ("2", "0", None, ("2",)),
        ("5,6", ",".join(UUIDS), None, UUIDS),
        ("5,6", ",".join(MIG), UUIDS, MIG),
    ],
)
@pytest.mark.parametrize("runner", ["docker", "podman", "podman that knows no UUID"])
def test_a_container_gets_the_very_cards_that_slurm_gave_by_their_uuids_where_they_are_certain(
    tmp_path: Path, runner: str, step: str, visible: str | None, listed: tuple[str, ...] | None, names: tuple[str, ...]
) -> None:
    runner, _, knows_none = runner.partition(" ")
    if knows_none and names == listed:
        names = tuple(step.split(","))
    program(tmp_path, runner, CLIENT)
    if listed:
        program(tmp_path, "nvidia-smi", f"printf '%s\\n' {shlex.join(listed)}")
    known_there = "0 all" if knows_none else f"0 {' '.join(UUIDS)} all"
    program(tmp_path, "nvidia-ctk", f"printf 'nvidia.com/gpu=%s\\n' {known_there}")
    spec = replace(TRAINING, placement=Placement(container=runner), environment=())
    known = {"NGCDL_RUN": str(tmp_path), "NGCDL_ATTEMPT": "0", "SLURMD_NODENAME": "n1", "FORBIDDEN": "nothing"}
    given = {"SLURM_STEP_GPUS": step} | ({"CUDA_VISIBLE_DEVICES": visible} if visible else {})
    subprocess.run(
        ["bash", "-c", f'task={task_of(spec, tmp_path)}\nbash -c "$task" task true'], cwd=tmp_path,
        check=False, env={"PATH": f"{tmp_path}:/usr/bin:/bin", **known, **given},
    )  # fmt: skip
    (call,) = (tmp_path / "calls").read_text().splitlines()
    if runner == "docker":
        assert f'--gpus "device={",".join(names)}" ' in call
    else:
        assert re.findall(r"--device nvidia.com/gpu=(\S+)", call) == list(names)


@pytest.mark.parametrize(("is_there", "seen"), [(True, "{0} unix:path={0}/bus"), (False, "none none")])
def test_a_folder_of_the_login_session_that_is_not_on_the_node_is_none_of_podman_s(
    tmp_path: Path, is_there: bool, seen: str
) -> None:
    program(tmp_path, "podman", 'echo "${XDG_RUNTIME_DIR-none} ${DBUS_SESSION_BUS_ADDRESS-none}" >seen')
    runtime = tmp_path if is_there else Path("/nowhere/1000")
    known = {"NGCDL_RUN": str(tmp_path), "NGCDL_ATTEMPT": "0", "SLURMD_NODENAME": "n1"}
    known |= {"XDG_RUNTIME_DIR": str(runtime), "DBUS_SESSION_BUS_ADDRESS": f"unix:path={runtime}/bus"}
    spec = replace(TRAINING, gpus=GpuRequest("none"), placement=Placement(container="podman"))
    subprocess.run(
        ["bash", "-c", f'task={task_of(spec, tmp_path)}\nbash -c "$task" task true'], cwd=tmp_path,
        check=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin", **known},
    )  # fmt: skip
    assert (tmp_path / "seen").read_text() == seen.format(runtime) + "\n"


def test_without_a_card_from_slurm_a_container_gets_none_though_one_is_to_be_seen(tmp_path: Path) -> None:
    program(tmp_path, "docker", CLIENT)
    program(tmp_path, "nvidia-smi", f"echo {UUIDS[0]}")
    known = {"NGCDL_RUN": str(tmp_path), "NGCDL_ATTEMPT": "0", "SLURMD_NODENAME": "n1"}
    spec = replace(TRAINING, placement=Placement(container="docker"))
    done = subprocess.run(
        ["bash", "-c", f'task={task_of(spec, tmp_path)}\nbash -c "$task" task true'], cwd=tmp_path,
        capture_output=True, text=True, check=False, env={"PATH": f"{tmp_path}:/usr/bin:/bin", **known},
    )  # fmt: skip
    assert (done.returncode, (tmp_path / "calls").exists()) == (125, False)
    assert "Slurm names no GPU on this node" in done.stderr
