"""The batch script of a run on Slurm: golden texts, what is in none of them, and that bash can read them.

To accept a change that is meant: NGCDL_WRITE_GOLDEN=1 pytest tests/engines/test_slurm_script.py, and read the diff.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from house import until
from hypothesis import given, settings
from hypothesis import strategies as st

from ngcdl.engines.base import Order
from ngcdl.engines.slurm.engine import SlurmEngine
from ngcdl.engines.slurm.runners import READ_OUTSIDE, of_enroot
from ngcdl.engines.slurm.script import script
from ngcdl.errors import BadOption, PathUnfit
from ngcdl.spec import CONTAINERS, GpuRequest, ImageRef, Mount, Placement, RunSpec, Workload

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
    text = script(replace(ordered(spec), folder=folder)).partition("\ntask=")[2]
    return re.split(r"\n(?:env .*\\\n    )?srun ", text)[0]


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


# -- what was typed, as it arrives ------------------------------------------------------------------------------------

# Of each Slurm, loader or shell reads what it is called, or the script itself does.
READ = {
    **{"PATH": "/nowhere", "LD_PRELOAD": "/no.so", "LD_LIBRARY_PATH": "/nowhere", "BASH_ENV": "/nowhere"},
    **{"SLURM_JOB_ID": "9", "SLURM_CPU_BIND": "x", "UID": "5", "IFS": "e", "HOME": "/nowhere", "TMPDIR": "/nowhere"},
    **{"RUN": "/nowhere", "NGCDL_RUN": "/nowhere", "task": "x", "name": "x", "code": "7", "mark": "x", "more": "x"},
}
PLAIN = {"MASTER_PORT": "5", "NCCL_DEBUG": "INFO"}
SRUN = """printf '%s\\0' "$@" >srun.words
/bin/cat /proc/self/environ >srun.environ
while [ "$1" != bash ]; do shift; done
export SLURM_PROCID=0 SLURM_NODEID=0 SLURMD_NODENAME=n1
exec "$@"
"""
CLIENTS = """[ "$1" != rm ] || exit 0
printf '%s\\0' "$@" >client.words
/bin/cat /proc/self/environ >client.environ
"""


def handed_in(spec: RunSpec, folder: Path, is_kept: bool = False) -> None:
    """Run the batch script of `spec` in `folder`, on one node, with HF_TOKEN as its secret; it must end well.

    There are then the words and the variables of srun (srun.words, srun.environ), of what runs the image
    (client.words, client.environ), and what was written (out)."""
    program(folder / "srun", SRUN)
    program(folder / "scontrol", 'echo "KillWait = 30"')
    for client in ("docker", "podman", "apptainer"):
        program(folder / client, CLIENTS)
    (folder / "job.sh").write_text(script(replace(ordered(spec), folder=folder), is_kept))
    known = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "n1", "HF_TOKEN": "hush"}
    kept = {"NGCDL_RUN": str(folder)} if is_kept else {}
    with (folder / "out").open("wb") as out:
        done = subprocess.run(
            ["bash", str(folder / "job.sh")], env={"PATH": f"{folder}:/usr/bin:/bin", **known, **kept}, cwd=folder,
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, timeout=20, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "exit.json").read_text())["code"] == 0


def words(path: Path) -> list[str]:
    return path.read_bytes().decode().split("\0")[:-1]


def variables(path: Path) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in words(path))


def asked(runner: str, environment: dict[str, str]) -> RunSpec:
    """A command that writes the variables that it has."""
    given = (*environment.items(), ("HF_TOKEN", "hush"))
    return replace(
        COMMAND, command=("/bin/cat", "/proc/self/environ"), environment=given, placement=Placement(container=runner)
    )


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("runner", CONTAINERS)
def test_variables_that_the_host_s_programs_would_read_reach_the_task_alone(
    tmp_path: Path, runner: str, is_kept: bool
) -> None:
    typed = {**READ, **PLAIN}
    handed_in(asked(runner, typed), tmp_path, is_kept)
    outside = variables(tmp_path / "srun.environ")
    assert not {name for name, value in READ.items() if outside.get(name) == value}
    if runner == "pyxis":
        found = variables(tmp_path / "out")
        (names,) = [word for word in words(tmp_path / "srun.words") if word.startswith("--container-env=")]
        assert set(names.partition("=")[2].split(",")) == {*PLAIN, "HF_TOKEN"}, "image and hooks read these"
    elif runner == "apptainer":
        environ = variables(tmp_path / "client.environ")
        assert not {name for name, value in READ.items() if environ.get(name) == value}
        prefix = "APPTAINERENV_"
        found = {name.removeprefix(prefix): value for name, value in environ.items() if name.startswith(prefix)}
        found["HF_TOKEN"] = environ["HF_TOKEN"]
    else:
        environ = variables(tmp_path / "client.environ")
        assert not {name for name, value in READ.items() if environ.get(name) == value}
        given = words(tmp_path / "client.words")
        pairs = [given[at + 1].partition("=") for at, word in enumerate(given) if word == "-e"]
        found = {name: value if equals else environ.get(name, "") for name, equals, value in pairs}
    assert {name: found.get(name) for name in typed} == typed
    assert found["HF_TOKEN"] == "hush"
    assert "hush" not in (tmp_path / "job.sh").read_text() + (tmp_path / "srun.words").read_text()
    assert runner == "pyxis" or "hush" not in (tmp_path / "client.words").read_text()


TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20)
ODD = st.one_of(TEXT, st.text("ab /\\'\"`$(){};&|<>*?~#!\n\t", max_size=20))


@settings(max_examples=25)
@given(where=ODD, value=ODD, word=ODD, digest=ODD, runner=st.sampled_from(CONTAINERS))
def test_whatever_was_typed_arrives_as_it_is_and_nothing_of_it_is_run(
    where: str, value: str, word: str, digest: str, runner: str
) -> None:
    spec = replace(asked(runner, {"WORDS": value}), workdir=f"/{where}")
    if runner != "pyxis":
        spec = replace(spec, command=("python", word))
    with tempfile.TemporaryDirectory() as made:
        folder, target = Path(made), f"nvcr.io/nvidia/pytorch@sha256:{digest}"
        text = script(Order(spec, ID, folder, target, "none"))
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)
        handed_in(spec, folder)
        srun = words(folder / "srun.words")
        if runner == "pyxis":
            assert f"--container-workdir=/{where}" in srun
            assert variables(folder / "out")["WORDS"] == value
            return
        assert srun[-2:] == ["python", word]
        client = words(folder / "client.words")
        assert client[-2:] == ["python", word]
        if runner == "apptainer":
            assert client[client.index("--pwd") + 1] == f"/{where}"
            assert variables(folder / "client.environ")["APPTAINERENV_WORDS"] == value
        else:
            assert f"--workdir=/{where}" in client
            assert f"WORDS={value}" in client


@settings(max_examples=25)
@given(digest=ODD, runner=st.sampled_from(CONTAINERS), is_kept=st.booleans())
def test_an_image_whose_digest_is_none_is_one_word_for_bash(digest: str, runner: str, is_kept: bool) -> None:
    target = f"nvcr.io/nvidia/pytorch@sha256:{digest}"
    text = script(Order(asked(runner, {}), ID, FOLDER, target, "none"), is_kept)
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    name = of_enroot(target) if runner == "pyxis" else target
    if runner in ("pyxis", "apptainer"):
        wanted = name if runner == "pyxis" else f"docker://{name}"
        line = text[text.index("export NGCDL_IMAGE=") : text.index("\ntask=")]
        shown = subprocess.run(["bash", "-c", f'{line}\nprintf %s "$NGCDL_IMAGE"'], capture_output=True, check=True)
        assert shown.stdout.decode() == wanted


@pytest.mark.parametrize("name", ["A.B", "A-B", "1A", "", "A B", "Ä", "A\n", "X;touch /tmp/y;A"])
def test_a_variable_that_bash_can_t_have_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(BadOption, match="on Slurm a variable's name has letters, digits and _ alone"):
        script(ordered(replace(COMMAND, environment=((name, "1"),))))


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "SLURM_COMMENT", "SBATCH_COMMENT", "RUN", "name"])
def test_a_secret_that_would_come_with_the_job_under_a_name_that_others_read_is_refused(name: str) -> None:
    with pytest.raises(BadOption, match=f"-e {name}: ") as refused:
        script(ordered(replace(COMMAND, environment=((name, "nvapi-hush"),))))
    assert "hush" not in refused.value.message + refused.value.hint


@pytest.mark.parametrize("name", ORDERS)
def test_every_variable_of_the_scripts_own_is_known_to_be_read(name: str) -> None:
    text = script(ordered(ORDERS[name]), is_kept=True)
    ours = set(re.findall(r"(?:^|[;&|({'] *|export |for |read -r )([A-Za-z_]\w*)(?:=|\+=| in | <)", text, re.MULTILINE))
    assert {"RUN", "attempt", "mark", "file", "told"} <= ours
    typed = {variable for variable, _ in ORDERS[name].environment} | {"MASTER_ADDR", "MASTER_PORT"}
    assert {one for one in ours - typed if not READ_OUTSIDE.fullmatch(one)} <= {"NCCL_DEBUG"}
