"""Ctrl-C and similar signals in each phase: the code is 128 + n, or what a command that catches the signal ends with;
the record is closed, nothing is left running."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest
from faulty_front import Front
from ngcdl_child import User, planted
from pseudo_terminal import terminal
from socket_relay import relay_to

pytestmark = pytest.mark.lab

STUBBORN = "trap '' TERM INT HUP; echo up; while :; do sleep 1; done"


def test_ctrl_c_at_the_hidden_prompt_ends_ngcdl_by_that_signal_and_keeps_nothing(user: User) -> None:
    with terminal(user, "login") as shell:
        shell.until("it stays hidden")
        shell.type("nvapi-half\x03")
        assert shell.end() == -signal.SIGINT, shell.shown
    assert b"nvapi-half" not in shell.shown
    assert b"Traceback" not in shell.shown
    assert not (user.home / ".docker/config.json").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_a_pull_ends_it_and_records_nothing(
    user: User, front: Front, number: signal.Signals, code: int
) -> None:
    front.break_down(manifest={"hang": True, "skip": 2})  # what comes before the pull asks twice
    child = user.start("run", "busybox:1", "--", "true", NGCDL_REGISTRY=front.host)
    child.until_err("Pulling")
    child.signal(number)
    done = child.done()
    assert done.code == code, done
    assert not user.ids()


@pytest.mark.parametrize("request_line", [rb"^POST /[^ ]*/containers/create", rb"^POST /[^ ]*/start"])
def test_ctrl_c_before_the_start_leaves_no_container(user: User, tmp_path: Path, request_line: bytes) -> None:
    with relay_to(user.environment["DOCKER_HOST"], tmp_path) as relay:
        relay.hold_answer(request_line) if b"create" in request_line else relay.hold(request_line)
        child = user.start("run", "busybox:1", "--", "sleep", "600", DOCKER_HOST=relay.address)
        assert relay.held.wait(240)
        child.signal(signal.SIGINT)
        done = child.done()
    assert done.code == 130, done
    record = user.record()
    assert (record["status"], record["exit_code"], record["owner"]) == ("interrupted", 130, None)
    assert user.containers() == []


@pytest.mark.parametrize("image", ["tensorflow:18.01-py2", "pytorch:26.07-py3"])
def test_ctrl_c_once_saves_a_checkpoint_and_resume_goes_on_from_it(user: User, image: str) -> None:
    words = ("run", image, "--train", "cifar10", "--batch", "8", "--data", "synthetic", "--no-eval", *planted("few"))
    child = user.start(*words, "--steps", "100000")
    child.until_out("step 10,")
    child.signal(signal.SIGINT)
    done = child.done()
    assert done.code == 130, done
    assert "Traceback" not in done.err
    record = user.record()
    assert (record["status"], record["exit_code"], record["reason"]) == ("interrupted", 130, "stopped by SIGINT")
    assert record["finished"] >= record["started"]
    reached = record["summary"]["steps"]
    assert reached > 10
    assert (user.runs / record["id"] / f"checkpoints/step-{reached}.npz").exists()
    again = user.run(*words, "--steps", str(reached + 11), "--resume", "last")
    assert again.code == 0, again
    steps = [int(step) for step in re.findall(r": step (\d+), loss", again.out)]
    assert steps
    assert min(steps) >= reached
    assert user.record()["spec"]["workload"]["resume"] == record["id"]
    assert user.shown()["summary"]["steps"] == reached + 11


def test_a_run_under_nohup_survives_the_hangup(user: User) -> None:
    user.words = ["nohup", *user.words]
    child = user.start("run", "busybox:1", "--", "sh", "-c", "echo up; until [ -e over ]; do sleep 0.1; done")
    child.until_out("up")
    child.signal(signal.SIGHUP)
    (user.here / "over").touch()
    assert child.done().code == 0
    assert user.record()["status"] == "finished"


def test_ctrl_c_twice_kills_at_once(user: User) -> None:
    child = user.start("run", "busybox:1", "--", "sh", "-c", STUBBORN)
    child.until_out("up")
    began = time.time()
    child.signal(signal.SIGINT)
    child.until_err("press Ctrl-C again to kill")
    child.signal(signal.SIGINT)
    done = child.done()
    assert done.code == 137, done
    record = user.record()
    assert record["status"] == "interrupted"
    assert record["finished"] - began < 19, "of itself ngcdl waits for 10 s, and then the engine for 10 s more"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_stops_the_run_and_the_record_says_which(user: User, number: signal.Signals) -> None:
    child = user.start(
        "run", "busybox:1", "--", "sh", "-c", "trap 'echo bye; exit 9' TERM INT; echo up; sleep 600 & wait"
    )
    child.until_out("up")
    child.signal(number)
    done = child.done()
    assert done.code == 9, done
    assert "bye" in done.out
    record = user.record()
    assert (record["status"], record["exit_code"]) == ("interrupted", 9)
    assert record["reason"] == f"stopped by {number.name}"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGUSR1, 7), (signal.SIGQUIT, 9)])
def test_a_signal_that_is_no_ctrl_c_leaves_no_container_behind_either(
    user: User, number: signal.Signals, code: int
) -> None:
    script = "trap 'exit 7' USR1; trap 'exit 9' TERM; echo up; sleep 600 & wait"
    child = user.start("run", "busybox:1", "--", "sh", "-c", script)
    child.until_out("up")
    child.signal(number)
    assert child.done().code == code
    assert user.containers() == []
    assert user.record()["exit_code"] == code
