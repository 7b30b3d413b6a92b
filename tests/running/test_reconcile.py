"""The next command closes the records that a killed ngcdl left open, as the runs really ended."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from docker_socket import Daemon
from house import TRAIN, House, until
from unwatched import RUN, STEP, left
from unwatched import house as house
from unwatched import unwatched as unwatched

from ngcdl import waiting
from ngcdl.folder import EVENTS, LOG, RECORD, lines
from ngcdl.record import Run
from ngcdl.running.owner import this_process
from ngcdl.running.reconcile import UNWATCHED, reconcile, still_runs
from ngcdl.storing.store import Store


def killed(house: House, **env: str) -> tuple[str, int]:
    """Kill ngcdl by SIGKILL while its training goes on; return the run's id and the training's PID."""
    process = house.popen(*TRAIN, env=env)
    run_id = str(until(house.store.ids, "the record")[0])
    run = until(lambda: (run := house.store.load(run_id)).container and run, "the start")
    events = house.store.folder(run_id) / EVENTS
    until(lambda: "step" in [line["event"] for line in lines(events)], "its step: it says no more before it ends")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=240)
    return run_id, int(run.container.split(":")[1])


def gone(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


def test_a_training_that_outlived_ngcdl_still_runs_and_says_that_it_is_unwatched(house: House) -> None:
    go = house.home / "go"
    run_id, pid = killed(house, STAND_IN="go", STAND_IN_GO=str(go))
    record = house.record()
    assert (record["id"], record["status"], record["notes"]) == (run_id, "running", [UNWATCHED])
    assert house.record() == record
    go.touch()
    until(lambda: gone(pid), "the training's end")
    record = house.record()
    assert (record["status"], record["exit_code"]) == ("finished", None), "nobody saw its code"
    assert record["summary"]["steps"] == 2
    assert record["finished"] is not None


def test_a_training_that_died_with_ngcdl_is_lost(house: House) -> None:
    run_id, pid = killed(house, STAND_IN="deaf")
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone(pid), "its end")
    assert house.run("runs").returncode == 0
    run = house.store.load(run_id)
    assert (run.status, run.exit_code, run.owner) == ("lost", None, None)
    assert house.store.is_known(run)
    assert (run.summary.loss_first, run.notes) == (4.68, (UNWATCHED,))


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is missing: no call can be made to fail")
@pytest.mark.parametrize("error", ["ENOLCK", "ENOSYS", "EOPNOTSUPP"])
def test_a_home_without_locks_keeps_no_record_open(house: House, error: str) -> None:
    house.store.create(RUN)
    fault = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"inject=flock:error={error}")
    assert RUN.id in house.run("runs", before=fault).stdout
    assert house.store.load(RUN.id).status == "lost"


def test_in_a_home_that_is_mounted_read_only_a_dead_run_is_dead_and_its_log_has_an_end(house: House) -> None:
    house.store.create(RUN)
    (house.store.folder(RUN.id) / LOG).write_text("its last words\n")
    script = f'mount --bind {house.home} {house.home} && mount -o remount,bind,ro {house.home} && exec "$0" "$@"'
    alone = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script)
    assert "lost" in house.run("runs", before=alone).stdout
    assert house.run("logs", "-f", RUN.id, before=alone).stdout == "its last words\n"
    assert house.store.load(RUN.id) == RUN


def test_a_run_that_nobody_watched_is_diagnosed_when_it_is_closed(store: Store) -> None:
    folder = store.create(RUN)
    (folder / LOG).write_bytes(b"RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB\n")
    found = reconcile(store, RUN)
    assert found.status == "lost"
    assert found.diagnosis
    assert found.diagnosis.name == "gpu-out-of-memory"
    assert store.load(RUN.id) == found


def test_an_unwatched_training_can_be_stopped(house: House) -> None:
    run_id, pid = killed(house, STAND_IN="wait")
    done = house.run("stop", run_id)
    assert done.returncode == 0, done.stderr
    assert gone(pid)
    assert house.store.load(run_id).status == "interrupted"


def test_two_commands_at_once_agree_and_close_it_once(house: House) -> None:
    run_id, pid = killed(house, STAND_IN="deaf")
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone(pid), "its end")
    both = [house.popen("show", run_id, "--json") for _ in range(3)]
    records = [json.loads(process.communicate(timeout=240)[0]) for process in both]
    assert [process.returncode for process in both] == [0, 0, 0]
    assert records[0] == records[1] == records[2] == json.loads(json.dumps(house.store.load(run_id).as_json()))
    assert records[0]["status"] == "lost"


def test_the_next_run_closes_what_was_left_open(house: House) -> None:
    run_id, pid = killed(house, STAND_IN="deaf")
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone(pid), "its end")
    assert house.run(*TRAIN).returncode == 0
    assert house.store.load(run_id).status == "lost"


def test_the_next_run_finds_out_what_became_of_one_that_lost_its_engine(
    house: House, unwatched: tuple[Daemon, Run, Path]
) -> None:
    """With Docker's live-restore a container goes on while dockerd is down."""
    daemon, run, _ = unwatched
    daemon.state = {"Running": True}
    house.store.create(replace(run, status="lost", finished=2.0, reason="The engine went away"))
    assert house.run(*TRAIN, env={"DOCKER_HOST": daemon.host}).returncode == 0
    found = house.store.load(run.id)
    assert (found.status, found.finished, found.notes) == ("running", None, (UNWATCHED,))


@pytest.mark.parametrize(
    ("last", "status", "reason"),
    [
        ({"event": "finish", "t": 9.0, "step": 4}, "finished", "reports that it finished"),
        ({"event": "error", "t": 9.0, "kind": "nan", "message": "loss", "step": 4}, "failed", "nan: loss"),
        ({"event": "checkpoint", "t": 9.0, "step": 4}, "lost", "nothing is left"),
        ({"event": "finish", "t": float("nan")}, "finished", "reports that it finished"),
    ],
)
def test_what_can_t_be_asked_any_more_is_told_by_the_trainer_s_events(
    store: Store, last: dict[str, Any], status: str, reason: str
) -> None:
    run = left(store, RUN, STEP, last)
    assert (run.status, run.exit_code, run.owner) == (status, None, None)
    assert run.finished == (9.0 if last["t"] == 9.0 else None)
    assert reason in (run.reason or "")


def test_a_run_that_has_ended_or_is_watched_is_left_alone(store: Store) -> None:
    for run in (replace(RUN, id="a", status="failed"), replace(RUN, id="b", owner=this_process())):
        assert left(store, run) == run


def test_a_process_that_only_has_the_number_of_the_training_is_not_it(store: Store) -> None:
    run = left(store, replace(RUN, container=f"pid:{os.getpid()}"))
    assert run.status == "lost"


def test_a_run_on_docker_stays_open_while_docker_is_away(house: House) -> None:
    run = replace(RUN, engine="docker", container="c0ffee")
    house.store.create(run)
    assert house.record()["status"] == "running"
    assert house.store.load(run.id) == run


def test_a_record_that_no_ngcdl_watches_is_closed_when_it_falls_silent(store: Store) -> None:
    run = replace(RUN, owner=None, engine="compose", started=time.time())
    assert left(store, run, STEP) == run
    store.save(replace(run, started=1.0), known=False)  # as the trainer does
    for path in store.folder(run.id).iterdir():
        os.utime(path, (1, 1))
    assert reconcile(store, run).status == "lost"
    assert not store.is_known(store.load(run.id)), "what ngcdl found in it, it did not write"


@pytest.mark.parametrize(("ahead_seconds", "file_ahead_seconds", "status"), [
    (3600, 3600, "lost"), (3600, 0, "running"), (3600, 60, "running"), (0, 3600, "running"), (-3600, 3600, "lost"),
])  # fmt: skip
def test_a_record_with_dates_of_before_the_clock_was_set_back_is_closed_unless_it_is_still_written(
    store: Store, ahead_seconds: float, file_ahead_seconds: float, status: str
) -> None:
    now = time.time()
    run = replace(RUN, owner=None, engine="compose", started=now + ahead_seconds)
    for path in store.create(run).iterdir():
        os.utime(path, (now + file_ahead_seconds,) * 2)
    found = reconcile(store, run)
    assert (found.status, still_runs(store, found)) == (status, status == "running")


def test_a_folder_that_can_t_be_written_leaves_the_run_as_it_was(store: Store) -> None:
    store.create(RUN)
    (store.root / ".locks").touch()
    assert reconcile(store, RUN) == RUN


def test_a_command_that_is_closing_the_record_is_waited_for_in_vain_only_for_seconds(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create(RUN)
    monkeypatch.setattr("ngcdl.running.reconcile.LOCK_SECONDS", 0.05)
    with waiting.locked_within(store.lock_of(RUN.id), 0):
        assert reconcile(store, RUN) == RUN
    assert reconcile(store, RUN).status == "lost"


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_nothing_that_a_run_puts_into_its_folder_keeps_it_open(store: Store, kind: str) -> None:
    folder = store.create(RUN)
    at = folder / ".reconcile.lock"
    {"link": lambda: at.symlink_to("/nowhere"), "folder": at.mkdir, "pipe": lambda: os.mkfifo(at)}[kind]()
    assert reconcile(store, RUN).status == "lost"
    store.set_aside(RUN.id, folder)
    assert list((store.root / ".locks").iterdir()) == [], "nor does its lock stay"


def test_a_record_of_a_later_format_is_named_and_hides_no_other(house: House) -> None:
    assert house.run(*TRAIN).returncode == 0
    good = house.store.find("last")
    later = house.store.folder("20991231-000000-later-beef")
    later.mkdir()
    (later / RECORD).write_text('{"format": 2, "id": "20991231-000000-later-beef"}')
    done = house.run("runs")
    assert done.returncode == 0
    assert good in done.stdout
    assert "update ngcdl" in done.stderr
    assert house.run("show").returncode == 125, "it is the last"
    assert house.run("show", "last-1").returncode == 0
    assert house.run(*TRAIN).returncode == 0, "and stops no run"


def test_a_torn_last_line_of_events_costs_only_itself(house: House) -> None:
    assert house.run(*TRAIN).returncode == 0
    with (house.store.folder(house.store.find("last")) / EVENTS).open("a") as file:
        file.write('{"event": "step", "st')
    assert house.record()["summary"]["steps"] == 2


def test_the_reconciler_imports_no_docker_for_a_local_run(house: House) -> None:
    assert house.run(*TRAIN).returncode == 0
    code = (
        "import sys, json; from ngcdl.cli import main; main(['runs']); print('docker' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=house.environment(), check=True
    )
    assert done.stderr == "False\n"
