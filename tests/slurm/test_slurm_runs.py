"""Runs on a real two-node Slurm: submitted, followed, found again, stopped, and recorded to their end."""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import replace
from typing import Any

import pytest
from cluster_user import TRAIN, Someone
from house import until

from ngcdl.running.reconcile import SUBMISSION_SECONDS

pytestmark = pytest.mark.lab


def test_a_run_is_handed_in_followed_and_recorded_to_its_end(someone: Someone) -> None:
    says = someone.home / "says.json"
    done = someone.run(
        *TRAIN, "--nodes", "2", "--gpus", "1", "--time", "30", "-e", "MY_TOKEN=hush",
        env={
            "STAND_IN_SAYS": str(says), "NGC_API_KEY": "nvapi-hush", "SBATCH_TIMELIMIT": "nonsense",
            "SBATCH_EXPORT": "NONE",  # as some sites set it; the secret comes all the same
            "SLURM_MEM_PER_NODE": "99999999", "SLURM_CPUS_PER_TASK": "999",  # as inside another job
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Slurm accepted it as job" in done.stderr
    assert "step 0, loss = 4.68" in done.stdout
    run = someone.record()
    folder = someone.folder(run["id"])
    assert (run["status"], run["exit_code"], run["engine"], run["engine_id"]) == ("finished", 0, "slurm", "lab")
    assert (run["container"], run["owner"]) == (f"slurm:{someone.job(run['id'])}", None)
    assert (run["gpu_way"], run["spec"]["gpus"], run["spec"]["placement"]["container"]) == ("gres", "1", "pyxis")
    assert run["summary"]["steps"] == 2
    assert run["finished"] == json.loads((folder / "exit.json").read_text())["t"]
    said = json.loads(says.read_text())
    assert said["argv"][said["argv"].index("--out") + 1] == str(folder)
    assert said["environ"]["NGCDL_NODES"] == "2"
    assert said["environ"]["MASTER_ADDR"] == "127.0.0.1"
    assert said["environ"]["CUDA_VISIBLE_DEVICES"] == "0"
    assert said["environ"]["MY_TOKEN"] == "hush"
    assert "NGC_API_KEY" not in said["environ"]
    assert "hush" not in "".join(path.read_text() for path in folder.iterdir() if path.is_file())


def test_the_options_of_pyxis_and_of_slurm_reach_the_nodes(someone: Someone) -> None:
    run_id = someone.submits("--nodes", "2", "--gpus", "none", "--sbatch=--comment=mine", "--partition", "main")
    someone.ended(run_id)
    lines = [
        dict(word.split("=", 1) for word in line.split("\t"))
        for line in someone.cluster.record.read_text().splitlines()
        if f"job={someone.job(run_id)}\t" in line
    ]
    assert sorted(line["node"] for line in lines) == ["n1", "n2"]
    folder = someone.folder(run_id)
    assert {line["container-image"] for line in lines} == {"127.0.0.1:1#nvidia/pytorch:25.03-py3"}
    assert {line["container-mounts"] for line in lines} == {f"{folder}:{folder}"}
    assert {line["container-workdir"] for line in lines} == {str(folder)}
    assert all({"container-entrypoint", "no-container-mount-home"} <= line.keys() for line in lines)
    job = someone.slurm("scontrol", "show", "job", someone.job(run_id))
    assert "Comment=mine" in job
    assert "gres" not in job.lower().replace("gres/gpu", "gres") or "TresPerNode" not in job


def test_a_run_goes_on_without_ngcdl_and_is_found_again(someone: Someone) -> None:
    go = someone.home / "go"
    process = someone.popen(*TRAIN, env={"STAND_IN": "go", "STAND_IN_GO": str(go)})
    run_id = until(lambda: [one for one in someone.store.ids() if someone.store.load(one).container], "the job")[0]
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=240)
    someone.begun(run_id)
    assert someone.record()["status"] == "running"
    run = someone.store.load(run_id)  # without a job, and older than a submission takes, it is found by its name
    someone.store.save(replace(run, container=None, started=run.started - SUBMISSION_SECONDS))
    assert someone.record()["container"].startswith("slurm:")
    follower = someone.popen("logs", "-f", run_id)
    go.touch()
    out, _ = follower.communicate(timeout=240)
    assert "step 0" in out
    assert someone.record()["status"] == "finished"


def test_a_run_is_stopped_and_the_training_ends_by_itself(someone: Someone) -> None:
    run_id = someone.submits("--nodes", "2", STAND_IN="wait")
    someone.begun(run_id)
    done = someone.run("stop", run_id)
    assert "interrupted, exit code 143, stopped by ngcdl stop" in done.stderr
    assert someone.events(run_id)[-1]["kind"] == "interrupted"
    assert json.loads((someone.folder(run_id) / "exit.json").read_text())["code"] == 143
    until(lambda: someone.state(run_id) == "FAILED", "that it ended by itself, and was not cancelled")


def test_ctrl_c_stops_what_is_followed(someone: Someone) -> None:
    process = someone.popen(*TRAIN, env={"STAND_IN": "wait"})
    run_id = until(lambda: [one for one in someone.store.ids() if someone.store.load(one).container], "the job")[0]
    someone.begun(run_id)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=240)
    run = someone.record()
    assert (run["status"], run["exit_code"], run["reason"]) == ("interrupted", 130, "stopped by SIGINT")
    until(lambda: someone.state(run_id) == "FAILED", "the end of its job")


def test_a_job_that_somebody_cancels_is_interrupted_and_says_so(someone: Someone) -> None:
    run_id = someone.submits("--nodes", "2", STAND_IN="deaf")
    someone.begun(run_id)
    someone.slurm("scancel", someone.job(run_id))
    run = someone.ended(run_id)
    assert (run["status"], run["reason"].split(",")[0]) == ("interrupted", "Slurm: CANCELLED")


def test_a_training_that_fails_is_not_queued_again_and_gives_its_code(someone: Someone) -> None:
    done = someone.run(*TRAIN, "--nodes", "2", env={"STAND_IN": "nan"})
    run = someone.record()
    assert (done.returncode, run["status"], run["exit_code"]) == (1, "failed", 1)
    assert run["reason"] == "nan: the loss is NaN"
    assert json.loads((someone.folder(run["id"]) / "exit.json").read_text())["restarts"] == 0


def test_what_waits_says_for_what_and_is_cancelled_at_once(someone: Someone) -> None:
    first = someone.submits("--nodes", "2", STAND_IN="wait")
    someone.begun(first)
    second = someone.submits("--nodes", "2")
    until(lambda: "it waits for nodes to become free" in (someone.record(second)["reason"] or ""), "the reason")
    follower = someone.popen("logs", "-f", second)
    assert "interrupted" in someone.run("stop", second).stderr
    follower.communicate(timeout=240)
    someone.run("stop", first)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        # 22.05 accepts it, and lets it wait forever (PartitionConfig); 24.11 refuses it at once
        (("--gpus", "9", "--sbatch=--cpus-per-task=18"), ("fewer --gpus", "main*: 2 nodes, ", "gpu:fake:1")),
        (
            ("--gpus", "9"),
            ("requested node configuration is not available", "gpu:fake:1"),
        ),
        (("--partition", "none"), ("partition", "main*: 2 nodes")),
    ],
)
def test_what_can_t_be_placed_is_said_at_once_with_what_there_is(
    someone: Someone, words: tuple[str, ...], said: tuple[str, ...]
) -> None:
    done = someone.run(*TRAIN, *words)
    assert done.returncode == 125
    for text in said:
        assert text in done.stderr.lower()
    assert someone.record()["status"] == "failed"
    assert someone.slurm("squeue", "-h", "-o", "%i") == ""


def test_a_dry_run_is_the_script_and_hands_nothing_in(someone: Someone) -> None:
    done = someone.run(*TRAIN, "--nodes", "2", "--dry-run")
    assert done.stdout.startswith("#!/bin/bash\n#SBATCH --job-name=ngcdl-dry-run\n#SBATCH --nodes=2\n")
    assert someone.store.ids() == []


def test_a_lost_node_s_job_is_queued_again_and_every_step_is_trained_once(someone: Someone) -> None:
    go = someone.home / "go"
    run_id = someone.submits("--nodes", "2", "--gpus", "1", STAND_IN="steps", STAND_IN_GO=str(go))
    someone.begun(run_id, 5)
    someone.cluster.kill_node("n2")
    until(lambda: someone.state(run_id) == "PENDING", "the queue")
    assert someone.record(run_id)["status"] == "running"
    assert "holds it back for two minutes" in someone.record(run_id)["reason"]
    someone.cluster.start_node("n2")
    someone.cluster.wait_idle()
    go.touch()
    # in place of Slurm's two minutes: what the first attempt still sends would hit the next
    someone.slurm("scontrol", "update", f"JobId={someone.job(run_id)}", "StartTime=now+10")
    run = someone.ended(run_id)
    assert (run["status"], run["exit_code"]) == ("finished", 0)
    steps = [event["step"] for event in someone.events(run_id) if event["event"] == "step"]
    assert steps == list(range(10))
    assert json.loads((someone.folder(run_id) / "exit.json").read_text())["restarts"] == 1


def test_a_folder_that_the_nodes_do_not_see_is_told(someone: Someone) -> None:
    sbatch = shutil.which("sbatch", path=someone.environment()["PATH"])
    assert sbatch
    someone.brings("sbatch", sbatch, "--output=/proc/nowhere/log.txt")  # where 24.11 can't create a folder either
    run_id = someone.submits()
    run = someone.ended(run_id)
    assert (run["status"], run["exit_code"]) == ("failed", 125)
    assert "storage that all nodes share" in run["reason"]


def test_a_node_that_has_made_the_folder_itself_is_told_too(someone: Someone) -> None:
    run_id = someone.submits("--sbatch=--hold")
    (someone.folder(run_id) / "job.sh").unlink()
    someone.slurm("scontrol", "release", someone.job(run_id))
    run = someone.ended(run_id)
    assert (run["status"], run["exit_code"]) == ("failed", 125)
    assert "storage that all nodes share" in run["reason"]


def test_an_image_is_fetched_by_one_node_for_all_where_they_share_a_folder_for_it(someone: Someone) -> None:
    someone.brings("enroot", "sh", "-c", f'echo "$4" >>{someone.home}/imports; echo image >"$3"', "enroot")
    images = someone.home / "images"
    for _ in range(2):
        done = someone.run(*TRAIN, "--nodes", "2", env={"NGCDL_IMAGES": str(images)})
        assert done.returncode == 0, done.stderr
    assert (someone.home / "imports").read_text() == "docker://127.0.0.1:1#nvidia/pytorch:25.03-py3\n"
    (kept,) = images.glob("*.sqsh")
    assert f"container-image={kept}\t" in someone.cluster.record.read_text()


def test_a_script_to_keep_is_handed_in_by_anybody_for_a_run_of_its_own(lab: dict[str, Any], someone: Someone) -> None:
    registry = lab["registry"]
    first = someone.submits("--nodes", "2", NGCDL_REGISTRY=registry["host"], NGC_API_KEY=registry["key"])
    someone.ended(first)
    script = someone.home / "job.sh"
    script.write_text(someone.run("export", "slurm", first).stdout)
    job = someone.slurm("sbatch", "--parsable", f"--chdir={someone.home}", str(script))
    until(lambda: (someone.home / f"ngcdl-{job}/exit.json").exists(), "its end")
    assert json.loads((someone.home / f"ngcdl-{job}/exit.json").read_text())["code"] == 0
    assert "finish" in (someone.home / f"ngcdl-{job}/events.jsonl").read_text()
    assert (someone.home / f"ngcdl-{job}/trainer/__main__.py").exists()


def test_a_run_whose_time_is_up_saves_and_says_so(someone: Someone) -> None:
    run_id = someone.submits("--nodes", "2", "--time", "1", STAND_IN="wait")  # so short that the first check warns
    run = someone.ended(run_id)  # slurmctld checks every 30 s (PERIODIC_TIMEOUT), later when it is busy
    assert (run["status"], run["reason"]) == ("interrupted", "Slurm's time limit was reached (--time)")
    assert someone.events(run_id)[-1]["kind"] == "interrupted"
