"""`ngcdl run` on the local engine, as a process: finished, failed, interrupted, detached, and what its record says."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from house import LIKE_OTHERS, TRAIN, House, until

from ngcdl import processes
from ngcdl.cli.run import _next_step, exit_code, no_open_record
from ngcdl.record import Diagnosis, Run
from ngcdl.running import owner
from ngcdl.running.interrupt import STOPPING
from ngcdl.running.signals import Interrupted
from ngcdl.storing.store import Store


def test_a_failure_that_is_explained_is_not_put_down_to_a_missing_python(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    known = Diagnosis("rlimit-forbidden", "rlimit type 7", "forbidden", "none", "https://x", "seen")
    for diagnosis, is_said in ((None, True), (known, False)):
        _next_step(Run("x", "failed", 1.0, exit_code=126, diagnosis=diagnosis), house.store)
        assert ("this image has no python" in capsys.readouterr().err) == is_said


def events(house: House) -> list[dict[str, Any]]:
    """What the newest run's trainer has written so far."""
    for run_id in house.store.ids()[:1]:
        path = house.store.folder(run_id) / "events.jsonl"
        if path.exists():
            return [json.loads(line) for line in path.read_text().splitlines()]
    return []


def started(house: House, *more: str, **env: str) -> subprocess.Popen[str]:
    """Start a run; wait for its trainer."""
    process = house.popen(*TRAIN, *more, env=env)
    until(lambda: len(events(house)) >= 2, "the first step")
    return process


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=240)
    assert "Traceback" not in err, err
    return process.returncode, out, err


def test_a_run_trains_shows_its_table_and_is_recorded(trained: House) -> None:
    done = trained.run(*TRAIN)
    assert done.returncode == 0, done.stderr
    assert "step 0, loss = 4.68" in done.stdout
    assert "SYNTHETIC" in done.stdout
    assert "engine local: it was named" in done.stderr
    record = trained.record()
    assert (record["status"], record["exit_code"], record["engine"]) == ("finished", 0, "local")
    assert (record["dataset"], record["device"], record["gpus"]) == ("synthetic", "cpu", [])
    assert record["machine"]["cores"] == os.cpu_count()
    assert (record["summary"]["steps"], record["summary"]["loss_first"]) == (2, 4.68)
    assert record["summary"]["gpu_percent_mean"] is None, "unknown, not 0"
    assert (trained.store.folder(record["id"]) / "log.txt").read_text() in done.stdout


@pytest.mark.parametrize("name", ["resident", "input-pipeline", "batch-sweep", "cifar10"])
def test_one_arm_of_a_training_that_asks_something_names_what_answers_it(trained: House, name: str) -> None:
    done = trained.run("run", "--train", name, *TRAIN[3:])
    assert done.returncode == 0, done.stderr
    last = done.stderr.splitlines()[-1]
    assert (last == f"ngcdl: its question: ngcdl compare --train {name}") is (name != "cifar10")


def test_json_is_the_record_and_the_output_goes_to_stderr(trained: House) -> None:
    done = trained.run(*TRAIN, "--json")
    record = json.loads(done.stdout)
    assert record == trained.record()
    assert "step 0" in done.stderr


def test_the_trainer_is_given_what_was_typed(trained: House) -> None:
    says = trained.home / "says.json"
    trained.run(
        *TRAIN, "--steps", "7", "--batch", "8", "--seed", "9", "--threads", "3", "--no-eval", "-e", "A=b=c",
        env={"STAND_IN_SAYS": str(says), "NGC_API_KEY": "nvapi-hush"},
    )  # fmt: skip
    said = json.loads(says.read_text())
    assert said["argv"][:1] == ["-m"] or "cifar10" in said["argv"]
    line = " ".join(said["argv"])
    assert "--device cpu --steps 7 --batch 8 --seed 9 --threads 3 --data synthetic --no-eval" in line
    assert said["environ"]["A"] == "b=c"
    assert "NGC_API_KEY" not in said["environ"]


def test_a_failed_training_gives_its_code(trained: House) -> None:
    assert trained.run(*TRAIN, env={"STAND_IN": "fail"}).returncode == 7
    assert (trained.record()["status"], trained.record()["exit_code"]) == ("failed", 7)


def test_a_training_that_meets_nan_says_so(trained: House) -> None:
    done = trained.run(*TRAIN, env={"STAND_IN": "nan"})
    assert done.returncode == 1
    assert trained.record()["reason"] == "nan: the loss is NaN"
    assert "the loss is NaN" in done.stdout


@pytest.mark.parametrize(
    ("name", "value"), [("HF_TOKEN", "hush-hush"), ("HTTPS_PROXY", "http://me:hush-hush@proxy:3128")]
)
def test_a_secret_variable_reaches_the_run_and_no_file(trained: House, name: str, value: str) -> None:
    says = trained.home / "says.json"
    trained.run(*TRAIN, "-e", f"{name}={value}", env={"STAND_IN_SAYS": str(says)})
    assert json.loads(says.read_text())["environ"][name] == value
    says.unlink()
    kept = [path for path in trained.home.rglob("*") if path.is_file() and b"hush-hush" in path.read_bytes()]
    assert kept == []
    assert trained.record()["spec"]["environment"][name] == "***"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_training_and_closes_the_record(trained: House, number: signal.Signals) -> None:
    process = started(trained, STAND_IN="wait")
    process.send_signal(number)
    assert ended(process)[0] == 128 + number
    record = trained.record()
    assert (record["status"], record["exit_code"]) == ("interrupted", 128 + number)
    assert record["reason"] == f"stopped by {number.name}"
    assert events(trained)[-1]["kind"] == "interrupted", "it was asked, not killed"


def test_a_second_ctrl_c_kills_what_does_not_listen(trained: House) -> None:
    process = started(trained, STAND_IN="deaf")
    run = until(lambda: (run := trained.store.load(trained.store.find("last"))).container and run, "its record")
    child = int(run.container.split(":")[1])
    process.send_signal(signal.SIGINT)
    assert process.stderr
    until(lambda: STOPPING in process.stderr.readline(), "the first signal's word")
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130
    assert trained.record()["status"] == "interrupted"
    assert processes.began(child) is None


@pytest.mark.parametrize(
    ("status", "code", "exits"),
    [("finished", 0, 0), ("failed", 7, 7), ("interrupted", 143, 143), ("failed", 0, 125), ("lost", None, 125)],
)
def test_the_exit_code_is_the_run_s_and_never_0_for_one_that_failed(status: str, code: int | None, exits: int) -> None:
    assert exit_code(Run("x", status, 1.0, exit_code=code)) == exits


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Interrupted(signal.SIGTERM)])
def test_a_signal_between_the_record_and_the_start_closes_the_record(tmp_path: Path, error: BaseException) -> None:
    store = Store(tmp_path)
    for run in (Run("2-ours", "running", 1.0, owner=owner.this_process()), Run("1-theirs", "running", 1.0)):
        store.create(run)
    with pytest.raises(type(error)), no_open_record(store):
        raise error
    closed = store.load("2-ours")
    assert (closed.status, closed.exit_code in (130, 143), closed.owner) == ("interrupted", True, None)
    assert closed.finished is not None
    assert store.load("1-theirs").status == "running"


@pytest.mark.parametrize("more", [(), ("-t",)])
def test_a_terminal_that_was_asked_for_where_none_is_is_told_to_be_missing(house: House, more: tuple[str, ...]) -> None:
    done = house.run("run", *more, "--", "true")
    assert (done.returncode, "-t: the run gets no terminal: stdin and stdout must" in done.stderr) == (0, bool(more))


def test_a_detached_run_does_not_get_what_is_piped_and_that_is_said(house: House) -> None:
    told = "-i: with --detach nothing from stdin reaches the run"
    words = "-m ngcdl run -d -i busybox:1 -- cat"
    assert told in house.shell(f"echo piped | {sys.executable} {words}").stderr
    assert told not in house.shell(f"{sys.executable} {words} < /dev/null").stderr


def test_a_gpu_that_is_demanded_where_there_is_none_ends_before_anything_runs(trained: House) -> None:
    done = trained.run("run", "--train", "cifar10", "--engine", "local", "--data", "synthetic", "--gpus", "all")
    assert (done.returncode, done.stdout) == (125, "")
    assert "--gpus none" in done.stderr
    assert trained.store.ids() == []


def test_auto_without_a_gpu_says_loudly_that_it_computes_on_the_cpu(trained: House) -> None:
    done = trained.run("run", "--train", "cifar10", "--data", "synthetic")
    assert done.returncode == 0, done.stderr
    assert "WARNING" in done.stderr
    assert "CPU" in done.stderr
    assert any("WARNING" in note for note in trained.record()["notes"])


def test_an_image_without_docker_names_the_remedy(house: House) -> None:
    done = house.run("run", "tensorflow:18.01-py2", "--train", "cifar10", "--gpus", "none")
    assert done.returncode == 125
    assert "No Docker engine" in done.stderr
    assert "--engine local" in done.stderr


def test_a_state_folder_that_can_t_be_written_is_told(trained: House) -> None:
    (trained.home / "state").touch()
    done = trained.run(*TRAIN)
    assert done.returncode == 125
    assert "XDG_STATE_HOME" in done.stderr


def test_a_folder_that_is_gone_is_told(trained: House) -> None:
    done = trained.shell(f"mkdir gone; cd gone; rmdir ../gone; ngcdl {' '.join(TRAIN)}; echo $?")
    assert (done.stdout, "no longer exists" in done.stderr) == ("2\n", True)


def test_a_detached_run_gives_its_id_goes_on_and_can_be_stopped(trained: House) -> None:
    folder = trained.home / "a:b,c d"
    folder.mkdir()
    done = trained.run(*TRAIN, "--detach", env={"STAND_IN": "wait"}, cwd=folder)
    assert done.returncode == 0, done.stderr
    run_id = done.stdout.strip()
    assert trained.store.ids() == [run_id]
    assert done.stderr.endswith(
        f"ngcdl: detached. Watch it, or stop it:\n    ngcdl logs -f {run_id}\n    ngcdl show {run_id} --watch 1\n"
        f"    ngcdl stop {run_id}\n"
    )
    until(lambda: len(events(trained)) >= 2, "the first step")
    assert trained.record()["status"] == "running"
    waiting, for_all = trained.popen("wait"), trained.popen("wait", "--all")
    assert for_all.stderr.readline() == f"ngcdl: waiting for {run_id}\n"
    stopped = trained.run("stop", run_id)
    assert "interrupted, exit code 143, stopped by ngcdl stop" in stopped.stderr
    assert (waiting.wait(240), for_all.wait(240), trained.run("wait", run_id).returncode) == (143, 143, 143)


def test_a_detached_run_that_ends_well_is_finished(trained: House) -> None:
    run_id = trained.run(*TRAIN, "--detach", "--name", "lr_3e-4", "-e", "HF_TOKEN=hush").stdout.strip()
    assert "-lr_3e-4-" in run_id
    failing = trained.run(*TRAIN, "--detach", env={"STAND_IN": "fail"}).stdout.strip()
    both = trained.run("wait", "lr_3e-4", "last", "last")
    assert both.returncode == 7
    assert re.findall(r"ngcdl: (\S+): (?:finished|failed)", both.stderr) == [run_id, failing]
    assert trained.run("wait", "lr_3e-4").returncode == 0
    assert trained.run("wait", "--all").stderr == "ngcdl: nothing is running\n"
    assert "ngcdl wait last" in trained.run("wait", "last", "--all").stderr
    assert trained.store.load(run_id).status == "finished"
    assert trained.record(run_id)["spec"]["environment"]["HF_TOKEN"] == "***"


def test_logs_are_what_the_run_wrote_and_follow_ends_with_it(trained: House) -> None:
    go = trained.home / "go"
    process = started(trained, STAND_IN="go", STAND_IN_GO=str(go))
    follower = trained.popen("logs", "--follow")
    assert follower.stdout is not None
    assert "step 0" in follower.stdout.readline()
    go.touch()
    assert ended(process)[0] == 0
    assert ended(follower)[0] == 0
    assert trained.run("logs").stdout == (trained.store.folder(trained.store.find("last")) / "log.txt").read_text()


@pytest.mark.tensorflow
@pytest.mark.timeout(1200)
def test_a_real_training_runs_from_the_command_to_the_record(house: House) -> None:
    """The local engine installs TensorFlow; NGCDL_TEST_SHARE keeps it between sessions."""
    home_s = os.environ.get("XDG_DATA_HOME") or str(Path("~/.local/share").expanduser())
    share = os.environ.get("NGCDL_TEST_SHARE") or home_s
    trusted = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PIP_", "UV_", "SSL_CERT")) or name.lower().endswith("_proxy")
    }
    more = {**trusted, "XDG_DATA_HOME": share, "PYTHONWARNINGS": ""}  # pip and TensorFlow emit warnings
    with house.popen(*TRAIN, "--steps", "20", "--batch", "32", "--no-eval", "--json", env=more) as process:
        out, err = process.communicate(timeout=1100)
    assert process.returncode == 0, err
    record = json.loads(out)
    assert (record["status"], record["exit_code"], record["dataset"], record["device"]) == (
        "finished", 0, "synthetic", "cpu",
    )  # fmt: skip
    summary = record["summary"]
    assert summary["steps"] == 20
    assert 4.6 <= summary["loss_first"] <= 4.75
    assert summary["examples_per_second"] > 0
    assert summary["cpu_percent_mean"] is not None
    assert summary["gpu_percent_mean"] is None


def test_batch_and_steps_are_the_workload_s_own_where_none_were_typed(trained: House) -> None:
    trained.run(*(word.replace("cifar10", "cifar10-keras") for word in TRAIN))
    assert (trained.record()["spec"]["workload"]["batch"], trained.record()["spec"]["workload"]["steps"]) == (32, 15630)


def test_a_training_that_makes_its_data_up_fetches_none(trained: House) -> None:
    done = trained.run("run", "--train", "lstm", "--engine", "local", "--gpus", "none")
    assert done.returncode == 0, done.stderr
    assert "CIFAR-10" not in done.stderr
    assert trained.record()["dataset_note"] == "lstm makes its data up, in place of the Penn Treebank"
    trained.run("run", "--train", "smoke", "--engine", "local", "--gpus", "none")
    smoke = next(one for one in trained.store.ids() if "smoke" in one)
    assert trained.store.load(smoke).dataset_note is None, "it has no data"


@pytest.mark.parametrize("training", ["cifar10", "catdog"])
def test_data_below_a_folder_that_may_not_be_entered_is_told_by_its_name(trained: House, training: str) -> None:
    (trained.home / "locked/data").mkdir(parents=True)
    (trained.home / "locked").chmod(0)
    data = f"{trained.home}/locked/data"
    words = ("run", "--train", training, "--engine", "local", "--gpus", "none")
    done = trained.run(*words, "--data", data, before=LIKE_OTHERS)
    assert done.returncode in (2, 125)
    assert data in done.stderr
    assert "Permission denied" in done.stderr


def test_a_detached_run_whose_id_can_t_be_written_is_named_all_the_same(house: House) -> None:
    with Path("/dev/full").open("w") as full:
        done = house.run("run", "--detach", "--", "true", stdout=full)
    (run_id,) = house.store.ids()
    assert done.returncode == 125
    assert f"    ngcdl logs -f {run_id}\n" in done.stderr
    assert until(lambda: house.store.load(run_id).status == "finished")
