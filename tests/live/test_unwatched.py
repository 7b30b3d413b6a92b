"""Runs without a terminal, and runs whose ngcdl was killed: they go on, and their end is recorded as it was."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from house import until
from ngcdl_child import Started, User, planted
from socket_relay import relay_to

pytestmark = pytest.mark.lab

TRAIN = ("run", "pytorch:26.07-py3", "--train", "cifar10", "--batch", "8", "--data", "synthetic", "--no-eval")
UNTIL_OVER = "echo up; until [ -e over ]; do sleep 0.2; done; echo done; exit 5"


def _kill9(child: Started) -> None:
    child.signal(signal.SIGKILL)
    assert child.done().code == -9


def _listed(user: User) -> dict[str, Any]:
    done = user.run("runs", "--json")
    assert done.code == 0, done
    run: dict[str, Any] = json.loads(done.out)[0]
    return run


def test_a_killed_ngcdl_leaves_the_run_going_and_the_next_command_closes_its_record(user: User) -> None:
    child = user.start("run", "busybox:1", "--", "sh", "-c", UNTIL_OVER)
    child.until_out("up")
    _kill9(child)
    listed = _listed(user)
    assert listed["status"] == "running"
    assert any("nothing was measured from then on" in note for note in listed["notes"])
    assert len(user.containers()) == 1
    (user.here / "over").touch()
    until(lambda: user.inspect()["State"]["Status"] == "exited", "the end")
    closed = _listed(user)
    assert (closed["status"], closed["exit_code"], closed["owner"]) == ("failed", 5, None)
    assert closed["finished"] is not None
    assert user.containers() == []
    assert closed == user.record()
    assert user.log() == "up\ndone\n", "Docker had what was written while nobody watched"


@pytest.mark.parametrize("words", [(), ("--detach",)])
def test_what_a_run_writes_after_its_ngcdl_was_killed_is_followed_while_it_goes_on(
    user: User, words: tuple[str, ...]
) -> None:
    script = "echo up; until [ -e on ]; do sleep 0.2; done; echo on; until [ -e over ]; do sleep 0.2; done; echo done"
    child = user.start("run", "busybox:1", *words, "--", "sh", "-c", script)
    until(lambda: any("up" in log.read_text() for log in user.runs.glob("*/log.txt")), "its first word")
    os.kill(user.record()["owner"]["pid"], signal.SIGKILL)
    child.done()
    follower = user.start("logs", "-f", "last")
    follower.until_out("up")
    (user.here / "on").touch()
    follower.until_out("on\n")
    until(lambda: any("from then on" in note for note in user.shown()["notes"]), "the word that nobody watches it")
    looked = user.run("logs", "last")
    assert (looked.out, "ngcdl logs -f" in looked.err) == ("up\n", True)
    newest = user.start("logs", "-f", "-n", "1", "last")
    newest.until_out("on\n")
    (user.here / "over").touch()
    done = follower.done()
    assert (done.code, done.out) == (0, "up\non\ndone\n"), done
    assert newest.done().out == "on\ndone\n"
    assert user.log() == "up\non\ndone\n"
    assert user.containers() == []


def test_a_killed_ngcdl_s_run_is_followed_to_its_last_word_and_recognised(user: User) -> None:
    words = "seq 30000; echo RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB >&2; exit 1"
    child = user.start("run", "busybox:1", "--", "sh", "-c", f"echo up; until [ -e over ]; do sleep 0.2; done; {words}")
    child.until_out("up")
    _kill9(child)
    follower = user.start("logs", "-f", "last")
    follower.until_out("up")
    (user.here / "over").touch()
    assert follower.done().code == 0
    assert follower.out == user.log()
    lines = user.log().splitlines()
    assert sorted(line for line in lines if line.isdecimal()) == sorted(map(str, range(1, 30001)))
    assert sum("CUDA out of memory" in line for line in lines) == 1
    assert user.record()["diagnosis"]["name"] == "gpu-out-of-memory"
    assert user.containers() == []


def test_a_run_whose_container_is_gone_as_well_is_lost(user: User) -> None:
    child = user.start("run", "busybox:1", "--", "sh", "-c", UNTIL_OVER)
    child.until_out("up")
    _kill9(child)
    user.docker("rm", "-f", *user.containers())
    assert _listed(user)["status"] == "lost"
    assert user.record()["exit_code"] is None


def test_a_container_that_a_killed_ngcdl_had_not_started_is_no_finished_run(user: User, tmp_path: Path) -> None:
    with relay_to(user.environment["DOCKER_HOST"], tmp_path) as relay:
        relay.hold(rb"^POST /[^ ]*/start")
        child = user.start("run", "busybox:1", "--", "true", DOCKER_HOST=relay.address)
        assert relay.held.wait(240)
        _kill9(child)
    assert len(user.containers()) == 1
    listed = _listed(user)
    assert (listed["status"], listed["exit_code"]) == ("interrupted", None)
    assert "never started" in listed["reason"]
    assert user.containers() == []


def test_stop_ends_a_run_that_nobody_watches(user: User) -> None:
    child = user.start("run", "busybox:1", "--", "sh", "-c", "trap 'exit 7' TERM; echo up; sleep 600 & wait")
    child.until_out("up")
    _kill9(child)
    done = user.run("stop", "last")
    assert done.code == 0, done
    record = user.record()
    assert (record["status"], record["exit_code"]) == ("interrupted", 7)
    assert user.containers() == []


def test_a_detached_training_prints_its_id_is_followed_and_stopped_with_a_checkpoint(user: User) -> None:
    done = user.run(*TRAIN, *planted("few"), "--steps", "100000", "--detach")
    assert done.code == 0, done
    run_id = done.out.strip()
    assert user.ids() == [run_id]
    follower = user.start("logs", "-f", run_id)
    follower.until_out("step 20,")
    stopped = user.run("stop", run_id)
    assert stopped.code == 0, stopped
    record = user.record()
    assert (record["status"], record["exit_code"]) == ("interrupted", 143)
    assert list((user.runs / run_id / "checkpoints").glob("step-*.npz"))
    assert follower.done().code == 0
    assert follower.out == user.log()
    assert record["summary"]["samples"] > 0
    assert user.run("stop", run_id).err.count("has already ended") == 1


def test_a_detached_command_ends_by_itself_and_is_recorded(user: User) -> None:
    done = user.run(
        "run", "busybox:1", "-d", "-e", "MY_API_KEY=swordfish", "--", "sh", "-c", "echo $MY_API_KEY; exit 6"
    )
    assert done.code == 0, done
    until(lambda: user.record()["status"] != "running", "the end")
    record = user.record()
    assert (record["status"], record["exit_code"]) == ("failed", 6)
    assert user.log() == "swordfish\n"
    assert "swordfish" not in json.dumps(record)
    until(lambda: not user.containers(), "the container's removal")
    until(lambda: not _watchers(record["id"]), "the end of the process that watched it")


def _watchers(run_id: str) -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit() and _watches(name, run_id)]  # noqa: PTH208


def _watches(pid: str, run_id: str) -> bool:
    try:
        return run_id.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_a_detached_run_that_cannot_start_is_an_error_at_once(user: User) -> None:
    user.has_gpus()
    words = ("--gpus", "all", "-e", "NGCDL_LAB_GPU_FAULT=driver-not-loaded", "--", "true")
    done = user.run("run", "busybox:1", "-d", *words)
    assert done.code == 125, done
    assert "driver not loaded" in done.err
    assert user.record()["status"] == "failed"
