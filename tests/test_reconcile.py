"""What a killed ngcdl left open is closed by the next command, truthfully."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from docker_socket import Daemon, serving
from house import TRAIN, House, until

from ngcdl.errors import RunElsewhere
from ngcdl.folder import EVENTS, LOG, RECORD, SAMPLES, lines
from ngcdl.owner import this_process
from ngcdl.reconcile import LATE_SECONDS, RESTARTED, UNWATCHED, reconcile, standing, still_runs, unheard
from ngcdl.record import Machine, Owner, Run
from ngcdl.store import Store

DEAD = Owner(2**22 + 1, 5, "another boot")
RUN = Run("20180216-182126-cifar10-beef", "running", 1.0, engine="local", container="pid:4194305", owner=DEAD)
ELSEWHERE = Machine(hostname="node-7")
STEP = {"event": "step", "t": 5.0, "step": 3, "loss": 4.0}


@pytest.fixture
def house(tmp_path: Path) -> House:
    house = House(tmp_path)
    house.bring_trainer()
    return house


@pytest.fixture
def shelf(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


def left(shelf: Store, run: Run, *events: dict[str, Any]) -> Run:
    """Leave a run open whose trainer wrote `events`, and reconcile it."""
    folder = shelf.create(run)
    (folder / EVENTS).write_text("".join(json.dumps(event) + "\n" for event in events))
    found = reconcile(shelf, run)
    assert shelf.load(run.id) == found
    assert reconcile(shelf, found) == found, "once is enough"
    return found


def killed(house: House, **env: str) -> tuple[str, int]:
    """Kill -9 an ngcdl whose training goes on; its run's id and the training's process."""
    process = house.popen(*TRAIN, env=env)
    run_id = str(until(house.shelf.ids, "the record")[0])
    run = until(lambda: (run := house.shelf.load(run_id)).container and run, "the start")
    events = house.shelf.folder(run_id) / EVENTS
    until(lambda: "step" in [line["event"] for line in lines(events)], "its step: it says no more before it ends")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)
    return run_id, int(run.container.removeprefix("pid:"))


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
    run = house.shelf.load(run_id)
    assert (run.status, run.exit_code, run.owner) == ("lost", None, None)
    assert (run.summary.loss_first, run.notes) == (4.68, (UNWATCHED,))


def test_a_run_that_nobody_watched_is_diagnosed_when_it_is_closed(shelf: Store) -> None:
    folder = shelf.create(RUN)
    (folder / LOG).write_bytes(b"RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB\n")
    found = reconcile(shelf, RUN)
    assert found.status == "lost"
    assert found.diagnosis
    assert found.diagnosis.name == "gpu-out-of-memory"
    assert shelf.load(RUN.id) == found


def test_an_unwatched_training_can_be_stopped(house: House) -> None:
    run_id, pid = killed(house, STAND_IN="wait")
    done = house.run("stop", run_id)
    assert done.returncode == 0, done.stderr
    assert gone(pid)
    assert house.shelf.load(run_id).status == "interrupted"


def test_two_commands_at_once_agree_and_close_it_once(house: House) -> None:
    run_id, pid = killed(house, STAND_IN="deaf")
    os.kill(pid, signal.SIGKILL)
    both = [house.popen("show", run_id, "--json") for _ in range(3)]
    records = [json.loads(process.communicate(timeout=60)[0]) for process in both]
    assert [process.returncode for process in both] == [0, 0, 0]
    assert records[0] == records[1] == records[2] == json.loads(json.dumps(house.shelf.load(run_id).as_json()))
    assert records[0]["status"] == "lost"


def test_the_next_run_closes_what_was_left_open(house: House) -> None:
    run_id, pid = killed(house, STAND_IN="deaf")
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone(pid), "its end")
    assert house.run(*TRAIN).returncode == 0
    assert house.shelf.load(run_id).status == "lost"


def test_the_next_run_finds_out_what_became_of_one_that_lost_its_engine(
    house: House, unwatched: tuple[Daemon, Run, Path]
) -> None:
    """With live-restore its container goes on while dockerd is away."""
    daemon, run, _ = unwatched
    daemon.state = {"Running": True}
    house.shelf.create(replace(run, status="lost", finished=2.0, reason="The engine went away"))
    assert house.run(*TRAIN, env={"DOCKER_HOST": daemon.host}).returncode == 0
    found = house.shelf.load(run.id)
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
    shelf: Store, last: dict[str, Any], status: str, reason: str
) -> None:
    run = left(shelf, RUN, STEP, last)
    assert (run.status, run.exit_code, run.owner) == (status, None, None)
    assert run.finished == (9.0 if last["t"] == 9.0 else None)
    assert reason in (run.reason or "")


def test_a_run_that_has_ended_or_is_watched_is_left_alone(shelf: Store) -> None:
    for run in (replace(RUN, id="a", status="failed"), replace(RUN, id="b", owner=this_process())):
        assert left(shelf, run) == run


def test_a_process_that_only_has_the_number_of_the_training_is_not_it(shelf: Store) -> None:
    run = left(shelf, replace(RUN, container=f"pid:{os.getpid()}"))
    assert run.status == "lost"


def test_a_run_on_docker_stays_open_while_docker_is_away(house: House) -> None:
    run = replace(RUN, engine="docker", container="c0ffee")
    house.shelf.create(run)
    assert house.record()["status"] == "running"
    assert house.shelf.load(run.id) == run


@pytest.mark.parametrize("command", [("runs",), ("runs", "--json"), TRAIN])
def test_a_cluster_that_does_not_answer_is_asked_once_by_a_command_and_said(
    house: House, command: tuple[str, ...]
) -> None:
    for run_id in ("20180216-182126-a-beef", "20180216-182127-b-beef", "20180216-182128-c-beef"):
        folder = house.shelf.create(replace(RUN, id=run_id, engine="kubernetes", owner=None, engine_id="lab"))
        (folder / "job.yaml").write_text(f"kind: Job\nmetadata:\n  name: {run_id}\n")
    kubectl, asked = house.home / "bin/kubectl", house.home / "asked"
    kubectl.parent.mkdir()
    kubectl.write_text(
        f'#!/bin/sh\nif [ "$2" = config ]; then echo lab; exit; fi\necho "$*" >>{asked}\n'
        "echo 'Unable to connect to the server: dial tcp 10.0.0.1:6443: i/o timeout' >&2\nexit 1\n"
    )
    kubectl.chmod(0o755)
    done = house.run(*command, env={"PATH": f"{kubectl.parent}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stderr
    assert len(asked.read_text().splitlines()) == 1
    assert done.stderr.count("No Kubernetes cluster answers") == 1
    assert all(house.shelf.load(run_id).status == "running" for run_id in house.shelf.ids() if run_id < "2019")


def test_a_cluster_is_asked_ever_less_often_and_at_once_where_an_end_was_written(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = house.shelf.create(Run("x", "running", 1.0, engine="kubernetes", engine_id="west"))
    (folder / "job.yaml").write_text("kind: Job\nmetadata:\n  name: x\n")
    kubectl, asked, now = house.home / "bin/kubectl", house.home / "asked", [0.0]
    kubectl.parent.mkdir()
    kubectl.write_text(
        f'#!/bin/sh\necho "$*" >>{asked}\n[ "$2" != config ] || exec echo west\n'
        """echo '{"items": [{"kind": "Job", "metadata": {"name": "x"}}]}'\n"""
    )
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", str(kubectl.parent), prepend=":")
    monkeypatch.setenv("XDG_STATE_HOME", str(house.home / "state"))

    def looks() -> int:
        return asked.read_text().count("config current-context")

    def sleep(seconds: float) -> None:
        now[0] += seconds

    told = standing(house.shelf, "x", lambda: now[0], sleep)
    while next(told).status == "running" and now[0] < 60:
        pass
    before = looks()
    assert 8 <= before <= 12, "pauses of 0.5 s, each half as long again, up to 15 s"
    (folder / "exit.json").write_text("{}")
    assert next(told).status == "running", "its Job says when it is over"
    assert looks() == before + 1


@pytest.mark.parametrize(("engine_id", "status"), [("its-own", "running"), ("this-one", "lost"), (None, "lost")])
def test_a_run_of_another_engine_stays_as_it_is(
    shelf: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine_id: str | None, status: str
) -> None:
    """DOCKER_HOST was changed: that this engine has no such container says nothing."""
    with serving(Daemon(tmp_path / "docker.sock", info={"ID": "this-one"})) as daemon:
        monkeypatch.setenv("DOCKER_HOST", daemon.host)
        for run_id, before in (("a", "running"), ("b", "lost")):
            run = replace(RUN, id=run_id, engine="docker", container="c0ffee", engine_id=engine_id, status=before)
            found = left(shelf, run)
            assert found.status == ("lost" if before == "lost" else status)
            assert (found == run) == (engine_id == "its-own")


ENDED = {"Running": False, "ExitCode": 1, "OOMKilled": False, "FinishedAt": "2018-02-16T08:25:08.344427123Z"}
SAID = b"epoch 1\nepoch 2\nRuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB\n"


def _frames(data: bytes, size: int = 11) -> bytes:
    """Give `data` in pieces on stdout and stderr by turns, as the Engine API has them."""
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join(
        bytes([1 + i % 2, 0, 0, 0]) + len(piece).to_bytes(4, "big") + piece for i, piece in enumerate(pieces)
    )


@pytest.fixture
def unwatched(shelf: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Daemon, Run, Path]]:
    """An engine whose container has ended, the run's open record, and its log up to when ngcdl was killed."""
    daemon = Daemon(tmp_path / "docker.sock", info={"ID": "this-one"}, state=ENDED, log=_frames(SAID))
    run = replace(RUN, engine="docker", container="c0ffee")
    log = shelf.create(run) / LOG
    log.write_bytes(b"epoch 1\nep")
    with serving(daemon):
        monkeypatch.setenv("DOCKER_HOST", daemon.host)
        yield daemon, run, log


def test_what_a_container_wrote_while_nobody_watched_is_in_the_log_before_docker_may_forget_it(
    shelf: Store, unwatched: tuple[Daemon, Run, Path]
) -> None:
    daemon, run, log = unwatched
    found = reconcile(shelf, run)
    assert log.read_bytes() == SAID
    assert (found.status, found.exit_code, found.notes) == ("failed", 1, (UNWATCHED,))
    assert found.diagnosis
    assert found.diagnosis.name == "gpu-out-of-memory"
    assert daemon.state is None, "removed"


NEVER_STARTED = {**ENDED, "Status": "created", "ExitCode": 0}


@pytest.mark.parametrize("state", [NEVER_STARTED, {"Running": True}])
def test_what_the_engine_made_of_a_start_that_was_given_up_is_removed_and_the_run_stays_interrupted(
    shelf: Store, unwatched: tuple[Daemon, Run, Path], state: dict[str, Any]
) -> None:
    daemon, run, _ = unwatched
    daemon.state = state
    given_up = replace(run, status="interrupted", exit_code=130, reason="stopped by SIGINT", finished=2.0)
    shelf.save(given_up)
    assert reconcile(shelf, given_up) == replace(given_up, owner=None)
    assert daemon.state is None


def test_a_container_that_was_seen_and_has_gone_is_not_looked_for_again(
    shelf: Store, unwatched: tuple[Daemon, Run, Path]
) -> None:
    daemon, run, _ = unwatched
    daemon.state = None
    given_up = replace(run, status="interrupted", exit_code=130, finished=time.time())
    shelf.save(given_up)
    assert reconcile(shelf, given_up).owner is None


@pytest.mark.parametrize(("seconds", "is_open"), [(60, True), (LATE_SECONDS + 60, False)])
def test_a_container_that_may_come_yet_is_looked_for_as_long_as_an_engine_may_take(
    shelf: Store, unwatched: tuple[Daemon, Run, Path], seconds: float, is_open: bool
) -> None:
    daemon, run, _ = unwatched
    daemon.state = None
    given_up = replace(run, container=None, status="interrupted", exit_code=130, finished=time.time() - seconds)
    shelf.save(given_up)
    assert reconcile(shelf, given_up) == (given_up if is_open else replace(given_up, owner=None))
    daemon.state = NEVER_STARTED
    reconcile(shelf, shelf.load(run.id))
    assert (daemon.state is None) == is_open


@pytest.mark.parametrize(("code", "owner", "machine", "status", "reason"), [
    (255, DEAD, Machine(), "interrupted", RESTARTED),
    (143, DEAD, Machine(), "interrupted", RESTARTED),
    (1, DEAD, Machine(), "failed", None),
    (255, replace(DEAD, boot=this_process().boot), Machine(), "failed", None),
    (255, Owner(DEAD.pid), Machine(), "failed", None),
    (255, DEAD, ELSEWHERE, "failed", None),
])  # fmt: skip
def test_a_container_that_went_down_with_its_host_was_interrupted(
    shelf: Store, unwatched: tuple[Daemon, Run, Path], code: int, owner: Owner, machine: Machine,
    status: str, reason: str | None,
) -> None:  # fmt: skip
    """After a power cut Docker gives 255, which a command may give as well: only another boot tells."""
    daemon, run, log = unwatched
    daemon.state = {**ENDED, "ExitCode": code}
    shelf.save(replace(run, owner=owner, machine=machine, engine_id="this-one"))
    os.utime(log, (1, 1))
    found = reconcile(shelf, shelf.load(run.id))
    assert (found.status, found.exit_code, found.reason) == (status, code, reason)


@pytest.mark.parametrize(("more", "runs"), [
    ({}, True), ({"status": "failed"}, False), ({"machine": ELSEWHERE}, False), ({"owner": DEAD}, False),
    ({"machine": ELSEWHERE, "engine": "slurm"}, True),
    ({"machine": ELSEWHERE, "owner": this_process()}, True), ({"owner": None, "machine": ELSEWHERE}, False),
])  # fmt: skip
def test_a_run_of_a_machine_that_can_t_be_asked_counts_as_dead_when_it_was_silent_for_long(
    shelf: Store, more: dict[str, Any], runs: bool
) -> None:
    """A home that is shared, or a new machine in the place of one that was taken away."""
    now = time.time()
    run = replace(RUN, **{"owner": replace(DEAD, boot=this_process().boot), "started": now - 400, **more})
    events = shelf.create(run) / EVENTS
    events.touch()
    assert still_runs(shelf, run) == (run.status == "running")
    for path in events.parent.iterdir():
        os.utime(path, (now - 400, now - 400))
    assert still_runs(shelf, run) == runs


@pytest.mark.parametrize(("begun", "read", "rest"), [
    (b"epoch 1\nep", None, SAID[10:]),
    (b"", None, SAID),
    (SAID, None, b""),
    (SAID, 10, SAID[10:]),
    (b"epoch 0\nepoch 1\nep", None, SAID),
], ids=["where it broke off", "all of it", "nothing", "what another brought", "another beginning"])  # fmt: skip
def test_what_a_container_writes_unheard_is_given_beyond_what_was_read_of_the_log(
    unwatched: tuple[Daemon, Run, Path], begun: bytes, read: int | None, rest: bytes
) -> None:
    _, run, log = unwatched
    log.write_bytes(begun)
    with log.open("rb") as file:
        file.read(read)
        assert b"".join(unheard(run, file)) == rest


def test_what_another_engine_s_container_writes_is_not_looked_for_here(unwatched: tuple[Daemon, Run, Path]) -> None:
    _, run, log = unwatched
    with log.open("rb") as file, pytest.raises(RunElsewhere) as caught:
        list(unheard(replace(run, engine_id="its-own"), file))
    assert f"    ngcdl logs -f {run.id}" in caught.value.hint
    assert "stopped" not in caught.value.hint


@pytest.mark.parametrize("kept", [b"epoch 2\n", b"ep"])
def test_a_log_whose_beginning_docker_no_longer_has_loses_nothing(
    shelf: Store, unwatched: tuple[Daemon, Run, Path], kept: bytes
) -> None:
    daemon, run, log = unwatched
    daemon.log = _frames(kept)
    assert reconcile(shelf, run).status == "failed"
    assert log.read_bytes() == b"epoch 1\nep" + kept
    assert daemon.state is None


def test_a_container_whose_words_can_t_be_had_is_left_and_named(
    shelf: Store, unwatched: tuple[Daemon, Run, Path]
) -> None:
    daemon, run, log = unwatched
    daemon.log = None
    found = reconcile(shelf, run)
    assert (found.status, found.exit_code) == ("failed", 1)
    assert "docker logs c0ffee" in found.notes[-1]
    assert (daemon.state, log.read_bytes()) == (ENDED, b"epoch 1\nep")


def test_words_that_end_in_the_middle_are_no_whole_log(shelf: Store, unwatched: tuple[Daemon, Run, Path]) -> None:
    daemon, run, _ = unwatched
    daemon.cuts_log = True
    assert "docker logs c0ffee" in reconcile(shelf, run).notes[-1]
    assert daemon.state == ENDED


def test_a_log_that_the_run_made_a_link_of_is_not_followed(
    shelf: Store, unwatched: tuple[Daemon, Run, Path], tmp_path: Path
) -> None:
    daemon, run, log = unwatched
    log.unlink()
    log.symlink_to(tmp_path / "elsewhere")
    assert "docker logs c0ffee" in reconcile(shelf, run).notes[-1]
    assert daemon.state == ENDED
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("last", "status", "owner"),
    [(STEP, "running", DEAD), ({"event": "finish", "t": 9.0, "step": 4}, "finished", None)],
)
def test_a_run_of_another_machine_that_is_quiet_is_closed_where_its_trainer_told_its_end(
    shelf: Store, last: dict[str, Any], status: str, owner: Owner | None
) -> None:
    """A home that several machines share: its own may still find out what became of it."""
    run = left(shelf, replace(RUN, started=time.time(), machine=ELSEWHERE), last)
    assert (run.status, run.owner) == ("running", DEAD)
    found = reconcile(shelf, quiet(shelf, run))
    assert (found.status, found.owner) == (status, owner)


def quiet(shelf: Store, run: Run, engine_id: str | None = None) -> Run:
    """Leave `run` as one of another machine, or of this one when it was called so, of which nothing is written."""
    run = replace(run, started=1.0, machine=ELSEWHERE, engine_id=engine_id)
    shelf.save(run)
    for path in shelf.folder(run.id).iterdir():
        os.utime(path, (1, 1))
    return run


def test_a_container_is_asked_for_though_its_machine_is_called_otherwise_by_now(
    shelf: Store, unwatched: tuple[Daemon, Run, Path]
) -> None:
    daemon, run, log = unwatched
    daemon.state = {"Running": True}
    run = quiet(shelf, run, "this-one")
    assert reconcile(shelf, run) == run.noting(UNWATCHED), "a command may have nothing to say"
    daemon.state = ENDED
    found = reconcile(shelf, run)
    assert (found.status, found.exit_code, found.owner) == ("failed", 1, None)
    assert (log.read_bytes(), daemon.state) == (SAID, None)


@pytest.mark.parametrize(("engine_id", "is_written"), [("its-own", False), (None, False), ("this-one", True)])
def test_a_run_of_another_machine_s_engine_or_watcher_is_left_to_it(
    shelf: Store, unwatched: tuple[Daemon, Run, Path], engine_id: str | None, is_written: bool
) -> None:
    daemon, run, log = unwatched
    run = quiet(shelf, run, engine_id)
    if is_written:
        log.with_name(SAMPLES).touch()
    assert reconcile(shelf, run) == run
    assert daemon.state == ENDED


def test_a_record_that_no_ngcdl_watches_is_closed_when_it_falls_silent(shelf: Store) -> None:
    run = replace(RUN, owner=None, engine="compose", started=time.time())
    assert left(shelf, run, STEP) == run
    shelf.save(replace(run, started=1.0))
    for path in shelf.folder(run.id).iterdir():
        os.utime(path, (1, 1))
    assert reconcile(shelf, run).status == "lost"


def test_a_folder_that_can_t_be_written_leaves_the_run_as_it_was(shelf: Store) -> None:
    folder = shelf.create(RUN)
    (folder / ".reconcile.lock").mkdir()
    assert reconcile(shelf, RUN) == RUN


def test_a_record_of_a_later_format_is_named_and_hides_no_other(house: House) -> None:
    assert house.run(*TRAIN).returncode == 0
    good = house.shelf.find("last")
    later = house.shelf.folder("20991231-000000-later-beef")
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
    with (house.shelf.folder(house.shelf.find("last")) / EVENTS).open("a") as file:
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
