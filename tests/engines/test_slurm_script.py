"""The batch script of a run on Slurm: golden texts, what is in none of them, and that bash can read them.

To accept a change that is meant: NGCDL_WRITE_GOLDEN=1 pytest tests/engines/test_slurm_script.py, and read the diff.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from house import until

from ngcdl.engines.base import Order
from ngcdl.engines.slurm.engine import SlurmEngine
from ngcdl.engines.slurm.runners import of_enroot
from ngcdl.engines.slurm.script import script
from ngcdl.errors import BadOption, PathUnfit
from ngcdl.spec import GpuRequest, ImageRef, Mount, Placement, RunSpec, Workload

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
ID = "20180216-182126-cifar10-beef"
FOLDER = Path("/home/me/.local/state/ngcdl/runs") / ID
DIGEST = "sha256:" + "5" * 64
TRAINING = RunSpec(
    ImageRef.parse("pytorch:25.03-py3"),
    ("python", "-m", "trainer", "cifar10", "--out", "/ngcdl/run", "--data", "/ngcdl/data", "--resume", "/ngcdl/resume"),
    GpuRequest("count", count=8),
    mounts=(
        Mount("/opt/ngcdl/containers/trainer", "/ngcdl/trainer"),
        Mount("/scratch/cifar10", "/ngcdl/data"),
        Mount("/home/me/.local/state/ngcdl/runs/older", "/ngcdl/resume"),
    ),
    environment=(("PYTHONUNBUFFERED", "1"), ("WORDS", "a 'b'")),
    user="1000:1000",
    workdir="/ngcdl",
    workload=Workload("cifar10"),
    placement=Placement(2, "gpu", "physics", time_limit="1:00:00", container="pyxis", cpus=14),
)
COMMAND = RunSpec(
    ImageRef.parse("pytorch:25.03-py3"),
    ("python", "my train.py", "--epochs", "3"),
    GpuRequest("none"),
    mounts=(Mount("/home/me/code", "/work", writable=True), Mount("/data", "/data")),
    environment=(("HF_TOKEN", "hush"),),
    user="1000:1000",
    workdir="/work",
    placement=Placement(container="docker", options=("--exclusive", "--mail-type=END")),
)
ORDERS = {
    "training-pyxis": TRAINING,
    "training-docker": replace(TRAINING, placement=Placement(2, container="docker")),
    "training-podman": replace(TRAINING, placement=Placement(container="podman")),
    "command-docker-no-gpu": COMMAND,
    "command-apptainer": replace(
        COMMAND, gpus=GpuRequest("count", count=1), placement=Placement(container="apptainer", images="/scratch/images")
    ),
    "training-pyxis-image-once": replace(
        TRAINING, placement=Placement(64, container="pyxis", images="/scratch/images")
    ),
}


def ordered(spec: RunSpec) -> Order:
    assert spec.image
    return Order(spec, ID, FOLDER, spec.image.pinned(DIGEST), "none" if spec.gpus.kind == "none" else "gres")


@pytest.mark.parametrize("name", ORDERS)
def test_the_script_is_the_golden_one_and_bash_can_read_it(name: str) -> None:
    text = script(ordered(ORDERS[name]))
    if os.environ.get("NGCDL_WRITE_GOLDEN"):
        (GOLDEN / f"slurm-{name}.sh").write_text(text)
    assert text == (GOLDEN / f"slurm-{name}.sh").read_text()
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


@pytest.mark.parametrize("name", ORDERS)
def test_a_script_to_keep_makes_a_folder_of_its_own_and_names_none_of_this_run_s(name: str) -> None:
    text = script(ordered(ORDERS[name]), is_kept=True)
    assert str(FOLDER) not in text
    assert "#SBATCH --output=ngcdl-%j.txt\n" in text
    assert ("cp -r" in text) == (" --record" in text) == name.startswith("training")
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


@pytest.mark.parametrize("is_kept", [True, False])
def test_no_secret_stands_in_it_and_a_job_without_it_says_which(is_kept: bool) -> None:
    text = script(ordered(COMMAND), is_kept)
    assert "hush" not in text
    (line,) = [line for line in text.splitlines() if line.startswith(': "${HF_TOKEN')]
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, env={})
    assert done.returncode
    assert "export HF_TOKEN, then sbatch" in done.stderr


def test_a_word_of_the_command_that_looks_like_a_secret_is_not_handed_in(tmp_path: Path) -> None:
    spec = replace(COMMAND, command=("x", "--api-key", "hush"))
    with pytest.raises(BadOption, match="looks like a secret") as refused:
        SlurmEngine(tmp_path).start(replace(ordered(spec), folder=tmp_path))
    assert "hush" not in refused.value.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "mount",
    [
        Mount("/my data", "/data"),
        Mount("/a,b", "/data"),
        Mount("/a", "/b:c"),
        Mount("volume", "/data"),
        Mount('/"', "/d"),
    ],
)
def test_a_path_that_an_option_would_split_is_refused(mount: Mount) -> None:
    with pytest.raises(PathUnfit):
        script(ordered(replace(COMMAND, mounts=(mount,))))


# A client whose engine forbids the limit $FORBIDDEN, and of whose containers each ends with 7.
CLIENT = """[ "$1" != rm ] || exit 0
echo "$*" >>calls
case "$*" in *"$FORBIDDEN"*)
    echo 'error during container init: error setting rlimit type 8: operation not permitted' >&2
    exit 125
esac
exit 7
"""


def program(path: Path, lines: str) -> None:
    path.write_text(f"#!/bin/bash\n{lines}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(("forbidden", "times"), [("--ulimit memlock=-1", 3), ("nothing", 1)])
def test_a_node_that_forbids_memlock_says_so_once_and_runs_the_image_without(
    tmp_path: Path, forbidden: str, times: int
) -> None:
    program(tmp_path / "docker", CLIENT)
    known = {"NGCDL_RUN": str(tmp_path), "NGCDL_ATTEMPT": "0", "SLURMD_NODENAME": "n1", "FORBIDDEN": forbidden}
    done = subprocess.run(
        ["bash", "-c", f'task={task_of(COMMAND, tmp_path)}\nbash -c "$task" task true'], cwd=tmp_path,
        capture_output=True, text=True, check=False, env={"PATH": f"{tmp_path}:/usr/bin:/bin", **known},
    )  # fmt: skip
    assert done.returncode == 7
    assert (tmp_path / ".task-0-n1").read_text() == "7\n"
    assert done.stderr.count("ngcdl: n1 forbids --ulimit memlock=-1") == (times > 1)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == times
    assert calls[-1].endswith(" true")
    assert "--ulimit stack=67108864" in calls[-1]
    assert ("memlock" in calls[-1]) == (times == 1)


def task_of(spec: RunSpec, folder: Path) -> str:
    return script(replace(ordered(spec), folder=folder)).partition("\ntask=")[2].partition("\nsrun ")[0]


@pytest.mark.parametrize(("is_stop", "mark", "code"), [(False, "137", -signal.SIGKILL), (True, "77", 0)])
def test_a_task_that_slurm_kills_is_no_lost_node_and_one_that_ngcdl_stops_has_its_time(
    tmp_path: Path, is_stop: bool, mark: str, code: int
) -> None:
    program(tmp_path / "sleep", f"touch {tmp_path}/waits")
    if is_stop:
        (tmp_path / ".stopping").touch()
    hears = "'exit 77'" if is_stop else "''"
    works = (
        f"trap {hears} TERM; grep SigIgn /proc/self/status >ignored; touch up; while :; do read -rt 0.05 <>pipe; done"
    )
    os.mkfifo(tmp_path / "pipe")
    known = {"NGCDL_RUN": str(tmp_path), "NGCDL_ATTEMPT": "0", "SLURMD_NODENAME": "n1", "NGCDL_KILL_SECONDS": "25"}
    words = ["bash", "-c", f'task={task_of(TRAINING, tmp_path)}\nexec bash -c "$task" task bash -c "$0"', works]
    with subprocess.Popen(
        words, cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin", **known}, start_new_session=True
    ) as process:
        until((tmp_path / "up").exists, "the training")
        os.killpg(process.pid, signal.SIGTERM)
        if is_stop:
            process.wait(20)
        else:
            until(lambda: (tmp_path / ".task-0-n1").read_text() == "137\n", "the mark")
            os.killpg(process.pid, signal.SIGKILL)
    assert ((tmp_path / ".task-0-n1").read_text(), process.returncode) == (f"{mark}\n", code)
    assert (tmp_path / "waits").exists() != is_stop
    ours = Path("/proc/self/status").read_text().partition("SigIgn:")[2].split()[0]
    theirs = (tmp_path / "ignored").read_text().split()[1]
    assert int(theirs, 16) & 0b110 == int(ours, 16) & 0b110, "Ctrl-C and Ctrl-\\ are what they were"


@pytest.mark.parametrize(
    ("srun", "marks", "code", "is_queued_again"),
    [
        (137, {"n1": "1", "n2": "137"}, 1, False),
        (137, {"n1": "137", "n2": "3"}, 3, False),
        (137, {"n1": "137", "n2": "143"}, 137, False),
        (0, {"n1": "143", "n2": "0"}, 143, False),
        (137, {"n1": "137", "n2": "began"}, 137, True),
        (0, {"n1": "0", "n2": "began"}, 137, True),
        (0, {"n1": "0", "n2": "0"}, 0, False),
    ],
)
def test_a_task_that_failed_by_itself_speaks_for_the_killed_and_only_a_lost_node_queues_the_job_again(
    tmp_path: Path, srun: int, marks: dict[str, str], code: int, is_queued_again: bool
) -> None:
    (tmp_path / "job.sh").write_text(script(replace(ordered(TRAINING), folder=tmp_path)))
    writes = [f"echo {mark} >{tmp_path}/.task-0-{node}" for node, mark in marks.items()]
    program(tmp_path / "srun", "; ".join([*writes, f"exit {srun}"]))
    program(tmp_path / "scontrol", f'[ "$1" != requeue ] || touch {tmp_path}/again')
    known = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
    done = subprocess.run(
        ["bash", str(tmp_path / "job.sh")], env={"PATH": f"{tmp_path}:/usr/bin:/bin", **known}, check=False
    )
    assert (done.returncode, (tmp_path / "again").exists()) == (code, is_queued_again)
    if not is_queued_again:
        assert json.loads((tmp_path / "exit.json").read_text())["code"] == code


def test_a_job_that_is_ended_before_any_task_has_begun_is_no_success(tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(script(replace(ordered(TRAINING), folder=tmp_path)))
    caught = "0x$(sed -n 's/^SigCgt:[[:space:]]*//p' /proc/$PPID/status)"
    program(tmp_path / "srun", f"until (({caught} & 0x4000)); do :; done; kill -TERM $PPID; exit 0")
    program(tmp_path / "scontrol", ":")
    known = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "n1"}
    where = {"PATH": f"{tmp_path}:/usr/bin:/bin", **known}
    done = subprocess.run(["bash", str(tmp_path / "job.sh")], env=where, check=False)
    assert (done.returncode, json.loads((tmp_path / "exit.json").read_text())["code"]) == (143, 143)


@pytest.mark.parametrize(
    ("image", "enroot"),
    [
        ("nvcr.io/nvidia/pytorch:25.03-py3", "nvcr.io#nvidia/pytorch:25.03-py3"),
        (f"nvcr.io/nvidia/pytorch@{DIGEST}", f"nvcr.io#nvidia/pytorch:{DIGEST}"),
        (f"127.0.0.1:5443/nvidia/pytorch:1@{DIGEST}", f"127.0.0.1:5443#nvidia/pytorch:{DIGEST}"),
    ],
)
def test_an_image_is_named_as_enroot_reads_it(image: str, enroot: str) -> None:
    assert of_enroot(image) == enroot


def test_the_run_goes_on_from_its_own_checkpoint_and_before_there_is_one_from_the_other_s(tmp_path: Path) -> None:
    text = script(replace(ordered(TRAINING), folder=tmp_path))
    begin, end = text.index("resume=()"), text.index("\ntask=")
    part = f'RUN={tmp_path}\n{text[begin:end]}\necho "${{resume[@]}}"'
    assert subprocess.check_output(["bash", "-c", part], text=True) == "\n"
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/step-50.npz").touch()
    assert subprocess.check_output(["bash", "-c", part], text=True) == f"--resume {tmp_path}\n"
    assert f"--resume {FOLDER.with_name('older')} " in text, "what was typed stands before it, and the later counts"
