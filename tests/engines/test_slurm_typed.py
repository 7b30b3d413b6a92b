"""What was typed for a run on Slurm (arguments, variables, secrets) reaches its task unchanged, and alone."""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slurm_orders import COMMAND, FOLDER, ID, ordered, program

from ngcdl.engines.slurm.runners import of_enroot
from ngcdl.engines.slurm.script import script
from ngcdl.engines.values import Order
from ngcdl.errors import BadOption
from ngcdl.spec import CONTAINERS, GpuRequest, Placement, RunSpec

# Variables that Slurm, the loader, a shell or the script itself reads.
READ = {
    **{"PATH": "/nowhere", "LD_PRELOAD": "/no.so", "LD_LIBRARY_PATH": "/nowhere", "BASH_ENV": "/nowhere"},
    **{"SLURM_JOB_ID": "9", "SLURM_CPU_BIND": "x", "UID": "5", "IFS": "e", "HOME": "/nowhere", "TMPDIR": "/nowhere"},
    **{"RUN": "/nowhere", "NGCDL_RUN": "/nowhere", "task": "x", "name": "x", "code": "7", "mark": "x", "more": "x"},
}
PLAIN = {"MASTER_PORT": "5", "NCCL_DEBUG": "INFO"}
SRUN = """printf '%s\\0' "$@" >srun.words
/bin/cat /proc/self/environ >srun.environ
[[ $* != *--container-image=* || $* =~ --container-env=[A-Z_,]*MASTER_ADDR ]] || export MASTER_ADDR=n1 # enroot's hook
while [ "$1" != bash ]; do shift; done
export SLURM_PROCID=0 SLURM_NODEID=0 SLURMD_NODENAME=n1
exec "$@"
"""
SCONTROL = """case "$1 $2" in
"show hostnames") echo n1 ;;
"show node") echo "NodeName=n1 NodeAddr=10.0.0.1 NodeHostName=n1" ;;
*) echo "KillWait = 30" ;;
esac
"""
CLIENTS = """[ "$1" != rm ] || exit 0
[ "$1" != pull ] || : >"$2"
printf '%s\\0' "$@" >client.words
/bin/cat /proc/self/environ >client.environ
"""


PREFIXES = {"apptainer": "APPTAINERENV_", "singularity": "SINGULARITYENV_"}


def handed_in(spec: RunSpec, folder: Path, is_kept: bool = False, **site: str) -> None:
    """Run the batch script of `spec` in `folder`, on one node, with HF_TOKEN as its secret and the site's variables; it
    must succeed.

    It leaves the arguments and variables of srun (srun.words, srun.environ) and of what runs the image
    (client.words, client.environ), and the output (out)."""
    program(folder, "srun", SRUN)
    program(folder, "scontrol", SCONTROL)
    for client in ("docker", "podman", *PREFIXES):
        program(folder, client, CLIENTS)
    (folder / "job.sh").write_text(script(replace(ordered(spec), folder=folder), is_kept))
    known = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "n1", "HF_TOKEN": "hush", **site}
    kept = {"NGCDL_RUN": str(folder)} if is_kept else {}
    with (folder / "out").open("wb") as out:
        done = subprocess.run(
            ["bash", str(folder / "job.sh")], env={"PATH": f"{folder}:/usr/bin:/bin", **known, **kept}, cwd=folder,
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "exit.json").read_text())["code"] == 0


def words(path: Path) -> list[str]:
    return path.read_bytes().decode().split("\0")[:-1]


def variables(path: Path) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in words(path))


def asked(runner: str, environment: dict[str, str]) -> RunSpec:
    """Return a command that prints its variables."""
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
    if runner in PREFIXES:
        with pytest.raises(BadOption, match=f"-e UID, GID: {runner} gives no container"):
            script(ordered(asked(runner, {**typed, "GID": "5"})))
        del typed["UID"]
    handed_in(asked(runner, typed), tmp_path, is_kept)
    outside = variables(tmp_path / "srun.environ")
    assert not {name for name, value in READ.items() if outside.get(name) == value}
    if runner == "pyxis":
        found = variables(tmp_path / "out")
        (names,) = [word for word in words(tmp_path / "srun.words") if word.startswith("--container-env=")]
        read = {"MASTER_ADDR", *PLAIN, "HF_TOKEN"}
        assert set(names.partition("=")[2].split(",")) == read, "image and hooks read these"
    elif prefix := PREFIXES.get(runner):
        environ = variables(tmp_path / "client.environ")
        assert not {name for name, value in READ.items() if environ.get(name) == value}
        found = {name.removeprefix(prefix): value for name, value in environ.items() if name.startswith(prefix)}
        assert "HOME" not in found, "neither takes it"
        given = words(tmp_path / "client.words")
        source, _, found["HOME"] = given[given.index("--home") + 1].partition(":")
        assert source == f"{tmp_path}/home"
        found["HF_TOKEN"] = environ["HF_TOKEN"]
    else:
        environ = variables(tmp_path / "client.environ")
        assert not {name for name, value in READ.items() if environ.get(name) == value}
        found = inside(tmp_path)
    assert {name: found.get(name) for name in typed} == typed
    assert found["HF_TOKEN"] == "hush"
    assert "hush" not in (tmp_path / "job.sh").read_text() + (tmp_path / "srun.words").read_text()
    assert runner == "pyxis" or "hush" not in (tmp_path / "client.words").read_text()


@pytest.mark.parametrize("runner", CONTAINERS)
def test_a_command_is_told_how_many_nodes_there_are_which_one_it_is_on_and_where_node_0_is(
    tmp_path: Path, runner: str
) -> None:
    handed_in(asked(runner, {}), tmp_path)
    if runner in PREFIXES:  # it passes on what is set outside
        found = variables(tmp_path / "client.environ")
    else:
        found = variables(tmp_path / "out") if runner == "pyxis" else inside(tmp_path)
    told = {"NGCDL_NODES": "1", "NGCDL_NODE": "0", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "20007"}
    assert {name: found.get(name) for name in told} == told


@pytest.mark.parametrize("runner", CONTAINERS)
def test_a_library_of_the_host_s_is_not_loaded_into_the_image_s_programs(tmp_path: Path, runner: str) -> None:
    handed_in(asked(runner, {}), tmp_path, LD_PRELOAD="/soft/xalt/lib64/libxalt_init.so")
    assert "LD_PRELOAD" not in variables(tmp_path / "srun.environ")


def test_a_node_has_one_task_though_a_job_for_several_was_typed(tmp_path: Path) -> None:
    spec = asked("docker", {})
    assert spec.placement
    placement = replace(spec.placement, options=("--ntasks-per-node=8",))
    handed_in(replace(spec, placement=placement), tmp_path, SLURM_NTASKS="8", SLURM_NTASKS_PER_NODE="8")
    assert {"--ntasks=1", "--ntasks-per-node=1"} <= set(words(tmp_path / "srun.words"))


@pytest.mark.parametrize(("typed", "address"), [({}, "10.0.0.1"), ({"MASTER_ADDR": "login"}, "login")])
def test_node_0_is_found_by_its_address_though_a_hook_of_enroot_s_would_give_its_name(
    tmp_path: Path, typed: dict[str, str], address: str
) -> None:
    handed_in(asked("pyxis", typed), tmp_path)
    found = variables(tmp_path / "out")
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == (address, "20007")


@pytest.mark.parametrize("typed", [{}, {"PYTHONPATH": "/work/src"}])
@pytest.mark.parametrize("runner", CONTAINERS)
def test_the_packages_of_the_submitter_s_python_are_not_those_of_the_image_s(
    tmp_path: Path, runner: str, typed: dict[str, str]
) -> None:
    shell = dict.fromkeys(("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE"), "/apps/python/3.11")
    handed_in(asked(runner, typed), tmp_path, **shell)
    if runner == "pyxis":
        found = variables(tmp_path / "out")
    elif prefix := PREFIXES.get(runner):
        found = {name.removeprefix(prefix): value for name, value in variables(tmp_path / "client.environ").items()}
    else:
        found = inside(tmp_path)
    assert {name: found[name] for name in shell if name in found} == typed


@pytest.mark.parametrize(("gpus", "typed", "read"), [
    ("none", {}, {"NVIDIA_VISIBLE_DEVICES": "void"}),
    ("count", {}, {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "all"}),
    ("count", {"NVIDIA_DRIVER_CAPABILITIES": "utility"},
     {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "utility"}),
])  # fmt: skip
def test_what_enroot_s_hook_reads_is_decided_by_the_run_and_by_what_was_typed_and_not_by_the_image(
    tmp_path: Path, gpus: Literal["none", "count"], typed: dict[str, str], read: dict[str, str]
) -> None:
    program(tmp_path, "nvidia-smi", "exit 0")
    handed_in(replace(asked("pyxis", typed), gpus=GpuRequest(gpus, count=1 if gpus == "count" else None)), tmp_path)
    found = variables(tmp_path / "srun.environ")
    assert {name: value for name, value in found.items() if name.startswith("NVIDIA_")} == read


@pytest.mark.parametrize(("option", "asks"), [
    ("--gres=gpu:2", True), ("--gpus-per-node=2", True), ("-G2", True), ("--tres-per-task=gres/gpu:1", True),
    ("--exclusive", False),
])  # fmt: skip
def test_gpus_that_were_typed_for_sbatch_are_left_to_the_image(tmp_path: Path, option: str, asks: bool) -> None:
    placement = Placement(container="pyxis", options=(option,))
    handed_in(replace(asked("pyxis", {}), placement=placement), tmp_path)
    assert ("NVIDIA_VISIBLE_DEVICES" not in variables(tmp_path / "srun.environ")) is asks


@pytest.mark.parametrize(("runner", "mounted"), [
    ("pyxis", "--container-mounts={0}:{0},"), ("docker", "type=bind,source={0},target={0}"),
    ("podman", "type=bind,source={0},target={0}"), ("apptainer", "{0},"), ("singularity", "{0},"),
])  # fmt: skip
def test_the_folder_of_a_script_to_keep_may_have_a_space_in_its_path_but_nothing_that_a_mount_splits(
    tmp_path: Path, runner: str, mounted: str
) -> None:
    is_split = runner == "pyxis"  # enroot mounts no path with a space
    (folder := tmp_path / ("runs" if is_split else "my runs")).mkdir()
    handed_in(replace(asked(runner, {}), workdir=None), folder, is_kept=True, PATH=f"{folder}:/usr/bin:/bin")
    given = words(folder / ("srun.words" if runner == "pyxis" else "client.words"))
    assert [word for word in given if word.startswith(mounted.format(folder))]
    assert {f"--container-workdir={folder}", f"--workdir={folder}", str(folder)} & set(given)
    where = {"PATH": f"{folder}:/usr/bin:/bin", "NGCDL_RUN": f"{tmp_path}/{'a b' if is_split else 'a,b'}"}
    done = subprocess.run(
        ["bash", str(folder / "job.sh")], env=where, cwd=folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, Path(where["NGCDL_RUN"]).exists()) == (1, False)
    assert "export NGCDL_RUN=FOLDER, then sbatch" in done.stderr


@pytest.mark.parametrize("runner", PREFIXES)
@pytest.mark.parametrize("home", ["", "/", "home", "/a:/b"])
def test_a_home_that_apptainer_or_singularity_could_not_mount_is_refused(home: str, runner: str) -> None:
    with pytest.raises(BadOption, match=f"-e HOME={home}: {runner} mounts ") as refused:
        script(ordered(asked(runner, {"HOME": home})))
    assert "-e HOME=/home/me" in refused.value.hint


@pytest.mark.parametrize("images", [None, "here"])
def test_singularity_runs_in_its_native_mode_whatever_site_or_user_chose(tmp_path: Path, images: str | None) -> None:
    placement = Placement(container="singularity", images=images and str(tmp_path / images))
    spec = replace(asked("singularity", {"SINGULARITY_NO_OCI": "typed"}), placement=placement)
    handed_in(spec, tmp_path, SINGULARITY_OCI="1")
    found = variables(tmp_path / "client.environ")
    assert (found["SINGULARITY_NO_OCI"], found["SINGULARITYENV_SINGULARITY_NO_OCI"]) == ("1", "typed")
    assert "SINGULARITY_OCI" not in found, "both together are refused"
    text = (tmp_path / "job.sh").read_text()
    assert text.index("export SINGULARITY_NO_OCI=1") < text.index("singularity pull" if images else "singularity exec")


def inside(folder: Path) -> dict[str, str]:
    """Return the variables that docker or podman was told to set."""
    given, environ = words(folder / "client.words"), variables(folder / "client.environ")
    pairs = [given[at + 1].partition("=") for at, word in enumerate(given) if word == "-e"]
    assert len({name for name, _, _ in pairs}) == len(pairs), "twice, and the first would count for some programs"
    return {name: value if equals else environ.get(name, "") for name, equals, value in pairs}


@pytest.mark.parametrize("runner", ["docker", "podman"])
def test_what_the_site_says_of_its_network_reaches_the_container_unless_it_was_typed(
    tmp_path: Path, runner: str
) -> None:
    site = {"NCCL_IB_HCA": "mlx5_0", "NCCL_SOCKET_IFNAME": "ib0", "GLOO_SOCKET_IFNAME": "ib0", "OTHER": "x"}
    handed_in(asked(runner, {"NCCL_SOCKET_IFNAME": "eth0"}), tmp_path, **site)
    found = {name: value for name, value in inside(tmp_path).items() if name in site or name == "NCCL_DEBUG"}
    wanted = {"NCCL_IB_HCA": "mlx5_0", "NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "ib0"}
    assert found == {**wanted, "NCCL_DEBUG": "WARN"}


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
        if prefix := PREFIXES.get(runner):
            assert client[client.index("--pwd") + 1] == f"/{where}"
            assert "--no-eval" in client[: client.index("--pwd")], "or a shell in the image evaluates words and values"
            assert variables(folder / "client.environ")[f"{prefix}WORDS"] == value
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
    if runner not in ("docker", "podman"):
        wanted = name if runner == "pyxis" else f"docker://{name}"
        line = text[text.index("export NGCDL_IMAGE=") : text.index("\ntask=")]
        shown = subprocess.run(["bash", "-c", f'{line}\nprintf %s "$NGCDL_IMAGE"'], capture_output=True, check=True)
        assert shown.stdout.decode() == wanted
