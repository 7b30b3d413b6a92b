"""What Slurm's programs print, as in releases 22.05 and 24.11, and what ngcdl makes of it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from stand_ins import refuses, says, stand_in

from ngcdl.engines.slurm import SlurmEngine, commands, jobstate
from ngcdl.engines.slurm.jobstate import State
from ngcdl.engines.values import Order
from ngcdl.errors import NoRunner, NotPlaceable, SlurmAbsent, SlurmLost, SlurmRefused, UnknownAccount, UnknownPartition
from ngcdl.spec import GpuRequest, ImageRef, Placement, RunSpec

IMAGE = ImageRef.parse("pytorch:25.03-py3")


@pytest.mark.parametrize(
    ("gres", "count"),
    [
        ("(null)", 0), ("gpu:8", 8), ("gpu:fake:1", 1), ("gpu:a100:4(S:0-1),gpu:v100:2", 6), ("nvme:2,gpu:1", 1),
        ("gpu:a100_1g.5gb:7(IDX:0-6)", 7), ("", 0), ("shard:4", 0),
    ],
)  # fmt: skip
def test_gpus_are_counted(gres: str, count: int) -> None:
    assert commands.gpus_of(gres) == count


def test_what_runs_images_is_pyxis_else_what_is_here_and_a_module_may_bring_it(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chosen() -> str | None:
        placed = SlurmEngine(programs).placed(Placement())
        return placed and placed.container

    monkeypatch.setenv("PATH", str(programs))
    stand_in(programs, "srun", "echo --nodes")
    with pytest.raises(NoRunner) as refused:
        chosen()
    assert "    module load apptainer\n" in refused.value.hint
    says(programs, "singularity", "")
    assert chosen() == "singularity"
    says(programs, "apptainer", "")
    assert chosen() == "apptainer", "its singularity is a link to itself"
    stand_in(programs, "srun", "echo --container-image")
    assert chosen() == "pyxis"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", NotPlaceable),
        ("sbatch: error: Batch job submission failed: Node count specification invalid", NotPlaceable),
        ("sbatch: error: Invalid generic resource (gres) specification", NotPlaceable),
        ("sbatch: error: invalid partition specified: none", UnknownPartition),
        (
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
            UnknownAccount,
        ),
        ("sbatch: error: Batch job submission failed: Invalid qos specification", UnknownAccount),
        (
            "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's "
            "size and/or time limits)",
            UnknownAccount,
        ),
        (
            "sbatch: error: Batch job submission failed: User's group not permitted to use this partition",
            UnknownPartition,
        ),
        (
            "sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds some "
            "limit)",
            SlurmRefused,
        ),
        (
            "sbatch: error: Batch job submission failed: Time limit specification required, but not provided",
            SlurmRefused,
        ),
        ("sbatch: error: Batch job submission failed: Job size specification needs to be provided", SlurmRefused),
        (
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
            SlurmLost,
        ),
    ],
)
def test_what_sbatch_refuses_is_told_apart_in_its_own_words(programs: Path, said: str, kind: type) -> None:
    stand_in(programs, "sbatch", f"echo {shlex.quote(said)} >&2; exit 1")
    says(programs, "sinfo", "main*|2|64|515000|gpu:8|1-00:00:00")
    with pytest.raises(SlurmRefused if kind is not SlurmLost else SlurmLost) as refused:
        commands.submit(programs / "job.sh", {})
    assert type(refused.value) is kind
    assert said.rpartition("error: ")[2] in refused.value.message
    is_about_time = "ime limit " in said
    assert ("--time 1:00:00 --partition NAME" in refused.value.hint) == is_about_time
    if kind in (NotPlaceable, UnknownPartition) or is_about_time:
        assert "main*: 2 nodes, 64 processors, 515000 MiB, GPUs gpu:8, at most 1-00:00:00" in refused.value.hint


def test_the_job_s_id_is_given_without_its_cluster_and_ngc_s_keys_stay_here(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NGC_API_KEY", "nvapi-hush")
    stand_in(programs, "sbatch", f'env > {programs}/seen; echo "a site says"; echo "123;lab"; echo "7 left"')
    typed = {"HF_TOKEN": "mine", "PATH": "/nowhere", "LD_PRELOAD": "/no.so", "SLURM_DEBUG": "9", "EPOCHS": "3"}
    assert commands.submit(programs / "job.sh", typed) == "123", "it is found, by our own PATH"
    seen = (programs / "seen").read_text()
    assert "HF_TOKEN=mine" in seen
    assert not [name for name, value in typed.items() if name != "HF_TOKEN" and f"{name}={value}\n" in seen]
    assert "NGC_API_KEY" not in seen


def test_an_sbatch_that_names_no_job_is_an_error(programs: Path) -> None:
    says(programs, "sbatch", "")
    with pytest.raises(SlurmRefused, match="sbatch named no job"):
        commands.submit(programs / "job.sh", {})


def test_what_is_of_the_job_around_it_stays_here_and_what_was_typed_counts_before_a_variable(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stay = {"SLURM_CONF": "/etc/slurm.conf", "SLURM_JWT": "hush", "SBATCH_RESERVATION": "mine", "PMIND": "1"}
    typed = {f"SBATCH_{name}": "1" for name in ("PARTITION", "GPUS_PER_NODE", "TIMELIMIT", "NO_REQUEUE", "ACCOUNT")}
    typed |= {"SBATCH_WAIT": "1", "SBATCH_ARRAY_INX": "1-4", "SBATCH_ERROR": "%j.err"}  # nobody can follow such a job
    of_the_job = ("SLURM_CPU_BIND", "SLURM_MEM_PER_NODE", "SLURM_GPUS", "SLURMD_NODENAME", "PMI_RANK", "PMIX_RANK")
    for name, value in {**stay, **typed, **dict.fromkeys(of_the_job, "1")}.items():
        monkeypatch.setenv(name, value)
    options = ("--partition=gpu", "--gres=gpu:8", "--time=10", "--requeue", "-A physics", "--exclusive")
    script = "".join(f"#SBATCH {option}\n" for option in options)
    (programs / "job.sh").write_text(script)
    stand_in(programs, "sbatch", f"env > {programs}/seen; echo 5")
    commands.submit(programs / "job.sh", {})
    seen = dict(line.partition("=")[::2] for line in (programs / "seen").read_text().splitlines())
    assert {name: seen.get(name) for name in stay} == stay
    assert not {*typed, *of_the_job} & set(seen)
    commands.check(script)
    seen = dict(line.partition("=")[::2] for line in (programs / "seen").read_text().splitlines())
    assert not {*typed, *of_the_job} & set(seen)


def test_a_job_may_wait_until_others_have_ended(programs: Path) -> None:
    stand_in(programs, "sbatch", f'echo "$@" >{programs}/seen; echo 9')
    commands.submit(programs / "job.sh", {}, ["7", "8"])
    assert (programs / "seen").read_text().startswith("--parsable --dependency=afterany:7:8 ")


def test_a_script_is_looked_at_and_not_handed_in(programs: Path) -> None:
    stand_in(programs, "sbatch", f'echo "$@" >{programs}/seen; cat >>{programs}/seen')
    commands.check("#!/bin/bash")
    assert (programs / "seen").read_text() == "--test-only\n#!/bin/bash"
    says(programs, "sinfo", "main*|2|64|515000|gpu:8|1-00:00:00")
    refuses(programs, "sbatch", "allocation failure: Requested node configuration is not available")
    with pytest.raises(NotPlaceable, match="Requested node configuration is not available"):
        commands.check("#!/bin/bash")
    says(programs, "sinfo", "main*|2|64|9642|(null)|infinite")
    failed = "Batch job submission failed: Requested node configuration is not available"
    refuses(programs, "sbatch", f"sbatch: error: Memory specification can not be satisfied\nsbatch: error: {failed}")
    with pytest.raises(NotPlaceable, match=f"said: Memory specification can not be satisfied; {failed}") as refused:
        commands.check("#!/bin/bash")
    assert refused.value.hint.startswith("Ask for less --memory, or another --partition.")
    assert "main*: 2 nodes, 64 processors, 9642 MiB, GPUs none, no time limit\n" in refused.value.hint


def test_what_does_not_fit_is_refused_and_where_enough_nodes_are_only_down_it_is_a_caution(programs: Path) -> None:
    refuses(programs, "sbatch", "allocation failure: Requested node configuration is not available")
    says(programs, "scontrol", "\n".join(f"NodeName=n{n} Arch=x86_64 Gres=gpu:8 Partitions=main" for n in (1, 2)))
    says(programs, "sinfo", "main*")

    def fits(nodes: int, gpus: int) -> str | None:
        spec = RunSpec(IMAGE, ("true",), GpuRequest("count", count=gpus), placement=Placement(nodes=nodes))
        return SlurmEngine(programs).fits(Order(spec, "r", programs / "r", str(IMAGE), "gres"))

    assert "a run may wait forever" in (fits(2, 8) or "")
    for nodes, gpus in ((3, 8), (2, 9)):
        with pytest.raises(NotPlaceable):
            fits(nodes, gpus)
    stand_in(programs, "sbatch", "exit 0")
    assert fits(2, 8) is None


def test_without_slurm_it_is_said_where_to_type_it(programs: Path) -> None:
    with pytest.raises(SlurmAbsent, match="sbatch is not on this machine"):
        commands.submit(programs / "job.sh", {})


def test_a_program_that_does_not_answer_is_not_waited_for(programs: Path) -> None:
    stand_in(programs, "squeue", "exec sleep 20")
    with pytest.raises(SlurmLost, match=r"nothing within 0\.2 s"):
        commands.output_of("squeue", seconds=0.2)


@pytest.mark.parametrize(
    ("state", "words", "never"),
    [
        (State("PENDING", "Resources"), "PENDING (Resources: it waits for nodes to become free)", False),
        (State("PENDING", "Priority"), "other jobs are ahead of it", False),
        (State("PENDING", "PartitionNodeLimit"), "fewer --nodes, or another --partition", True),
        (State("PENDING", "PartitionConfig"), "fewer --gpus, --nodes or --cpus", True),
        (State("PENDING", "AssocGrpGRES"), "your account has reached a limit", False),
        (State("PENDING", "AssocMaxNodePerJobLimit"), "more than your account allows a job", True),
        (State("PENDING", "QOSMaxGRESPerUser"), "quality of service has reached a limit", False),
        (State("PENDING", "QOSMaxWallDurationPerJobLimit"), "more than your quality of service allows a job", True),
        (State("PENDING", "QOSMaxGRESPerNode"), "more than your quality of service allows a job", True),
        (State("PENDING", "QOSMinGRES"), "more --gpus, --nodes or --cpus, or another --qos", True),
        (State("PENDING", "QOSMinCpuNotSatisfied"), "less than your quality of service demands", True),
        (State("PENDING", "QOSNotAllowed"), "name another --qos or --partition", True),
        (State("PENDING", "AccountNotAllowed"), "name another --account or --partition", True),
        (State("PENDING", "MaxMemPerLimit"), "less --memory", True),
        (State("PENDING", "DependencyNeverSatisfied"), "no --dependency", True),
        (State("PENDING", "AccountNotAllowed", partitions="a,b"), "name another --account or --partition", False),
        (State("PENDING", "BeginTime"), "or --begin names a later time", False),
        (State("PENDING", "ReqNodeNotAvail, UnavailableNodes:n1"), "down, drained or reserved", False),
        (State("PENDING", "JobHeldUser"), "scontrol release 7", False),
        (State("REQUEUE_HOLD", "JobHoldMaxRequeue"), "only an administrator can release it", False),
        (State("PENDING", "launch failure limit exceeded requeued held"), "only an administrator can", False),
        (State("PENDING", "job requeued in held state"), "scontrol release 7", False),
        (State("PENDING", "MaxGRESPerAccount"), "your account has reached a limit", False),
        (State("PENDING", "SomethingNew"), "PENDING (SomethingNew)", False),
        (State("PENDING"), "PENDING", False),
        (State("CONFIGURING"), "CONFIGURING (its nodes are being started or made ready, ", False),
        (State("CONFIGURING", "Prolog"), "CONFIGURING (Prolog: its nodes are being made ready ", False),
    ],
)
def test_what_a_job_waits_for_is_said_in_slurm_s_word_and_in_ours(state: State, words: str, never: bool) -> None:
    assert words in jobstate.why_waiting(state, "7")
    assert jobstate.is_never(state) == never


def test_a_job_that_one_of_its_partitions_does_not_admit_may_start_in_another(programs: Path) -> None:
    for where, never in (("a", True), ("a,b", False)):
        stand_in(programs, "squeue", f'case "$*" in *"%T|%r|%P") echo "PENDING|QOSNotAllowed|{where}";; esac')
        state = commands.state("7")
        assert state
        assert jobstate.is_never(state) == never


def test_where_squeue_has_forgotten_it_the_accounting_tells_and_without_one_nobody(programs: Path) -> None:
    refuses(programs, "squeue", "slurm_load_jobs error: Invalid job id specified")
    says(programs, "sacct", "CANCELLED by 1000|0:15")
    assert commands.state("7") == State("CANCELLED", None, 0, 15)
    refuses(programs, "sacct", "Slurm accounting storage is disabled")
    assert commands.state("7") is None
    assert commands.named("ngcdl-x") is None


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "COMPLETING", "EXPEDITING"])
def test_a_job_that_only_the_accounting_believes_to_go_on_is_forgotten(programs: Path, state: str) -> None:
    """slurmctld lost the job without telling slurmdbd. Such jobs are listed by: sacctmgr show runawayjobs."""
    refuses(programs, "squeue", "slurm_load_jobs error: Invalid job id specified")
    says(programs, "sacct", f"{state}|0:0")
    assert commands.state("7") is None


def test_a_user_s_variables_for_slurm_s_programs_hide_nothing_from_ngcdl(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = ("SQUEUE_PARTITION", "SQUEUE_STATES", "SCANCEL_INTERACTIVE", "SINFO_PARTITION", "SACCT_LOCAL")
    for name in theirs:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    for program in ("squeue", "scancel", "sbatch"):  # a job's own scancel reads them, too
        stand_in(programs, program, f"env >{programs}/{program}.seen; echo 7")
    commands.named("x")
    commands.cancel("7", programs)
    commands.submit(programs / "job.sh", {})
    for program in ("squeue", "scancel", "sbatch"):
        seen = {line.partition("=")[0] for line in (programs / f"{program}.seen").read_text().splitlines()}
        assert not seen & set(theirs)
        assert "SLURM_CONF" in seen


def test_the_accounting_that_is_asked_is_of_the_cluster_that_the_others_speak_to(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuses(programs, "squeue", "slurm_load_jobs error: Invalid job id specified")
    stand_in(programs, "sacct", 'case "$*" in *--clusters=other*) echo "COMPLETED|0:0";; *) echo "FAILED|1:0";; esac')
    monkeypatch.setenv("SLURM_CLUSTERS", "other")
    assert commands.state("7") == State("COMPLETED", None, 0, 0)
    monkeypatch.delenv("SLURM_CLUSTERS")
    assert commands.state("7") == State("FAILED", None, 1, 0)


def test_squeue_is_believed_before_the_accounting_which_lags(programs: Path) -> None:
    says(programs, "squeue", "COMPLETED|None")
    says(programs, "scontrol", "JobId=7 JobName=x ExitCode=0:0 DerivedExitCode=0:0")
    says(programs, "sacct", "PENDING|0:0")
    assert commands.state("7") == State("COMPLETED", None, 0, 0)


def test_the_newest_job_of_a_name_is_found(programs: Path) -> None:
    says(programs, "squeue", "9\n17")
    assert commands.named("ngcdl-x") == "17"


def test_a_job_that_slurm_has_taken_is_followed_though_it_can_t_be_asked_at_once(programs: Path) -> None:
    says(programs, "sbatch", "5")
    refuses(programs, "squeue", "slurm_load_jobs error: Protocol authentication error")
    spec = RunSpec(IMAGE, ("true",), GpuRequest("none"), placement=Placement())
    assert SlurmEngine(programs).start(Order(spec, "r", programs, str(IMAGE), "none")).identity == "slurm:5"
