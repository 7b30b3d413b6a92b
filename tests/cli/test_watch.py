"""Handing a run over to a watcher: it runs, or the caller is told why not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from fakes import FakeJob, LeftJob, ready
from house import TRAIN, House

from ngcdl.cli.watch import hand_over
from ngcdl.errors import EngineLost, NgcdlError
from ngcdl.storing.store import Store


def stand_in_for_python(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Make hand_over start `script`."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def test_a_watcher_takes_no_library_from_the_caller_s_folder(trained: House) -> None:
    for name in ("psutil", "docker"):
        (trained.home / f"{name}.py").write_text("open('taken', 'w'); raise SystemExit(7)")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ngcdl", *TRAIN, "--detach"], capture_output=True, text=True, check=False,
        env=trained.environment(), cwd=trained.home,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not (trained.home / "taken").exists()


def test_a_watcher_that_dies_is_an_error_with_its_last_words_and_the_record_is_closed(
    monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    stand_in_for_python(monkeypatch, tmp_path, "echo Traceback >&2; echo MemoryError >&2; exit 3")
    job = FakeJob()
    order, _ = ready(store, job)
    with pytest.raises(NgcdlError, match="MemoryError") as caught:
        hand_over(order, store)
    run = store.load(order.run.id)
    assert (run.status, run.exit_code, run.owner) == ("failed", caught.value.exit_code, None)
    assert "MemoryError" in (run.reason or "")
    assert job.asked == ["kill", "remove"], "nothing is left running unwatched"


def test_a_container_that_docker_does_not_remove_after_its_watcher_died_is_noted(
    monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    stand_in_for_python(monkeypatch, tmp_path, "exit 3")
    order, _ = ready(store, LeftJob())
    with pytest.raises(NgcdlError, match="ended with 3"):
        hand_over(order, store)
    assert store.load(order.run.id).notes[-1].endswith("device or resource busy):  docker rm -f c0ffee")


def test_a_container_whose_engine_does_not_answer_after_its_watcher_died_is_the_next_command_s(
    monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def silent() -> None:
        raise EngineLost("was killing the run")

    stand_in_for_python(monkeypatch, tmp_path, "exit 3")
    job = FakeJob()
    monkeypatch.setattr(job, "kill", silent)
    order, _ = ready(store, job)
    with pytest.raises(NgcdlError, match="ended with 3"):
        hand_over(order, store)
    run = store.load(order.run.id)
    assert (run.status, run.owner) == ("failed", order.run.owner)
    assert "the next ngcdl run or runs removes it" in " ".join(capsys.readouterr().err.split())


def test_a_watcher_that_can_t_be_started_closes_the_record(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    order, _ = ready(store, FakeJob())
    with pytest.raises(NgcdlError, match="could not be started: No such file") as caught:
        hand_over(order, store)
    run = store.load(order.run.id)
    assert (run.status, run.exit_code, run.owner) == ("failed", caught.value.exit_code, None)


def test_a_watcher_needs_no_temporary_folder(monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    stand_in_for_python(monkeypatch, tmp_path, "exit 3")
    with pytest.raises(NgcdlError, match="ended with 3"):
        hand_over(ready(store, FakeJob())[0], store)


def test_a_pipe_that_a_child_of_a_dead_watcher_holds_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    stand_in_for_python(monkeypatch, tmp_path, f"sleep 100 & echo $! > {tmp_path}/child; exit 3")
    try:
        with pytest.raises(NgcdlError, match="ended with 3"):
            hand_over(ready(store, FakeJob())[0], store)
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


def test_a_start_that_fails_is_told_as_without_a_watcher(trained: House) -> None:
    for python in (trained.home / "share/ngcdl").glob("*/bin/python"):
        python.chmod(0o644)
    done, plain = trained.run(*TRAIN, "--detach"), trained.run(*TRAIN)
    assert (done.returncode, done.stdout) == (125, "")
    assert "can't be started" in done.stderr
    assert set(done.stderr.splitlines()) <= set(plain.stderr.splitlines())
    assert trained.record("last-1")["status"] == "failed"


def test_a_detached_run_whose_start_failed_has_the_time_at_which_it_did(trained: House) -> None:
    order, folder = ready(trained.store, FakeJob())
    letter = {
        "root": str(trained.store.root), "spec": order.order.spec.as_json(secrets=True), "target": order.order.target,
        "way": "none", "engine": "docker",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ngcdl", "_watch", order.run.id], input=json.dumps(letter), capture_output=True,
        text=True, check=False, env=trained.environment(),
    )  # fmt: skip
    assert json.loads(done.stdout)["kind"] == "EngineAbsent", done.stderr
    run = trained.store.load(folder.name)
    assert (run.status, run.exit_code, run.owner) == ("failed", done.returncode, None)
    assert run.seconds is not None


def test_ctrl_c_meanwhile_ends_the_watcher_and_closes_the_record(
    monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = f"trap 'echo ended > {tmp_path}/said; exit 143' TERM; kill -INT $PPID; while :; do sleep 0.05; done"
    stand_in_for_python(monkeypatch, tmp_path, script)
    order, _ = ready(store, FakeJob())
    with pytest.raises(KeyboardInterrupt):
        hand_over(order, store)
    assert (tmp_path / "said").read_text() == "ended\n"
    run = store.load(order.run.id)
    assert (run.status, run.exit_code) == ("interrupted", 130)
    assert order.run.id in capsys.readouterr().err


def test_ctrl_c_while_the_watcher_starts_ends_it_too(
    monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    stand_in_for_python(monkeypatch, tmp_path, "trap '' INT; while :; do sleep 0.05; done")
    start, started = subprocess.Popen.__init__, []

    def interrupted(self: subprocess.Popen[bytes], *words: object, **how: object) -> None:
        start(self, *words, **how)  # type: ignore[arg-type]
        started.append(self)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess.Popen, "__init__", interrupted)
    order, _ = ready(store, FakeJob())
    with pytest.raises(KeyboardInterrupt):
        hand_over(order, store)
    assert [one.returncode for one in started] == [-signal.SIGTERM]
    assert store.load(order.run.id).status == "interrupted"
