"""The batch script of a run on Slurm: golden texts, what no script may contain, and that bash can read the scripts.

To accept an intended change: NGCDL_WRITE_GOLDEN=1 pytest tests/engines/test_slurm_script.py, and read the diff.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from slurm_orders import COMMAND, DIGEST, FOLDER, ORDERS, TRAINING, ordered, program

from ngcdl.engines.slurm.engine import SlurmEngine
from ngcdl.engines.slurm.runners import READ_OUTSIDE, of_enroot
from ngcdl.engines.slurm.script import script
from ngcdl.errors import BadOption, PathUnfit
from ngcdl.spec import Mount, Placement

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
WHOLE = "training-docker"  # the other texts end where the part begins that is the same in all
BEFORE_TAIL = "srun=$!\n"


@pytest.mark.parametrize("name", ORDERS)
def test_the_script_is_the_golden_one_and_bash_can_read_it(name: str) -> None:
    text = script(ordered(ORDERS[name]))
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    if name != WHOLE:
        tail = script(ordered(ORDERS[WHOLE])).partition(BEFORE_TAIL)[2]
        assert text.endswith(BEFORE_TAIL + tail)
        text = text.removesuffix(tail)
    if os.environ.get("NGCDL_WRITE_GOLDEN"):
        (GOLDEN / f"slurm-{name}.sh").write_text(text)
    assert text == (GOLDEN / f"slurm-{name}.sh").read_text()


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


def test_a_secret_comes_with_the_job_though_the_site_sets_that_nothing_does(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBATCH_EXPORT", "NONE")
    program(programs, "squeue", "echo RUNNING")
    program(programs, "sbatch", f'echo "${{SBATCH_EXPORT-unset}} $HF_TOKEN" >{programs}/seen; echo 5')
    SlurmEngine(programs).start(replace(ordered(COMMAND), folder=programs))
    assert (programs / "seen").read_text() == "unset hush\n"
    assert "#SBATCH --export=ALL\n" in (programs / "job.sh").read_text(), "beats what else the site may have set"
    SlurmEngine(programs).start(replace(ordered(replace(COMMAND, environment=())), folder=programs))
    assert (programs / "seen").read_text() == "NONE \n"


def test_a_word_of_the_command_that_looks_like_a_secret_is_not_handed_in(tmp_path: Path) -> None:
    spec = replace(COMMAND, command=("x", "--api-key", "hush"))
    with pytest.raises(BadOption, match="looks like a secret") as refused:
        SlurmEngine(tmp_path).start(replace(ordered(spec), folder=tmp_path))
    assert "hush" not in refused.value.hint
    assert list(tmp_path.iterdir()) == []


def test_an_argument_that_is_no_valid_text_reaches_the_script_as_it_was_typed(programs: Path) -> None:
    program(programs, "squeue", "echo RUNNING")
    program(programs, "sbatch", f"cat >{programs}/seen; echo 5")
    spec = replace(COMMAND, command=("ls", os.fsdecode(b"caf\xe9")), environment=(("NAME", os.fsdecode(b"\xff")),))
    order = replace(ordered(spec), folder=programs)
    assert SlurmEngine(programs).fits(order) is None
    SlurmEngine(programs).start(order)
    text = (programs / "job.sh").read_bytes()
    assert b"caf\xe9" in text
    assert b"NAME=" in text
    assert b"\xff" in text


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


def test_a_folder_that_was_typed_for_the_cache_is_mounted_where_it_was_typed() -> None:
    text = script(ordered(replace(COMMAND, mounts=(Mount("/big", "/ngcdl/cache", writable=True),))))
    assert "source=/big,target=/ngcdl/cache " in text


@pytest.mark.parametrize(
    ("image", "enroot"),
    [
        ("nvcr.io/nvidia/pytorch:25.03-py3", "nvcr.io#nvidia/pytorch:25.03-py3"),
        (f"nvcr.io/nvidia/pytorch@{DIGEST}", f"nvcr.io#nvidia/pytorch:{DIGEST}"),
        ("docker.io/pytorch/pytorch:2.9", "registry-1.docker.io#pytorch/pytorch:2.9"),
        (f"127.0.0.1:5443/nvidia/pytorch:1@{DIGEST}", f"127.0.0.1:5443#nvidia/pytorch:{DIGEST}"),
    ],
)
def test_an_image_is_named_as_enroot_reads_it(image: str, enroot: str) -> None:
    assert of_enroot(image) == enroot


def test_cpus_that_were_asked_for_are_those_of_a_node_and_not_of_each_card() -> None:
    assert "#SBATCH --cpus-per-task=112\n" in script(ordered(TRAINING)), "14 for each of 8 cards"
    text = script(ordered(replace(TRAINING, cpu_limit=16, memory_bytes=1 << 40)))
    assert re.findall("^#SBATCH --cpus.*", text, re.MULTILINE) == ["#SBATCH --cpus-per-task=16"]
    assert "#SBATCH --mem=1048576M\n" in text
    with pytest.raises(BadOption, match="Slurm divides no CPU"):
        script(ordered(replace(TRAINING, cpu_limit=0.5)))


@pytest.mark.parametrize(
    ("typed", "left"),
    [
        ("--cpus-per-gpu=4", ["--gres=gpu:8", "--mem=1024M"]),
        ("-c 4", ["--gres=gpu:8", "--mem=1024M"]),
        ("--gpus-per-node=a100:4", ["--cpus-per-task=112", "--mem=1024M"]),
        ("-G16", ["--cpus-per-task=112", "--mem=1024M"]),
        ("--mem-per-gpu=8G", ["--gres=gpu:8", "--cpus-per-task=112"]),
        ("--exclusive", ["--gres=gpu:8", "--cpus-per-task=112", "--mem=1024M"]),
    ],
)
def test_an_option_that_was_typed_takes_the_place_of_ours_that_it_excludes(typed: str, left: list[str]) -> None:
    assert TRAINING.placement
    placement = replace(TRAINING.placement, options=(typed,))
    text = script(ordered(replace(TRAINING, memory_bytes=1 << 30, placement=placement)))
    assert re.findall("^#SBATCH (--(?:gres|cpus|mem).*|-[cG].*)", text.replace(typed, ""), re.MULTILINE) == left
    assert f"#SBATCH {typed}\n" in text


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("--comment=my run #2", '--comment="my run #2"'),
        ("--comment='my run'", "--comment='my run'"),
        ("--nodelist n1", "--nodelist n1"),
        ("--exclusive --mail-user=me --mail-type=END", "--exclusive --mail-user=me --mail-type=END"),
        ("--mail-user=me --exclusive", "--mail-user=me --exclusive"),
    ],
)
def test_a_typed_value_with_spaces_stays_one_for_sbatch(typed: str, line: str) -> None:
    assert f"#SBATCH {line}\n" in script(ordered(replace(COMMAND, placement=Placement(options=(typed,)))))


@pytest.mark.parametrize(("runner", "limits"), [
    ("docker", ["--memory=17179869185", "--cpus=4"]), ("podman", ["--memory=17179869185"]), ("pyxis", []),
    ("apptainer", []), ("singularity", []),
])  # fmt: skip
def test_a_container_that_a_daemon_starts_is_limited_like_its_job(runner: str, limits: list[str]) -> None:
    text = script(ordered(replace(COMMAND, placement=Placement(container=runner))))
    assert re.findall(r" (--(?:memory|cpus)=\S+)", text) == limits
    assert re.findall("^#SBATCH --(?:mem|cpus).*", text, re.MULTILINE) == [
        "#SBATCH --cpus-per-task=4", "#SBATCH --mem=16385M",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["A.B", "A-B", "1A", "", "A B", "Ä", "A\n", "X;touch /tmp/y;A"])
def test_a_variable_that_bash_can_t_have_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(BadOption, match="on Slurm a variable's name has only letters, digits and _"):
        script(ordered(replace(COMMAND, environment=((name, "1"),))))


@pytest.mark.parametrize(
    "name", ["PATH", "LD_PRELOAD", "SLURM_COMMENT", "SBATCH_COMMENT", "SQUEUE_TOKEN", "RUN", "name"]
)
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
