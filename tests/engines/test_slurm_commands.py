"""What Slurm's programs say, by what releases 22.05 and 24.11 said, and what is made of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ngcdl.engines.base import Order
from ngcdl.engines.slurm import SlurmEngine, commands
from ngcdl.engines.slurm.commands import Share, State
from ngcdl.engines.slurm.job import SlurmJob
from ngcdl.errors import NotPlaceable, SlurmAbsent, SlurmLost, SlurmRefused, UnknownAccount, UnknownPartition
from ngcdl.spec import GpuRequest, ImageRef, Placement, RunSpec

IMAGE = ImageRef.parse("pytorch:25.03-py3")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of stand-ins, and nothing else of Slurm: each is a line of shell."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "job.sh").write_text("#!/bin/bash\n")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def stand_in(folder: Path, name: str, line: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def says(folder: Path, name: str, text: str) -> None:
    stand_in(folder, name, f"cat <<'end'\n{text}\nend")


def refuses(folder: Path, name: str, text: str) -> None:
    stand_in(folder, name, f"echo '{text}' >&2; exit 1")


@pytest.mark.parametrize(
    ("gres", "count"),
    [
        ("(null)", 0), ("gpu:8", 8), ("gpu:fake:1", 1), ("gpu:a100:4(S:0-1),gpu:v100:2", 6), ("nvme:2,gpu:1", 1),
        ("gpu:a100_1g.5gb:7(IDX:0-6)", 7), ("", 0), ("shard:4", 0),
    ],
)  # fmt: skip
def test_gpus_are_counted(gres: str, count: int) -> None:
    assert commands.gpus_of(gres) == count


def test_a_gpu_s_share_is_of_the_least_node_that_has_the_most(programs: Path) -> None:
    says(programs, "sinfo", "64|gpu:8\n48|gpu:8\n16|gpu:2")
    assert commands.share({"main"}) == Share(48, 8)
    says(programs, "sinfo", "64|(null)\n32|(null)")
    assert commands.share({"cpu"}) == Share(32, 0)
    says(programs, "sinfo", "")
    assert commands.share(()) == Share(None, 0)


@pytest.mark.parametrize(
    ("placement", "variable", "cpus"),
    [
        (Placement(), None, 128),
        (Placement(), "gpu", 12),
        (Placement(partition="gpu"), "cpu", 12),
        (Placement(partition="cpu", options=("-p gpu",)), None, 12),
        (Placement(partition="none"), None, None),
    ],
)
def test_processors_are_shared_out_of_the_partition_that_the_job_goes_to(
    programs: Path, monkeypatch: pytest.MonkeyPatch, placement: Placement, variable: str | None, cpus: int | None
) -> None:
    lines = "*=cpu*) echo '128|(null)';; *=gpu*) echo '96|gpu:h100:8';; *%P) printf 'cpu*\\ngpu\\n';;"
    stand_in(programs, "sinfo", f'case "$*" in {lines} esac')
    says(programs, "srun", "--container-image")
    if variable:
        monkeypatch.setenv("SBATCH_PARTITION", variable)
    placed = SlurmEngine(programs).placed(placement)
    assert placed
    assert placed.cpus == cpus


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
        ("sbatch: error: Batch job submission failed: Job violates accounting/QOS policy", SlurmRefused),
        (
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
            SlurmLost,
        ),
    ],
)
def test_what_sbatch_refuses_is_told_apart_in_its_own_words(programs: Path, said: str, kind: type) -> None:
    refuses(programs, "sbatch", said)
    says(programs, "sinfo", "main*|2|64|gpu:8|1-00:00:00")
    with pytest.raises(SlurmRefused if kind is not SlurmLost else SlurmLost) as refused:
        commands.submit(programs / "job.sh", {})
    assert type(refused.value) is kind
    assert said.rpartition("error: ")[2] in refused.value.message
    if kind in (NotPlaceable, UnknownPartition):
        assert "main*: 2 nodes, 64 processors, GPUs gpu:8, at most 1-00:00:00" in refused.value.hint


def test_the_job_s_id_is_given_without_its_cluster_and_ngc_s_keys_stay_here(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NGC_API_KEY", "nvapi-hush")
    stand_in(programs, "sbatch", f'env > {programs}/seen; echo "a warning of the site"; echo "123;lab"')
    typed = {"HF_TOKEN": "mine", "PATH": "/nowhere", "LD_PRELOAD": "/no.so", "SLURM_DEBUG": "9", "EPOCHS": "3"}
    assert commands.submit(programs / "job.sh", typed) == "123", "it is found, by our own PATH"
    seen = (programs / "seen").read_text()
    assert "HF_TOKEN=mine" in seen
    assert not [name for name, value in typed.items() if name != "HF_TOKEN" and f"{name}={value}\n" in seen]
    assert "NGC_API_KEY" not in seen


def test_what_is_of_the_job_around_it_stays_here_and_what_was_typed_counts_before_a_variable(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stay = {"SLURM_CONF": "/etc/slurm.conf", "SLURM_JWT": "hush", "SBATCH_RESERVATION": "mine", "PMIND": "1"}
    typed = {f"SBATCH_{name}": "1" for name in ("PARTITION", "GPUS_PER_NODE", "TIMELIMIT", "NO_REQUEUE", "ACCOUNT")}
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
    says(programs, "sinfo", "main*|2|64|gpu:8|1-00:00:00")
    refuses(programs, "sbatch", "allocation failure: Requested node configuration is not available")
    with pytest.raises(NotPlaceable, match="Requested node configuration is not available"):
        commands.check("#!/bin/bash")


def test_what_does_not_fit_is_refused_and_where_enough_nodes_are_only_down_it_is_a_caution(programs: Path) -> None:
    refuses(programs, "sbatch", "allocation failure: Requested node configuration is not available")
    says(programs, "scontrol", "\n".join(f"NodeName=n{n} Arch=x86_64 Gres=gpu:8 Partitions=main" for n in (1, 2)))
    says(programs, "sinfo", "main*")

    def fits(nodes: int, gpus: int) -> str | None:
        spec = RunSpec(IMAGE, ("true",), GpuRequest("count", count=gpus), placement=Placement(nodes=nodes))
        return SlurmEngine(programs).fits(Order(spec, "r", programs / "r", str(IMAGE), "gres"))

    assert "a run may wait for ever" in (fits(2, 8) or "")
    for nodes, gpus in ((3, 8), (2, 9)):
        with pytest.raises(NotPlaceable):
            fits(nodes, gpus)
    stand_in(programs, "sbatch", "exit 0")
    assert fits(2, 8) is None


def test_a_job_that_waits_for_what_never_comes_is_not_followed(programs: Path) -> None:
    says(programs, "squeue", "PENDING|PartitionNodeLimit")
    says(programs, "sinfo", "main*|2|64|gpu:8|1-00:00:00")
    with pytest.raises(NotPlaceable, match="more nodes than its partition gives"):
        list(SlurmJob("7", programs).output())


def test_without_slurm_it_is_said_where_to_type_it(programs: Path) -> None:
    with pytest.raises(SlurmAbsent, match="sbatch is not on this machine"):
        commands.submit(programs / "job.sh", {})


def test_a_program_that_does_not_answer_is_not_waited_for(programs: Path) -> None:
    stand_in(programs, "squeue", "exec sleep 20")
    with pytest.raises(SlurmLost, match=r"nothing within 0\.2 s"):
        commands.said("squeue", seconds=0.2)


@pytest.mark.parametrize(
    ("state", "words", "never"),
    [
        (State("PENDING", "Resources"), "PENDING (Resources: it waits for nodes to become free)", False),
        (State("PENDING", "Priority"), "other jobs are before it", False),
        (State("PENDING", "PartitionNodeLimit"), "fewer --nodes, or another --partition", True),
        (State("PENDING", "PartitionConfig"), "fewer --gpus or --nodes", True),
        (State("PENDING", "AssocGrpGRES"), "your account has reached a limit", False),
        (State("PENDING", "AssocMaxNodePerJobLimit"), "your account has reached a limit", True),
        (State("PENDING", "QOSMaxGRESPerUser"), "quality of service has reached a limit", False),
        (State("PENDING", "QOSMaxWallDurationPerJobLimit"), "quality of service has reached a limit", True),
        (State("PENDING", "ReqNodeNotAvail, UnavailableNodes:n1"), "down, drained or reserved", False),
        (State("PENDING", "JobHeldUser"), "scontrol release 7", False),
        (State("PENDING", "SomethingNew"), "PENDING (SomethingNew)", False),
        (State("CONFIGURING"), "CONFIGURING (CONFIGURING)", False),
    ],
)
def test_what_a_job_waits_for_is_said_in_slurm_s_word_and_in_ours(state: State, words: str, never: bool) -> None:
    assert words in commands.why_waiting(state, "7")
    assert commands.is_never(state) == never


def test_where_squeue_has_forgotten_it_the_accounting_tells_and_without_one_nobody(programs: Path) -> None:
    refuses(programs, "squeue", "slurm_load_jobs error: Invalid job id specified")
    says(programs, "sacct", "CANCELLED by 1000|0:15")
    assert commands.state("7") == State("CANCELLED", None, 0, 15)
    refuses(programs, "sacct", "Slurm accounting storage is disabled")
    assert commands.state("7") is None
    assert commands.named("ngcdl-x") is None


def test_the_accounting_that_is_asked_is_of_the_cluster_that_the_others_speak_to(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuses(programs, "squeue", "slurm_load_jobs error: Invalid job id specified")
    stand_in(programs, "sacct", 'case "$*" in *--clusters=other*) echo "COMPLETED|0:0";; *) echo "FAILED|1:0";; esac')
    monkeypatch.setenv("SLURM_CLUSTERS", "other")
    assert commands.state("7") == State("COMPLETED", None, 0, 0)
    monkeypatch.delenv("SLURM_CLUSTERS")
    assert commands.state("7") == State("FAILED", None, 1, 0)


@pytest.mark.parametrize("said", ["Invalid job id specified", "Job/step already completing or completed"])
def test_what_has_ended_is_left_in_peace_and_what_could_not_be_ended_is_said(programs: Path, said: str) -> None:
    refuses(programs, "scancel", f"scancel: error: Kill job error on job id 7: {said}")
    SlurmJob("7", programs).kill()
    refuses(programs, "scancel", "scancel: error: Kill job error on job id 7: Protocol authentication error")
    with pytest.raises(SlurmRefused, match="Protocol authentication error"):
        SlurmJob("7", programs).kill()


def test_squeue_is_believed_before_the_accounting_which_lags(programs: Path) -> None:
    says(programs, "squeue", "COMPLETED|None")
    says(programs, "scontrol", "JobId=7 JobName=x ExitCode=0:0 DerivedExitCode=0:0")
    says(programs, "sacct", "PENDING|0:0")
    assert commands.state("7") == State("COMPLETED", None, 0, 0)


def test_the_newest_job_of_a_name_is_found(programs: Path) -> None:
    says(programs, "squeue", "9\n17")
    assert commands.named("ngcdl-x") == "17"


@pytest.mark.parametrize(
    ("squeue", "scontrol", "left", "expected"),
    [
        ("COMPLETED|None", "ExitCode=0:0", '{"code": 0, "t": 5.5, "why": null}', (0, None, False)),
        ("COMPLETED|None", "ExitCode=0:0", None, (0, None, False)),
        ("FAILED|NonZeroExitCode", "ExitCode=3:0", '{"code": 3, "t": 5.5, "why": null}', (3, None, False)),
        ("FAILED|NonZeroExitCode", "ExitCode=7:0", None, (7, None, False)),
        ("FAILED|NonZeroExitCode", "ExitCode=143:0", '{"code": 143, "t": 1, "why": "time_limit"}',
         (143, "Slurm's time limit came (--time)", True)),
        ("TIMEOUT|TimeLimit", "ExitCode=0:1", None, (129, "Slurm's time limit came (--time)", True)),
        ("CANCELLED|None", "ExitCode=0:0", None, (None, "Slurm: CANCELLED", True)),
        ("CANCELLED|None", "ExitCode=0:15", '{"code": 143, "t": 1}', (143, "Slurm: CANCELLED, by SIGTERM", True)),
        ("NODE_FAIL|NodeDown", "ExitCode=1:0", None, (1, "Slurm: NODE_FAIL (NodeDown)", False)),
        ("OUT_OF_MEMORY|OutOfMemory", "ExitCode=0:125", None, (137, "Slurm: OUT_OF_MEMORY (OutOfMemory)", False)),
        ("FAILED|RaisedSignal:53(Real-time_signal_19)", "ExitCode=0:53", None,
         (125, "storage that all nodes share", False)),
        ("FAILED|NonZeroExitCode", "ExitCode=53:0", None, (125, "storage that all nodes share", False)),
        ("FAILED|NonZeroExitCode", "ExitCode=53:0", '{"code": 53, "t": 5.5, "why": null}', (53, None, False)),
    ],
)  # fmt: skip
def test_how_a_job_ended_is_what_its_script_wrote_and_what_slurm_says(
    programs: Path, squeue: str, scontrol: str, left: str | None, expected: tuple[int | None, str | None, bool]
) -> None:
    says(programs, "squeue", squeue)
    says(programs, "scontrol", f"JobId=7 {scontrol}")
    if left:
        (programs / "exit.json").write_text(left)
    ended = SlurmJob("7", programs).ended()
    assert ended
    code, reason, is_stopped = expected
    assert (ended.code, ended.is_stopped) == (code, is_stopped)
    assert ended.reason == reason or (reason and reason in (ended.reason or ""))


def test_a_job_that_is_queued_again_has_not_ended_though_it_wrote_an_end(programs: Path) -> None:
    (programs / "exit.json").write_text('{"code": 143, "t": 1.0, "restarts": 0, "why": null}')
    says(programs, "squeue", "PENDING|BeginTime")
    job = SlurmJob("7", programs)
    assert job.ended() is None
    assert "two minutes" in (job.waiting() or "")


def test_an_end_that_slurm_has_forgotten_is_in_the_run_s_folder_or_unknown(programs: Path) -> None:
    refuses(programs, "squeue", "slurm_load_jobs error: Invalid job id specified")
    refuses(programs, "sacct", "Slurm accounting storage is disabled")
    ended = SlurmJob("7", programs).ended()
    assert ended
    assert (ended.code, ended.is_stopped) == (None, False)
    assert "forgotten" in (ended.reason or "")
    (programs / "exit.json").write_text('{"code": 0, "t": 5.5, "restarts": 1, "why": null}')
    ended = SlurmJob("7", programs).ended()
    assert ended
    assert (ended.code, ended.finished) == (0, 5.5)


def test_the_end_that_a_script_writes_is_seen_within_seconds_though_the_controller_is_asked_ever_less_often(
    programs: Path,
) -> None:
    stand_in(programs, "squeue", f"echo asked >>{programs}/count; cat {programs}/state")
    (programs / "state").write_text("RUNNING|None")
    says(programs, "scontrol", "ExitCode=0:0")
    now = [0.0]

    def passes(seconds: float) -> None:
        now[0] += seconds
        if now[0] == 100:
            assert len((programs / "count").read_text().splitlines()) < 20
            (programs / "exit.json").write_text('{"code": 0, "t": 5.5, "restarts": 0, "why": null}')
        if now[0] == 101:  # it takes a moment to clear its nodes
            (programs / "state").write_text("COMPLETED|None")

    assert SlurmJob("7", programs, clock=lambda: now[0], sleep=passes).wait().code == 0
    assert now[0] < 103


@pytest.mark.parametrize(
    "said",
    [
        "Unable to contact slurm controller (connect failure)",
        "Protocol authentication error",
        "Incompatible versions of client and server code",
        "Message receive failure",
    ],
)
def test_a_controller_that_gives_no_answer_is_waited_for_a_while_and_then_said(programs: Path, said: str) -> None:
    refuses(programs, "squeue", f"slurm_load_jobs error: {said}")
    refuses(programs, "sacct", "Slurm accounting storage is disabled")
    now = [0.0]

    def passes(seconds: float) -> None:
        now[0] += seconds
        if now[0] > 30 and not (programs / "is_away_for_long").exists():
            says(programs, "squeue", "COMPLETED|None")
            says(programs, "scontrol", "ExitCode=0:0")

    ended = SlurmJob("7", programs, clock=lambda: now[0], sleep=passes).wait()
    assert ended.code == 0
    (programs / "is_away_for_long").touch()
    refuses(programs, "scontrol", f"slurm_load_jobs error: {said}")
    with pytest.raises(SlurmLost, match="scontrol gives no answer"):
        SlurmJob("7", programs).ended()
    refuses(programs, "squeue", f"slurm_load_jobs error: {said}")
    with pytest.raises(SlurmLost, match=re.escape(said)):
        SlurmJob("7", programs, clock=lambda: now[0], sleep=passes).wait()
    with pytest.raises(SlurmLost, match=re.escape(said)):
        commands.named("ngcdl-x")


def test_only_a_job_that_was_not_seen_to_end_is_ended(programs: Path) -> None:
    stand_in(programs, "scancel", f'echo "$@" >>{programs}/cancelled')
    refuses(programs, "squeue", "slurm_load_jobs error: Invalid job id specified")
    refuses(programs, "sacct", "Slurm accounting storage is disabled")
    forgotten = SlurmJob("7", programs)
    assert forgotten.ended()
    says(programs, "squeue", "RUNNING|None")
    forgotten.remove()
    assert not (programs / "cancelled").exists()
    SlurmJob("8", programs).remove()
    assert (programs / "cancelled").read_text() == "8\n"


def test_a_job_that_slurm_has_taken_is_followed_though_it_can_t_be_asked_at_once(programs: Path) -> None:
    says(programs, "sbatch", "5")
    refuses(programs, "squeue", "slurm_load_jobs error: Protocol authentication error")
    spec = RunSpec(IMAGE, ("true",), GpuRequest("none"), placement=Placement())
    assert SlurmEngine(programs).start(Order(spec, "r", programs, str(IMAGE), "none")).identity == "slurm:5"
