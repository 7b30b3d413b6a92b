"""What the batch script of a run on Slurm does, run by bash: its tasks, its end, and whether it is requeued."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from house import until
from slurm_orders import (
    CLIENT,
    COMMAND,
    FOLDER,
    NOT_PREEMPTED,
    PREEMPTED,
    PREEMPTED_AFTER_A_SUSPENSION,
    RESUMED,
    TRAINING,
    ordered,
    program,
    task_of,
)

from ngcdl.engines.slurm.script import script
from ngcdl.record import Run
from ngcdl.report.measured.diagnosis import diagnosed
from ngcdl.spec import GpuRequest, Placement


@pytest.mark.parametrize(("forbidden", "times"), [("--ulimit memlock=-1", 3), ("nothing", 1)])
def test_a_node_that_forbids_memlock_says_so_once_and_runs_the_image_without(
    tmp_path: Path, forbidden: str, times: int
) -> None:
    program(tmp_path, "docker", CLIENT)
    known = {"NGCDL_RUN": str(tmp_path), "NGCDL_ATTEMPT": "0", "SLURMD_NODENAME": "n1", "FORBIDDEN": forbidden}
    done = subprocess.run(
        ["bash", "-c", f'task={task_of(COMMAND, tmp_path)}\nbash -c "$task" task true'], cwd=tmp_path,
        capture_output=True, text=True, check=False, env={"PATH": f"{tmp_path}:/usr/bin:/bin", **known},
    )  # fmt: skip
    assert done.returncode == 7
    assert (tmp_path / ".task-0-n1").read_text() == "7\n"
    assert done.stderr.count("ngcdl: n1 forbids --ulimit memlock=-1") == (times > 1)
    assert done.stderr.count("    ngcdl run ... --ulimit memlock=host ") == (times > 1)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == times
    assert calls[-1].endswith(" true")
    assert all("--ulimit stack=67108864" in call for call in calls), "also in the container that is only tried"
    assert ("memlock" in calls[-1]) == (times == 1)
    (tmp_path / "log.txt").write_text(done.stderr)
    assert diagnosed(Run("x", "failed", 1.0, exit_code=7), tmp_path / "log.txt").diagnosis is None


@pytest.mark.parametrize(
    ("is_stop", "said", "mark", "code"),
    [
        (False, NOT_PREEMPTED, "137", -signal.SIGKILL),  # a user's scancel, or another task that failed
        (False, PREEMPTED.replace("RUNNING", "PREEMPTED"), "137", -signal.SIGKILL),  # without GraceTime
        (False, RESUMED, "137", -signal.SIGKILL),
        (True, NOT_PREEMPTED, "77", 0),
        (True, PREEMPTED, "77", 0),
    ],
)
def test_a_task_that_slurm_kills_is_no_lost_node_and_one_that_ngcdl_stops_has_its_time(
    tmp_path: Path, is_stop: bool, said: str, mark: str, code: int
) -> None:
    program(tmp_path, "sleep", f"touch {tmp_path}/waits")
    program(tmp_path, "scontrol", f'echo "{said}"')
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
            process.wait(240)
        else:
            until(lambda: (tmp_path / ".task-0-n1").read_text() == "137\n", "the mark")
            os.killpg(process.pid, signal.SIGKILL)
    assert ((tmp_path / ".task-0-n1").read_text(), process.returncode) == (f"{mark}\n", code)
    assert (tmp_path / "waits").exists() != is_stop
    ours = Path("/proc/self/status").read_text().partition("SigIgn:")[2].split()[0]
    theirs = (tmp_path / "ignored").read_text().split()[1]
    assert int(theirs, 16) & 0b110 == int(ours, 16) & 0b110, "Ctrl-C and Ctrl-\\ are what they were"


@pytest.mark.parametrize("who", ["ngcdl", "Slurm, for another job"])
def test_a_container_that_hangs_while_it_has_time_to_end_is_removed_once_slurm_ends_the_task(
    tmp_path: Path, who: str
) -> None:
    hangs = "trap 'touch told' TERM; touch up; until [ -e removed ]; do read -rt 0.05 <>pipe; done; exit 137"
    program(tmp_path, "docker", f"case $1 in rm) [ ! -e up ] || touch removed ;; run) {hangs} ;; esac")
    program(tmp_path, "sleep", f'echo "$1" >{tmp_path}/waits.$$; mv {tmp_path}/waits.$$ {tmp_path}/waits')
    os.mkfifo(tmp_path / "pipe")
    if who == "ngcdl":
        (tmp_path / ".stopping").touch()
    else:
        program(tmp_path, "scontrol", f'[ "$*" = "show job 7 -o" ] && echo "{PREEMPTED}"')
    spec = replace(TRAINING, gpus=GpuRequest("none"), placement=Placement(container="docker"))
    known = {"NGCDL_RUN": str(tmp_path), "NGCDL_ATTEMPT": "0", "SLURMD_NODENAME": "n1", "NGCDL_KILL_SECONDS": "25"}
    known["SLURM_JOB_ID"] = "7"
    words = ["bash", "-c", f'task={task_of(spec, tmp_path)}\nexec bash -c "$task" task true']
    with subprocess.Popen(
        words, cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin", **known}, start_new_session=True
    ) as process:
        try:
            until((tmp_path / "up").exists, "the container")
            os.killpg(process.pid, signal.SIGTERM)
            until((tmp_path / "told").exists, "the stop")
            assert not (tmp_path / "waits").exists(), "this sets no deadline"

            def is_removed() -> bool:  # bash may take two signals for one
                os.killpg(process.pid, signal.SIGTERM)
                return (tmp_path / "removed").exists()

            until(is_removed, "the removal")
            process.wait(240)
        finally:
            (tmp_path / "removed").touch()
    assert (tmp_path / "waits").read_text() == "25\n"


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
    program(tmp_path, "srun", "; ".join([*writes, f"exit {srun}"]))
    program(tmp_path, "scontrol", f'[ "$1" != requeue ] || touch {tmp_path}/again')
    known = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
    done = subprocess.run(
        ["bash", str(tmp_path / "job.sh")], env={"PATH": f"{tmp_path}:/usr/bin:/bin", **known}, check=False
    )
    assert (done.returncode, (tmp_path / "again").exists()) == (code, is_queued_again)
    if not is_queued_again:
        assert json.loads((tmp_path / "exit.json").read_text())["code"] == code


def test_a_job_is_queued_again_for_three_lost_nodes_however_often_a_preemption_ended_it_too(tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(script(replace(ordered(TRAINING), folder=tmp_path)))
    ends = "echo $MARK >.task-$SLURM_RESTART_COUNT-n1; echo 143 >.task-$SLURM_RESTART_COUNT-n2"
    program(tmp_path, "srun", f'[ -z "$MARK" ] || {{ {ends}; }}; exit 1')
    program(tmp_path, "scontrol", '[ "$1" != requeue ] || touch again')
    (tmp_path / ".lost-0").touch()  # by another job in this folder
    marks = {"preempted": "143", "preempted while it fetched the image": "", "lost": "began"}
    attempts = ["preempted", "lost", "preempted while it fetched the image", "lost", "preempted", "lost", "lost"]
    again = []
    for attempt, end in enumerate(attempts):
        known = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "n1", "MARK": marks[end]}
        known |= {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_RESTART_COUNT": str(attempt)}
        done = subprocess.run(["bash", "job.sh"], capture_output=True, text=True, env=known, cwd=tmp_path, check=False)
        again += [attempt] if (tmp_path / "again").exists() else []
        (tmp_path / "again").unlink(missing_ok=True)
    assert again == [1, 3, 5], "else Slurm itself did so"
    assert "a node was lost, as in 3 earlier attempts: the job is not requeued" in done.stderr
    assert json.loads((tmp_path / "exit.json").read_text())["why"] == "lost"


def test_a_job_that_is_ended_before_any_task_has_begun_is_no_success(tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(script(replace(ordered(TRAINING), folder=tmp_path)))
    caught = "0x$(sed -n 's/^SigCgt:[[:space:]]*//p' /proc/$PPID/status)"
    program(tmp_path, "srun", f"until (({caught} & 0x4000)); do :; done; kill -TERM $PPID; exit 0")
    program(tmp_path, "scontrol", ":")
    known = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "n1"}
    where = {"PATH": f"{tmp_path}:/usr/bin:/bin", **known}
    done = subprocess.run(["bash", str(tmp_path / "job.sh")], env=where, check=False)
    assert (done.returncode, json.loads((tmp_path / "exit.json").read_text())["code"]) == (143, 143)


@pytest.mark.parametrize(("interrupted", "code"), [("yes", 0), ("", 127)])
def test_a_bash_that_has_forgotten_srun_leaves_it_to_the_tasks_but_a_missing_srun_does_not(
    tmp_path: Path, interrupted: str, code: int
) -> None:
    (tmp_path / "job.sh").write_text(script(replace(ordered(TRAINING), folder=tmp_path)))
    if interrupted:  # as bash 5.3 does if a signal comes as srun ends
        program(tmp_path, "srun", f"echo 0 > {tmp_path}/.task-0-n1")
        forgets = 'wait() { [ -z "$was" ] || return 127; was=yes; builtin wait "$@"; return 143; }\n'
        (tmp_path / "env").write_text(f'kill() {{ [ -z "$was" ]; }}\n{forgets}')
    program(tmp_path, "scontrol", ":")
    known = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "n1"}
    where = {"PATH": f"{tmp_path}:/usr/bin:/bin", "BASH_ENV": str(tmp_path / "env"), **known}
    done = subprocess.run(["bash", str(tmp_path / "job.sh")], env=where, check=False)
    assert (done.returncode, json.loads((tmp_path / "exit.json").read_text())["code"]) == (code, code)


@pytest.mark.parametrize(
    ("mark", "said", "why"),
    [
        ("143", PREEMPTED, "preempted"),
        ("143", PREEMPTED_AFTER_A_SUSPENSION, "preempted"),
        ("143", NOT_PREEMPTED, None),
        ("0", PREEMPTED, None),
        ("1", RESUMED, None),
        ("143", RESUMED, None),
    ],
)
def test_a_preemption_that_only_the_tasks_were_told_of_is_recorded_but_not_one_that_has_passed(
    tmp_path: Path, mark: str, said: str, why: str | None
) -> None:
    (tmp_path / "job.sh").write_text(script(replace(ordered(TRAINING), folder=tmp_path)))
    program(tmp_path, "srun", f"echo {mark} >{tmp_path}/.task-0-n1; exit 0")
    program(tmp_path, "scontrol", f'[ "$2 $3" != "job 7" ] || echo "{said}"')
    known = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "n1"}
    where = {"PATH": f"{tmp_path}:/usr/bin:/bin", **known}
    done = subprocess.run(["bash", str(tmp_path / "job.sh")], env=where, check=False)
    told = json.loads((tmp_path / "exit.json").read_text())
    assert (done.returncode, told["code"], told["why"]) == (int(mark), int(mark), why)


@pytest.mark.parametrize(
    ("mode", "by", "does", "is_queued_again"),
    [
        ("REQUEUE", "partition_prio", "true", True),
        ("CANCEL", "partition_prio", "true", False),
        ("REQUEUE", "qos", "true", False),  # whose own mode then counts
        ("REQUEUE", "partition_prio", "touch .stopping", False),
    ],
)
def test_a_preempted_job_that_ends_before_its_grace_time_does_is_queued_again_where_slurm_would_do_that_at_its_end(
    tmp_path: Path, mode: str, by: str, does: str, is_queued_again: bool
) -> None:
    (tmp_path / "job.sh").write_text(script(replace(ordered(TRAINING), folder=tmp_path)))
    program(tmp_path, "srun", f"{does}; echo 143 >.task-0-n1; exit 0")
    said = f"""case $* in
"show job 7 -o") echo "{PREEMPTED}" ;;
"show partition low -o") echo "PartitionName=low PreemptMode={mode} State=UP" ;;
"show config") echo "PreemptType             = preempt/{by}" ;;
requeue*) touch again ;;
esac"""
    program(tmp_path, "scontrol", said)
    known = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_PARTITION": "low"}
    where = {"PATH": f"{tmp_path}:/usr/bin:/bin", **known}
    done = subprocess.run(["bash", "job.sh"], cwd=tmp_path, env=where, check=False)
    ends = [done.returncode, (tmp_path / "again").exists(), (tmp_path / "exit.json").exists()]
    assert ends == [143, is_queued_again, not is_queued_again]


@pytest.mark.parametrize("made", ["ln -sfT mine", "mkfifo"])
def test_what_the_job_writes_and_reads_beside_a_container_is_no_link_and_no_pipe_that_the_container_has_made(
    tmp_path: Path, made: str
) -> None:
    run, mine = tmp_path / "run", tmp_path / "thesis.tex"
    run.mkdir()
    mine.write_text("mine")
    made = made.replace("mine", str(mine))
    links = [run / name for name in (".exit.json", "exit.json", "log.txt")]
    (run / "job.sh").write_text(script(replace(ordered(TRAINING), folder=run)))
    program(tmp_path, "srun", "; ".join(f"{made} {link}" for link in links))
    program(tmp_path, "scontrol", ":")
    known = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "n1"}
    where = {"PATH": f"{tmp_path}:/usr/bin:/bin", **known}
    subprocess.run(["bash", str(run / "job.sh")], env=where, check=True, timeout=60)
    assert mine.read_text() == "mine"
    assert json.loads((run / "exit.json").read_text())["code"] == 0
    assert not any(link.is_symlink() or link.is_fifo() for link in links)

    kept = [run / name for name in (".task-0-n1", ".code-0-n1", ".marked-n1")]
    makes = "; ".join(f"rm -f {link}; {made} {link}" for link in kept)
    program(tmp_path, "docker", f"[ $1 != run ] || {{ {makes}; exit 7; }}")
    known = {"NGCDL_RUN": str(run), "NGCDL_ATTEMPT": "0", "SLURMD_NODENAME": "n1"}
    done = subprocess.run(
        ["bash", "-c", f'task={task_of(COMMAND, run)}\nbash -c "$task" task true'], cwd=run, check=False, timeout=60,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", **known},
    )  # fmt: skip
    assert (done.returncode, mine.read_text(), kept[0].read_text()) == (7, "mine", "7\n")

    for runner, before in (("apptainer", "nvidia-smi"), ("docker", "id")):
        program(tmp_path, before, f"rm -f {kept[0]}; {made} {kept[0]}; exit 1")
        spec = replace(COMMAND, gpus=GpuRequest("count", count=1), placement=Placement(container=runner))
        done = subprocess.run(
            ["bash", "-c", f'task={task_of(spec, run)}\nbash -c "$task" task true'], cwd=run, check=False,
            env={"PATH": f"{tmp_path}:/usr/bin:/bin", **known},
        )  # fmt: skip
        assert (done.returncode, mine.read_text(), kept[0].read_text()) == (125, "mine", "125\n"), "it has no GPU"


def test_the_run_goes_on_from_its_own_checkpoint_and_before_there_is_one_from_the_other_s(tmp_path: Path) -> None:
    text = script(replace(ordered(TRAINING), folder=tmp_path))
    begin, end = text.index("resume=()"), text.index("\ntask=")
    part = f'RUN={tmp_path}\n{text[begin:end]}\necho "${{resume[@]}}"'
    assert subprocess.check_output(["bash", "-c", part], text=True) == "\n"
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/step-50.npz.7.tmp").touch()  # torn while it was written
    assert subprocess.check_output(["bash", "-c", part], text=True) == "\n"
    (tmp_path / "checkpoints/step-50.npz").touch()
    assert subprocess.check_output(["bash", "-c", part], text=True) == f"--resume {tmp_path}\n"
    assert f"--resume {FOLDER.with_name('older')} " in text, "what was typed stands before it, and the later counts"


@pytest.mark.parametrize("runner", ["apptainer", "singularity"])
@pytest.mark.parametrize(
    ("nodes", "fetches", "calls", "code"),
    [("2", "true", ["exec", "srun"], 0), ("1", "true", ["srun"], 0), ("2", "false", ["exec"], 125)],
)
def test_with_apptainer_or_singularity_one_node_fills_the_cache_that_all_may_share_before_they_start(
    tmp_path: Path, nodes: str, fetches: str, calls: list[str], code: int, runner: str
) -> None:
    spec = replace(TRAINING, placement=Placement(container=runner))
    (tmp_path / "job.sh").write_text(script(replace(ordered(spec), folder=tmp_path)))
    program(tmp_path, runner, f'echo "$1" >>calls; {fetches}')
    program(tmp_path, "srun", "echo srun >>calls")
    program(tmp_path, "scontrol", ":")
    known = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": nodes, "SLURM_JOB_NODELIST": "n1"}
    words, path = ["bash", "job.sh"], {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(words, cwd=tmp_path, env={**path, **known}, timeout=240, check=False)
    assert ((tmp_path / "calls").read_text().split(), done.returncode) == (calls, code)
