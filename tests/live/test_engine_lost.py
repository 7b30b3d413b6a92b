"""Engines that are absent, forbidden, silent, old, full or killed: 125 and a remedy, or the run's true end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from faulty_front import Front
from house import until
from ngcdl_child import User, planted, user_in
from own_engine import OwnEngine, engine_of_ones_own
from ports import silent_port
from socket_relay import relay_to

pytestmark = pytest.mark.lab

UNTIL_OVER = "echo up; until [ -e over ]; do sleep 0.2; done; echo over; exit 5"
PATIENT = "from ngcdl import __main__; from ngcdl.engines.docker import job; job.PATIENCE_SECONDS = {}; __main__.main()"


def waiting(user: User, seconds: float) -> User:
    """Return `user`, whose ngcdl waits so long from now on for an engine that has gone away."""
    user.words = [sys.executable, "-P", "-c", PATIENT.format(seconds)]
    return user


# -- no answer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("host", "text"), [
    ("unix:///nosuch/docker.sock", "there is no socket"), ("tcp://127.0.0.1:1", "the connection was refused"),
])  # fmt: skip
def test_an_engine_that_is_not_there_is_named_with_the_remedy(user: User, host: str, text: str) -> None:
    for words in (("run", "busybox:1", "--", "true"), ("pull", "busybox:1")):
        done = user.run(*words, DOCKER_HOST=host)
        assert done.code == 125, done
        assert f"No Docker engine answers at {host}: {text}" in done.err
        assert "unset DOCKER_HOST" in done.err
    assert not user.ids()


def test_a_stale_socket_is_an_engine_that_is_not_there(user: User) -> None:
    path = user.folder / "stale.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    done = user.run("run", "busybox:1", "--", "true", DOCKER_HOST=f"unix://{path}")
    assert done.code == 125
    assert "the connection was refused" in done.err


def test_a_socket_that_never_answers_is_given_up_after_ten_seconds(user: User) -> None:
    path = user.folder / "silent.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(8)
        began = time.monotonic()
        done = user.run("run", "busybox:1", "--", "true", DOCKER_HOST=f"unix://{path}")
    assert done.code == 125, done
    assert "accepts connections but gave no answer within 10 s" in done.err
    assert time.monotonic() - began > 9


def test_an_engine_of_another_time_names_both_versions(user: User) -> None:
    path = user.folder / "new.sock"
    body = b'{"message":"client version 1.41 is too old. Minimum supported API version is 9.99"}'
    answer = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)

    def serve(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = server.accept()
                with line:
                    line.recv(65536)
                    line.sendall(answer + body)

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(8)
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        done = user.run("run", "busybox:1", "--", "true", DOCKER_HOST=f"unix://{path}")
        server.shutdown(socket.SHUT_RDWR)
    assert done.code == 125, done
    assert "share no API version" in done.err
    assert "9.99" in done.err


def test_the_oldest_supported_engine_runs_a_command(lab: dict[str, Any], tmp_path: Path) -> None:
    if not lab.get("floor"):
        pytest.skip("no old engine: scripts/lab up --floor")
    with user_in(tmp_path, lab, lab["floor"]["host"]) as user:
        done = user.run("run", "busybox:1", "-i", "--", "sh", "-c", "cat; exit 3", stdin="through\n")
        assert (done.code, done.out) == (3, "through\n"), done
        assert user.record()["engine_version"].startswith("20.10")
        user.has_gpus()
        done = user.run("run", "busybox:1", "--gpus", "1,", "--", "nvidia-smi", "-L")
        assert "A100" in done.out, done


# -- in the middle of a run -------------------------------------------------------------------------------------------


def test_a_container_that_somebody_removed_is_said_so(user: User) -> None:
    child = user.start("run", "busybox:1", "--", "sh", "-c", UNTIL_OVER)
    child.until_out("up")
    user.docker("rm", "-f", *user.containers())
    done = child.done()
    assert done.code == 125 or done.code == 137, done
    record = user.record()
    assert record["status"] == ("interrupted" if record["exit_code"] is None else "failed")
    assert record["reason"] == "the container was removed outside ngcdl"
    assert "could not be removed" not in done.err


def test_a_container_that_somebody_stopped_is_not_called_interrupted_by_the_user(user: User) -> None:
    child = user.start("run", "busybox:1", "--", "sh", "-c", "echo up; sleep 600")
    child.until_out("up")
    user.docker("stop", *user.containers())
    done = child.done()
    assert done.code == 143, done
    record = user.record()
    assert (record["status"], record["exit_code"]) == ("failed", 143)
    assert "ended by SIGTERM, not by ngcdl" in record["reason"]


@pytest.mark.parametrize(("script", "code"), [("exec tail /dev/zero", 137), ("tail /dev/zero; exit 0", 0)])
def test_out_of_memory_is_recorded_whatever_the_code(user: User, script: str, code: int) -> None:
    child = user.start(
        "run", "busybox:1", "--", "sh", "-c", f"echo up; until [ -e over ]; do sleep 0.1; done; {script}"
    )
    child.until_out("up")
    user.docker("update", "--memory", "24m", "--memory-swap", "24m", *user.containers())
    (user.here / "over").touch()
    done = child.done()
    assert done.code == code, done
    record = user.record()
    assert (record["exit_code"], record["oom_killed"]) == (code, True)
    assert "out of memory" in record["reason"]
    assert "out of memory" in done.err


def test_a_killed_engine_with_live_restore_is_waited_for_or_its_run_found_again(
    lab: dict[str, Any], tmp_path: Path
) -> None:
    with engine_of_ones_own(lab, **{"live-restore": True}) as engine, user_in(tmp_path, lab, engine.host) as user:
        child = waiting(user, 240).start("run", "busybox:1", "--", "sh", "-c", UNTIL_OVER)
        child.until_out("up")
        engine.kill9()
        engine.start()
        assert child.process.poll() is None
        (user.here / "over").touch()
        done = child.done()
        assert (done.code, done.out) == (5, "up\nover\n"), done
        record = user.record()
        assert (record["status"], record["exit_code"]) == ("failed", 5)

        (user.here / "over").unlink()
        child = waiting(user, 2).start("run", "busybox:1", "--", "sh", "-c", UNTIL_OVER)
        child.until_out("up")
        engine.kill9()
        done = child.done()
        assert done.code == 125, done
        assert "The Docker engine went away" in done.err
        record = user.record()
        assert (record["status"], record["exit_code"]) == ("lost", None)
        engine.start()
        assert user.shown()["status"] == "running"
        (user.here / "over").touch()
        until(lambda: user.shown()["status"] != "running", "the end")
        record = user.record()
        assert (record["status"], record["exit_code"], record["owner"]) == ("failed", 5, None)


def test_a_killed_engine_without_live_restore_ends_the_run_and_says_so(lab: dict[str, Any], tmp_path: Path) -> None:
    with (
        silent_port() as port,
        engine_of_ones_own(lab, tls_port=port) as engine,
        user_in(tmp_path, lab, engine.host) as user,
    ):
        child = user.start("run", "busybox:1", "--", "sh", "-c", UNTIL_OVER)
        child.until_out("up")
        _enter_over_tls(user, engine)  # here, because an engine of one's own takes seconds
        engine.kill9()
        engine.start()
        done = child.done()
        record = user.record()
        assert done.code == record["exit_code"], done
        assert done.code in (137, 143, 255), done
        assert record["status"] == "failed"
        assert "engine" in record["reason"] or "not by ngcdl" in record["reason"]


def _enter_over_tls(user: User, engine: OwnEngine) -> None:
    """Check that all bytes pass, both ways, whatever other CA this user's environment names."""
    (other := user.folder / "other.pem").touch()
    given = "x" * 300_000
    words = ("exec", "last", "--", "sh", "-c", "cat; echo err >&2; exit 3")
    done = user.run(*words, stdin=given, **engine.over_tls, REQUESTS_CA_BUNDLE=str(other))
    assert (done.code, done.out == given, done.err) == (3, True, "err\n"), done.err


def test_lines_of_an_output_that_was_cut_come_exactly_once(user: User, tmp_path: Path) -> None:
    script = "i=0; until [ -e over ]; do i=$((i + 1)); echo line $i; echo wrong $i >&2; sleep 0.02; done; exit 5"
    with relay_to(user.environment["DOCKER_HOST"], tmp_path) as relay:
        child = user.start("run", "busybox:1", "--", "sh", "-c", script, DOCKER_HOST=relay.address)
        child.until_out("line 20\n")
        relay.cut(rb"^POST /[^ ]*/attach")
        child.until_out("line 200\n")
        (user.here / "over").touch()
        done = child.done()
    assert done.code == 5, done
    for word in ("line", "wrong"):
        numbers = [int(line.split()[1]) for line in user.log().splitlines() if line.startswith(word)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) >= 200


@pytest.mark.parametrize("signals", [0, 1, 2])
def test_an_engine_that_hangs_ends_no_later_than_patience_and_after_two_signals_at_once(
    user: User, tmp_path: Path, signals: int
) -> None:
    user.may_leave_containers = True
    with relay_to(user.environment["DOCKER_HOST"], tmp_path) as relay:
        words = ("run", "busybox:1", "--", "sh", "-c", "echo up; sleep 600")
        child = waiting(user, 240 if signals == 2 else 2).start(*words, DOCKER_HOST=relay.address)
        child.until_out("up")
        relay.freeze()
        began = time.monotonic()
        for number in range(signals):
            child.signal(signal.SIGINT)
            if not number:
                child.until_err("press Ctrl-C again to kill")
        done = child.done()
        took = time.monotonic() - began
    record = user.record()
    assert (record["status"], record["exit_code"]) == ("lost", None), done
    assert done.code == (130 if signals == 2 else 125), done
    assert took < (30 if signals == 2 else 80)
    assert user.shown()["status"] == "running"


# -- disk -----------------------------------------------------------------------------------------------------------


def test_a_full_disk_at_pull_is_named_and_nothing_stale_runs(lab: dict[str, Any], front: Front, tmp_path: Path) -> None:
    with engine_of_ones_own(lab, tmpfs_bytes=50_000_000) as engine, user_in(tmp_path, lab, engine.host) as user:
        name = f"{front.host}/nvidia/busybox"
        user.docker("pull", "-q", f"{name}:entry")
        user.docker("tag", f"{name}:entry", f"{name}:big")
        done = user.run("run", "busybox:big", "--pull", "always", "--", "echo", "ran", NGCDL_REGISTRY=front.host)
        assert done.code == 125, done
        assert "No space left in" in done.err
        assert "docker system df" in done.err
        assert "ran" not in done.out
        assert not user.ids()


@pytest.fixture
def small_state(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Return a function that makes the records' folder a file system of a given size, such as 4m."""
    if os.geteuid() != 0:
        pytest.skip("mounting wants root")
    state = tmp_path / "state"
    state.mkdir()

    def mount(size: str) -> Path:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(state)], check=True)
        return state

    yield mount
    subprocess.run(["umount", "-l", str(state)], check=False)


def test_a_full_disk_at_a_checkpoint_stops_the_training_and_names_it(
    user: User, small_state: Callable[[str], Path]
) -> None:
    words = ("--train", "cifar10", "--steps", "5", "--batch", "8", "--data", "synthetic", "--no-eval", *planted("few"))
    done = user.run("run", "pytorch:26.07-py3", *words, XDG_STATE_HOME=str(small_state("4m")))
    assert done.code == 1, done
    shown = json.loads(user.run("show", "last", "--json", XDG_STATE_HOME=str(user.folder / "state")).out)
    assert (shown["status"], shown["exit_code"]) == ("failed", 1)
    assert shown["reason"].startswith("disk_full:")
    folder = user.folder / "state/ngcdl/runs" / shown["id"] / "checkpoints"
    assert not folder.exists() or not list(folder.iterdir())


def test_a_full_disk_under_the_record_does_not_stop_the_run(user: User, small_state: Callable[[str], Path]) -> None:
    state = small_state("256k")
    script = "echo up; until [ -e over ]; do sleep 0.1; done; echo end; exit 4"
    child = user.start("run", "busybox:1", "--", "sh", "-c", script, XDG_STATE_HOME=str(state))
    child.until_out("up")
    with contextlib.suppress(OSError), (state / "filler").open("wb") as filler:
        while True:
            filler.write(b"x" * 4096)
            filler.flush()
    (user.here / "over").touch()
    done = child.done()
    assert done.code == 4, done
    assert "end" in done.out
    assert "can't be written" in done.err
    (state / "filler").unlink()
    shown = json.loads(user.run("show", "last", "--json", XDG_STATE_HOME=str(state)).out)
    assert (shown["status"], shown["exit_code"]) == ("failed", 4), "its container was kept to tell it"
    assert shown["id"] not in user.docker("ps", "-a", "--format", '{{.Label "ngcdl.run"}}')


def test_a_state_folder_that_cannot_be_written_stops_before_anything_runs(user: User) -> None:
    blocked = user.folder / "file"
    blocked.write_text("")
    done = user.run("run", "busybox:1", "--", "true", XDG_STATE_HOME=str(blocked))
    assert done.code == 125
    assert "can't be written" in done.err


def test_kill_of_the_first_process_is_told_from_want_of_memory(user: User) -> None:
    child = user.start("run", "busybox:1", "--", "sh", "-c", UNTIL_OVER)
    child.until_out("up")
    os.kill(json.loads(user.docker("inspect", *user.containers()))[0]["State"]["Pid"], signal.SIGKILL)
    assert child.done().code == 137
    record = user.record()
    assert (record["status"], record["oom_killed"]) == ("failed", False)
    assert "killed (SIGKILL), not by ngcdl; Docker reports no lack of memory" in record["reason"]
