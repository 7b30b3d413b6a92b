"""The exit code and output of a container that nobody watched are saved before its engine may forget them."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from docker_socket import Daemon
from stand_ins import no_space
from unwatched import DEAD, ELSEWHERE, ENDED, SAID, frames
from unwatched import unwatched as unwatched

from ngcdl.engines.values import AWAY
from ngcdl.errors import StateNotWritable
from ngcdl.record import Machine, Owner, Run
from ngcdl.running.owner import this_process
from ngcdl.running.reconcile import DETACHED, LATE_SECONDS, RESTARTED, UNWATCHED, Obstacles, reconcile
from ngcdl.running.recorded_job import unread_output
from ngcdl.storing.store import Store


def test_what_a_container_wrote_while_nobody_watched_is_in_the_log_before_docker_may_forget_it(
    store: Store, unwatched: tuple[Daemon, Run, Path]
) -> None:
    daemon, run, log = unwatched
    found = reconcile(store, run)
    assert log.read_bytes() == SAID
    assert (found.status, found.exit_code, found.notes) == ("failed", 1, (UNWATCHED,))
    assert found.diagnosis
    assert found.diagnosis.name == "gpu-out-of-memory"
    assert daemon.state is None, "removed"


class Full(Store):
    def save(self, run: Run, known: bool = True) -> None:
        raise StateNotWritable(self.folder(run.id), os.strerror(errno.ENOSPC))


def test_an_end_that_can_t_be_recorded_is_shown_and_told_and_the_container_stays_for_a_later_command(
    store: Store, unwatched: tuple[Daemon, Run, Path]
) -> None:
    daemon, run, _ = unwatched
    obstacles = Obstacles()
    found = reconcile(Full(store.root), run, obstacles)
    assert (found.status, found.exit_code, found.owner) == ("failed", 1, run.owner)
    assert found.is_open, "so its folder is not removed either"
    assert "No space left on device" in str(obstacles.records)
    assert store.load(run.id) == run
    assert daemon.state is not None
    assert reconcile(store, found).owner is None
    assert daemon.state is None


def test_a_disk_on_which_not_even_the_lock_can_be_made_is_told(
    store: Store, unwatched: tuple[Daemon, Run, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ngcdl.waiting.locked_within", no_space)
    obstacles = Obstacles()
    assert reconcile(store, unwatched[1], obstacles) == unwatched[1]
    assert "No space left on device" in str(obstacles.records)


@pytest.mark.parametrize("state", [ENDED, {"Running": True}])
def test_a_run_that_was_left_by_the_detach_keys_is_noted_once_to_be_unmeasured(
    store: Store, unwatched: tuple[Daemon, Run, Path], state: dict[str, Any]
) -> None:
    daemon, run, _ = unwatched
    daemon.state = state
    detached = run.noting(DETACHED)
    store.save(detached)
    assert reconcile(store, detached).notes == (DETACHED,)


def test_a_container_that_docker_does_not_remove_is_noted(store: Store, unwatched: tuple[Daemon, Run, Path]) -> None:
    daemon, run, _ = unwatched
    daemon.can_remove = False
    found = reconcile(store, run)
    assert (found.status, store.load(run.id)) == ("failed", found)
    assert found.notes[-1].endswith("device or resource busy):  docker rm -f c0ffee")


NEVER_STARTED = {**ENDED, "Status": "created", "ExitCode": 0}


@pytest.mark.parametrize("state", [NEVER_STARTED, {"Running": True}])
def test_what_the_engine_made_of_a_start_that_was_given_up_is_removed_and_the_run_stays_interrupted(
    store: Store, unwatched: tuple[Daemon, Run, Path], state: dict[str, Any]
) -> None:
    daemon, run, _ = unwatched
    daemon.state = state
    given_up = replace(run, status="interrupted", exit_code=130, reason="stopped by SIGINT", finished=2.0)
    store.save(given_up)
    assert reconcile(store, given_up) == replace(given_up, owner=None)
    assert daemon.state is None


def test_a_container_that_was_seen_and_has_gone_is_not_looked_for_again(
    store: Store, unwatched: tuple[Daemon, Run, Path]
) -> None:
    daemon, run, _ = unwatched
    daemon.state = None
    given_up = replace(run, status="interrupted", exit_code=130, finished=time.time())
    store.save(given_up)
    assert reconcile(store, given_up).owner is None


@pytest.mark.parametrize(("seconds", "is_open"), [(60, True), (LATE_SECONDS + 60, False)])
def test_a_container_that_may_come_yet_is_looked_for_as_long_as_an_engine_may_take(
    store: Store, unwatched: tuple[Daemon, Run, Path], seconds: float, is_open: bool
) -> None:
    daemon, run, _ = unwatched
    daemon.state = None
    given_up = replace(run, container=None, status="interrupted", exit_code=130, finished=time.time() - seconds)
    store.save(given_up)
    assert reconcile(store, given_up) == (given_up if is_open else replace(given_up, owner=None))
    daemon.state = NEVER_STARTED
    reconcile(store, store.load(run.id))
    assert (daemon.state is None) == is_open


THIS_BOOT = replace(DEAD, boot=this_process().boot)


@pytest.mark.parametrize(("code", "owner", "machine", "before", "status", "reason"), [
    (255, DEAD, Machine(), "running", "interrupted", RESTARTED),
    (143, DEAD, Machine(), "running", "interrupted", RESTARTED),
    (1, DEAD, Machine(), "running", "failed", None),
    (255, THIS_BOOT, Machine(), "running", "failed", None),
    (255, THIS_BOOT, Machine(), "lost", "failed", AWAY),
    (1, THIS_BOOT, Machine(), "lost", "failed", None),
    (255, Owner(DEAD.pid), Machine(), "running", "failed", None),
    (255, DEAD, ELSEWHERE, "running", "failed", None),
])  # fmt: skip
def test_a_container_that_went_down_with_its_host_was_interrupted(
    store: Store, unwatched: tuple[Daemon, Run, Path], code: int, owner: Owner, machine: Machine,
    before: str, status: str, reason: str | None,
) -> None:  # fmt: skip
    """After a power cut Docker reports 255, which a command may return, too: only a new boot id tells them apart."""
    daemon, run, log = unwatched
    daemon.state = {**ENDED, "ExitCode": code}
    store.save(replace(run, owner=owner, machine=machine, engine_id="this-one", status=before))
    os.utime(log, (1, 1))
    found = reconcile(store, store.load(run.id))
    assert (found.status, found.exit_code, found.reason) == (status, code, reason)


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
        assert b"".join(unread_output(run, file)) == rest


@pytest.mark.parametrize("kept", [b"epoch 2\n", b"ep"])
def test_a_log_whose_beginning_docker_no_longer_has_loses_nothing(
    store: Store, unwatched: tuple[Daemon, Run, Path], kept: bytes
) -> None:
    daemon, run, log = unwatched
    daemon.log = frames(kept)
    assert reconcile(store, run).status == "failed"
    assert log.read_bytes() == b"epoch 1\nep" + kept
    assert daemon.state is None


def test_a_container_whose_words_can_t_be_had_is_left_and_named(
    store: Store, unwatched: tuple[Daemon, Run, Path]
) -> None:
    daemon, run, log = unwatched
    daemon.log = None
    found = reconcile(store, run)
    assert (found.status, found.exit_code) == ("failed", 1)
    assert found.notes[-1].startswith("log.txt lacks its end (")
    assert found.notes[-1].endswith(":  docker logs c0ffee")
    assert (daemon.state, log.read_bytes()) == (ENDED, b"epoch 1\nep")


def test_words_that_end_in_the_middle_are_no_whole_log(store: Store, unwatched: tuple[Daemon, Run, Path]) -> None:
    daemon, run, _ = unwatched
    daemon.cuts_log = True
    assert "docker logs c0ffee" in reconcile(store, run).notes[-1]
    assert daemon.state == ENDED


def test_a_log_that_the_run_made_a_link_of_is_not_followed(
    store: Store, unwatched: tuple[Daemon, Run, Path], tmp_path: Path
) -> None:
    daemon, run, log = unwatched
    log.unlink()
    log.symlink_to(tmp_path / "elsewhere")
    assert "docker logs c0ffee" in reconcile(store, run).notes[-1]
    assert daemon.state == ENDED
    assert not (tmp_path / "elsewhere").exists()
