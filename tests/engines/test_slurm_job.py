"""A job on Slurm, followed to its end: what its script wrote, what the controller says, and what it forgot."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from stand_ins import refuses, says, stand_in

from ngcdl.engines.slurm import SlurmEngine, commands
from ngcdl.engines.slurm.job import SlurmJob
from ngcdl.engines.slurm.jobstate import State
from ngcdl.errors import JobOfOthers, NotPlaceable, SlurmLost, SlurmRefused
from ngcdl.folder import RECORD


def test_a_job_that_waits_for_what_never_comes_is_not_followed(programs: Path) -> None:
    says(programs, "squeue", "PENDING|PartitionNodeLimit")
    says(programs, "sinfo", "main*|2|64|515000|gpu:8|1-00:00:00")
    with pytest.raises(NotPlaceable) as refused:
        list(SlurmJob("7", programs).output())
    assert refused.value.message == (
        "Slurm said: PENDING (PartitionNodeLimit). That is: it needs more nodes than its partition allows."
    )
    assert refused.value.hint.startswith(
        "Ask for fewer --nodes, or another --partition. What the cluster has:\n    main*"
    )


@pytest.mark.parametrize("reason", ["BadConstraints", "PartitionTimeLimit"])
def test_a_job_that_has_worked_and_can_t_start_again_for_now_is_told_and_not_given_up(
    programs: Path, reason: str
) -> None:
    says(programs, "squeue", f"PENDING|{reason}")
    (programs / "log.txt").write_text("step 1\n")
    says(programs, "scontrol", "ExitCode=0:0")
    now = [0.0]

    def passes(seconds: float) -> None:
        now[0] += seconds
        says(programs, "squeue", "COMPLETED|None")

    told = [chunk.data.decode() for chunk in SlurmJob("7", programs, clock=lambda: now[0], sleep=passes).output()]
    assert f"Slurm job 7: PENDING ({reason}: " in told[0]
    assert told[1:] == ["step 1\n"]


@pytest.mark.parametrize(
    ("reason", "message", "advice"),
    [
        ("InvalidAccount", ". That is: its account is not valid.", "another --account"),
        (
            "AssocMaxCpuPerJobLimit",
            ". That is: it asks for more than your account allows a job.",
            "less (--gpus, --nodes, --cpus, --memory, --time), or another --account.",
        ),
        ("AccountNotAllowed", ". That is: its partition does not admit its account.", "another --account or"),
        ("PartitionTimeLimit", ". That is: it needs more time than its partition allows.", "a shorter --time, or"),
        ("MaxGRESPerJob", ".", "fewer --gpus, --nodes or --cpus, or another --partition"),
    ],
)
def test_why_a_job_never_starts_is_slurm_s_word_then_ours_and_the_advice_is_given_once(
    programs: Path, reason: str, message: str, advice: str
) -> None:
    says(programs, "sinfo", "")
    refused = commands.never_starts(State("PENDING", reason))
    assert refused.message == f"Slurm said: PENDING ({reason}){message}"
    assert refused.hint.startswith(f"Ask for {advice}")


@pytest.mark.parametrize("said", ["Invalid job id specified", "Job/step already completing or completed"])
def test_what_has_ended_is_left_in_peace_and_what_could_not_be_ended_is_said(programs: Path, said: str) -> None:
    refuses(programs, "scancel", f"scancel: error: Kill job error on job id 7: {said}")
    SlurmJob("7", programs).kill()
    refuses(programs, "scancel", "scancel: error: Kill job error on job id 7: Protocol authentication error")
    with pytest.raises(SlurmRefused, match="Protocol authentication error"):
        SlurmJob("7", programs).kill()


def test_no_other_job_is_cancelled_whatever_number_a_run_writes_into_its_record(programs: Path, tmp_path: Path) -> None:
    stand_in(programs, "scancel", f'echo "$@" >>{programs}/cancelled')
    says(programs, "squeue", f"{tmp_path}/runs/other")
    with pytest.raises(JobOfOthers, match=r"Job 777, .*/runs/x names, is not that run's: it works in .*/runs/other\."):
        SlurmJob("777", tmp_path / "runs/x").kill()
    says(programs, "squeue", f"{tmp_path}/runs/x")
    SlurmJob("100", tmp_path / "runs/x").kill()
    assert (programs / "cancelled").read_text() == "100\n"
    runs = tmp_path / "runs"
    (runs / "x").mkdir(parents=True)
    (runs / "x" / RECORD).write_text('{"container": "slurm:--user=me"}')
    says(programs, "squeue", "100")
    found = SlurmEngine(runs).find("x")
    assert found
    assert found.identity == "slurm:100"


def test_a_stop_makes_no_file_where_a_link_of_the_run_s_leads(programs: Path) -> None:
    says(programs, "squeue", "RUNNING|None")
    says(programs, "scancel", "")
    (programs / ".stopping").symlink_to(programs / "elsewhere")
    SlurmJob("7", programs).stop(0)
    assert not (programs / "elsewhere").exists()


@pytest.mark.parametrize(("begun", "calls"), [(True, ["--signal=TERM 7", "7"]), (False, ["7"])])
def test_a_job_that_still_fetches_its_image_is_given_no_time_to_save(
    programs: Path, begun: bool, calls: list[str]
) -> None:
    says(programs, "squeue", "RUNNING|None")
    stand_in(programs, "scancel", f'echo "$*" >>{programs}/calls')
    if begun:
        (programs / ".task-0-n1").touch()
    SlurmJob("7", programs).stop(0)
    assert (programs / "calls").read_text().splitlines() == calls


def test_a_job_that_is_killed_while_it_stops_no_longer_has_time_to_stop(programs: Path) -> None:
    (programs / ".stopping").touch()
    stand_in(programs, "scancel", f"[ ! -e {programs}/.stopping ] && touch {programs}/cancelled")
    SlurmJob("7", programs).kill()
    assert (programs / "cancelled").exists()


@pytest.mark.parametrize(
    ("squeue", "scontrol", "left", "expected"),
    [
        ("COMPLETED|None", "ExitCode=0:0", '{"code": 0, "t": 5.5, "why": null}', (0, None, False)),
        ("COMPLETED|None", "ExitCode=0:0", None, (0, None, False)),
        ("FAILED|NonZeroExitCode", "ExitCode=3:0", '{"code": 3, "t": 5.5, "why": null}', (3, None, False)),
        ("FAILED|NonZeroExitCode", "ExitCode=7:0", None, (7, None, False)),
        ("FAILED|NonZeroExitCode", "ExitCode=143:0", '{"code": 143, "t": 1, "why": "time_limit"}',
         (143, "Slurm's time limit was reached (--time)", True)),
        ("TIMEOUT|TimeLimit", "ExitCode=0:1", None, (129, "Slurm's time limit was reached (--time)", True)),
        ("PREEMPTED|None", "ExitCode=143:0", '{"code": 143, "t": 1, "why": "time_limit"}',
         (143, "Slurm preempted it for another job", True)),
        ("FAILED|NonZeroExitCode", "ExitCode=143:0", '{"code": 143, "t": 1, "why": "preempted"}',
         (143, "Slurm preempted it for another job", True)),
        ("PREEMPTED|None", "ExitCode=0:9", None, (137, "Slurm preempted it for another job", True)),
        ("PREEMPTED|None", "ExitCode=0:0", '{"code": 0, "t": 1, "why": null}', (0, None, False)),
        ("CANCELLED|None", "ExitCode=0:0", None, (None, "Slurm: CANCELLED", True)),
        ("CANCELLED|None", "ExitCode=0:15", '{"code": 143, "t": 1}', (143, "Slurm: CANCELLED, by SIGTERM", True)),
        ("FAILED|NonZeroExitCode", "ExitCode=137:0", '{"code": 137, "t": 1, "why": "lost"}',
         (137, "a node was lost, and the job was not requeued", False)),
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


@pytest.mark.parametrize(
    ("squeue", "scontrol", "is_oom"),
    [
        ("FAILED|NonZeroExitCode", "ExitCode=1:0 DerivedExitCode=0:125", True),
        ("FAILED|NonZeroExitCode", "ExitCode=137:0 DerivedExitCode=137:0", None),
        ("FAILED|NonZeroExitCode", "ExitCode=137:0", None),
        ("OUT_OF_MEMORY|OutOfMemory", "ExitCode=0:125 DerivedExitCode=0:0", True),
        ("COMPLETED|None", "ExitCode=0:0 DerivedExitCode=0:0", None),
    ],
)
def test_a_step_that_the_kernel_killed_for_memory_is_told_though_the_script_ended_by_itself(
    programs: Path, squeue: str, scontrol: str, is_oom: bool | None
) -> None:
    says(programs, "squeue", squeue)
    stand_in(programs, "scontrol", f'case " $* " in *" -d "*) echo "JobId=7 {scontrol}";; *) echo ExitCode=1:0;; esac')
    (programs / "exit.json").write_text(f'{{"code": {scontrol.partition("=")[2].partition(":")[0]}, "t": 5.5}}')
    ended = SlurmJob("7", programs).ended()
    assert ended
    assert ended.oom_killed is is_oom
    assert ((ended.reason or "") == "out of memory: the kernel killed a process of the job") == (ended.code == 1)
    refuses(programs, "squeue", "slurm_load_jobs error: Invalid job id specified")
    codes = "|".join(word.partition("=")[2] for word in scontrol.split())
    says(programs, "sacct", f"{squeue.partition('|')[0]}|{codes}")
    ended = SlurmJob("7", programs).ended()
    assert ended
    assert ended.oom_killed is is_oom


@pytest.mark.parametrize(("state", "words"), [("PENDING|BeginTime", "two minutes"), ("EXPEDITING|None", "EXPEDITING")])
def test_a_job_that_is_queued_again_has_not_ended_though_it_wrote_an_end(
    programs: Path, state: str, words: str
) -> None:
    (programs / "exit.json").write_text('{"code": 143, "t": 1.0, "restarts": 0, "why": null}')
    says(programs, "squeue", state)
    job = SlurmJob("7", programs)
    assert job.ended() is None
    assert words in (job.waiting() or "")


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


def test_an_end_that_the_script_wrote_is_enough_where_only_the_accounting_is_away(programs: Path) -> None:
    refuses(programs, "squeue", "slurm_load_jobs error: Invalid job id specified")
    refuses(programs, "sacct", "sacct: error: Sending PersistInit msg: Connection refused")
    job = SlurmJob("7", programs)
    with pytest.raises(SlurmLost, match="sacct gives no answer"):
        job.ended()
    (programs / "exit.json").write_text('{"code": 0, "t": 5.5, "restarts": 1, "why": null}')
    ended = job.ended()
    assert ended
    assert (ended.code, ended.finished) == (0, 5.5)
    SlurmJob("7", programs).stop(1)
    refuses(programs, "squeue", "Unable to contact slurm controller (connect failure)")
    with pytest.raises(SlurmLost, match="squeue gives no answer"):
        job.ended()


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
        if now[0] == 101:  # clearing its nodes takes a moment
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
