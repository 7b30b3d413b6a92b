"""A job of Slurm fetches its image once for all nodes: the generated script, run with programs that stand in."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from house import until
from slurm_orders import DIGEST, NOT_PREEMPTED, PREEMPTED, RESUMED, TRAINING, ordered, program

from ngcdl.engines.slurm.script import script
from ngcdl.spec import Placement

IMAGE = f"nvcr.io+nvidia+pytorch+sha256+{DIGEST.removeprefix('sha256:')}.sqsh"


def fetching(folder: Path, enroot: str, scontrol: str = ":", **site: str) -> subprocess.Popen[bytes]:
    """Start a job whose image is fetched once for all nodes, by this stand-in for enroot; its task does nothing."""
    spec = replace(TRAINING, placement=Placement(container="pyxis", images=str(folder / "images")))
    (folder / "images").mkdir(exist_ok=True)
    (folder / "job.sh").write_text(script(replace(ordered(spec), folder=folder)))
    program(folder, "enroot", enroot)
    program(folder, "srun", 'echo "$NGCDL_IMAGE" >srun.image')
    program(folder, "scontrol", scontrol)
    known = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "n1", **site}
    return subprocess.Popen(
        ["bash", "job.sh"], cwd=folder, env={"PATH": f"{folder}:/usr/bin:/bin", **known}, start_new_session=True
    )


@pytest.mark.parametrize("is_there", [True, False])
def test_an_image_that_somebody_else_fetched_needs_no_lock_and_one_that_can_t_be_fetched_ends_the_job(
    tmp_path: Path, is_there: bool
) -> None:
    (tmp_path / "images" / f"{IMAGE}.lock").mkdir(parents=True)  # root could write to any file
    if is_there:
        (tmp_path / "images" / IMAGE).touch()
    with fetching(tmp_path, "exit 1") as process:
        process.wait(240)
    told = json.loads((tmp_path / "exit.json").read_text())
    assert (process.returncode, told["code"]) == ((0, 0) if is_there else (125, 125))
    assert (tmp_path / "srun.image").exists() == is_there


def test_the_lock_of_an_image_is_for_all_users_and_one_that_may_only_be_read_does(tmp_path: Path) -> None:
    lock = tmp_path / "images" / f"{IMAGE}.lock"
    lock.mkdir(parents=True)  # like another user's file: it opens for reading only, for root, too
    with fetching(tmp_path, 'touch "$3"') as process:
        process.wait(240)
    assert (process.returncode, lock.with_suffix("").exists()) == (0, True)
    lock.rmdir()
    lock.with_suffix("").unlink()
    before = os.umask(0o077)
    try:
        with fetching(tmp_path, 'touch "$3"; umask >umask') as process:
            process.wait(240)
    finally:
        os.umask(before)
    assert (lock.stat().st_mode & 0o777, (tmp_path / "umask").read_text()) == (0o666, "0077\n")


def test_where_nothing_can_be_locked_each_job_fetches_the_image_into_a_file_of_its_own(tmp_path: Path) -> None:
    program(tmp_path, "flock", 'echo "flock: $1: Function not implemented" >&2; exit 65')
    with fetching(tmp_path, 'echo "$3" >part; touch "$3"') as process:
        process.wait(240)
    assert process.returncode == 0
    image = Path((tmp_path / "srun.image").read_text().strip())
    assert (tmp_path / "part").read_text() == f"{image}.part.7\n"
    image.unlink()
    with fetching(tmp_path, 'touch "$3"; exit 1') as process:
        process.wait(240)
    assert process.returncode == 125
    assert [path.suffix for path in image.parent.iterdir()] == [".lock"], "nobody else would overwrite a broken part"


def test_an_image_is_fetched_once_and_is_on_the_disk_before_it_has_its_name(tmp_path: Path) -> None:
    image, codes = tmp_path / "images" / IMAGE, []
    for synced in ("false", f"[ -e {image}.part -a ! -e {image} ]", "false"):
        program(tmp_path, "dd", synced)
        with fetching(tmp_path, 'echo "$*" >>calls; touch "$3"') as process:
            codes.append(process.wait(240))
    assert codes == [125, 0, 0]
    assert (tmp_path / "srun.image").read_text() == f"{image}\n"
    assert len((tmp_path / "calls").read_text().splitlines()) == 2


def test_a_folder_of_the_login_session_that_is_not_on_the_node_is_none_of_enroot_s(tmp_path: Path) -> None:
    for name, used in (("nowhere", tmp_path / "home"), ("run-user", tmp_path / "run-user")):
        (tmp_path / "run-user").mkdir(exist_ok=True)
        with fetching(tmp_path, 'echo "$XDG_RUNTIME_DIR" >seen', XDG_RUNTIME_DIR=f"{tmp_path}/{name}") as process:
            process.wait(240)
        assert (tmp_path / "seen").read_text() == f"{used}\n"


@pytest.mark.parametrize(
    ("said", "why"),
    [(NOT_PREEMPTED, "time_limit"), ("", "time_limit"), (RESUMED, "time_limit"), (PREEMPTED, "preempted")],
)
def test_a_time_limit_or_a_preemption_that_comes_while_the_image_is_fetched_is_told(
    tmp_path: Path, said: str, why: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    with fetching(tmp_path, "touch up; read -r _ <pipe", f'[ "$2" != job ] || echo "{said}"') as process:
        until((tmp_path / "up").exists, "the import")
        process.send_signal(signal.SIGUSR1)
        process.wait(240)
        os.killpg(process.pid, signal.SIGKILL)  # as Slurm ends what a job leaves
    told = json.loads((tmp_path / "exit.json").read_text())
    assert (process.returncode, told["code"], told["why"]) == (143, 143, why)
    assert not (tmp_path / "srun.image").exists()
