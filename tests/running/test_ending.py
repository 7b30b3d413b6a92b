"""One rule decides how a run ended, whether the run's own ngcdl saw the end or a later command finds it."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import FakeEngine, FakeJob, ready
from followed import FINISH, START, STEP, follow
from unwatched import DEAD, left

from ngcdl.engines.values import Exit
from ngcdl.errors import GpuNotInside
from ngcdl.folder import EVENTS
from ngcdl.record import Run
from ngcdl.report.measured.told import Told
from ngcdl.running import launch
from ngcdl.running.ending import STOPPED, before_start, closed_by_events
from ngcdl.running.owner import this_process
from ngcdl.spec import KINDS, Kind
from ngcdl.storing.store import Store

OOM = "out of memory: the kernel killed a process inside, although the command itself exited with 0"
GONE = "its Job is gone from the cluster"
CANCELLED = "Slurm: CANCELLED"
DOCKER_STOP = "ended by SIGTERM, not by ngcdl: docker stop, a restart of the engine, or the command itself"


def error(kind: str, message: str) -> dict[str, Any]:
    return {"event": "error", "t": 3.0, "kind": kind, "message": message, "step": 1}


NAN, NO_GPU = error("nan", "loss is NaN"), error("no_gpu", "it sees none")
SAVED = error("interrupted", "told to stop")
ENDS: dict[str, tuple[Exit, tuple[dict[str, Any], ...], tuple[str, int | None, str | None]]] = {
    "well": (Exit(0, False), (STEP, FINISH), ("finished", 0, None)),
    "its own code": (Exit(7, False), (STEP,), ("failed", 7, None)),
    "out of memory inside": (Exit(0, True, OOM), (STEP,), ("failed", 0, OOM)),
    "a helper out of memory": (Exit(0, True, OOM), (STEP, FINISH), ("finished", 0, OOM)),
    "a trial out of memory": (Exit(0, True, OOM), ({"event": "oom"}, STEP, FINISH), ("finished", 0, None)),
    "not a number": (Exit(1, False), (STEP, NAN), ("failed", 1, "nan: loss is NaN")),
    "the engine knows why": (Exit(137, True, "killed"), (STEP, NAN), ("failed", 137, "killed")),
    "cancelled": (Exit(None, None, CANCELLED, is_stopped=True), (STEP,), ("interrupted", None, CANCELLED)),
    "gone": (Exit(None, None, GONE), (STEP,), ("interrupted", None, GONE)),
    "gone when it had finished": (
        Exit(None, None, GONE), (STEP, FINISH), ("finished", None, f"{GONE}; the trainer reports that it finished"),
    ),
    "gone when it had failed": (Exit(None, None, GONE), (STEP, NAN), ("failed", None, f"{GONE}; nan: loss is NaN")),
    "stopped by others": (Exit(143, False, DOCKER_STOP), (STEP, SAVED), ("interrupted", 143, DOCKER_STOP)),
    "stopped by others, deaf": (Exit(143, False, DOCKER_STOP), (STEP,), ("failed", 143, DOCKER_STOP)),
    "killed by others": (Exit(137, False, "not by ngcdl"), (STEP,), ("failed", 137, "not by ngcdl")),
    "begun again since it was stopped": (Exit(1, False), (STEP, SAVED, START, STEP), ("failed", 1, None)),
    "a wrapper that hides the code": (
        Exit(0, False), (STEP, SAVED), ("interrupted", 0, "interrupted: told to stop"),
    ),
}  # fmt: skip


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    engine = FakeEngine(FakeJob(), name="apptainer")
    monkeypatch.setitem(KINDS, "apptainer", Kind())
    monkeypatch.setitem(sys.modules, "ngcdl.engines.apptainer", SimpleNamespace(connect=lambda: engine))
    return engine


def found(store: Store, engine: FakeEngine, ended: Exit, *events: dict[str, Any], notes: tuple[str, ...] = ()) -> Run:
    """Return what a later command records of a run whose ngcdl was killed."""
    engine.job = FakeJob(exit=ended)
    watched = ready(Store(store.root / "spec"), engine.job)[0].run
    gone = replace(DEAD, boot=this_process().boot)
    run = replace(watched, engine="apptainer", engine_id=engine.identity, owner=gone, notes=notes)
    return left(Store(store.root / "unwatched"), run, *events)


@pytest.mark.parametrize("name", ENDS)
def test_an_end_is_recorded_alike_by_whoever_saw_it_and_whoever_finds_it(
    store: Store, engine: FakeEngine, name: str
) -> None:
    ended, events, expected = ENDS[name]
    live, _ = follow(Store(store.root / "live"), FakeJob(exit=ended), START, *events)
    later = found(store, engine, ended, START, *events)
    assert (live.status, live.exit_code, live.reason) == expected
    assert (later.status, later.exit_code, later.reason) == expected


def test_a_stop_that_was_typed_is_the_reason_alike(store: Store, engine: FakeEngine) -> None:
    for ended in (Exit(143, False, DOCKER_STOP), Exit(1, False), Exit(None, None, GONE)):
        run = found(Store(store.root / str(ended.code)), engine, ended, START, STEP, notes=(STOPPED,))
        assert (run.status, run.exit_code, run.reason) == ("interrupted", ended.code, "stopped by ngcdl stop")
    late = found(Store(store.root / "late"), engine, Exit(0, False), START, STEP, FINISH, notes=(STOPPED,))
    assert (late.status, late.exit_code, late.reason) == ("finished", 0, None)


KILLED = "ngcdl was killed, or could not write the record"
LEFT = "and nothing is left that could tell how the run ended"


@pytest.mark.parametrize(("known", "event", "expected"), [
    ({"owner": DEAD}, None, ("lost", f"{KILLED}, {LEFT}")),  # a full disk may have been the reason as well
    ({}, None, ("lost", f"it was killed, {LEFT}")),
    ({"owner": DEAD}, FINISH, ("finished", f"{KILLED}; the trainer reports that it finished")),
    ({"owner": DEAD}, NAN, ("failed", "nan: loss is NaN")),
    ({"owner": DEAD, "reason": "waits"}, None, ("interrupted", "ngcdl was killed while the run waited for its GPUs")),
    ({"owner": DEAD, "reason": "waits"}, STEP, ("lost", f"{KILLED}, {LEFT}")),
    ({"notes": (STOPPED,)}, SAVED, ("interrupted", "stopped by ngcdl stop")),
    ({"notes": (STOPPED,)}, NAN, ("failed", "nan: loss is NaN")),
])  # fmt: skip
def test_where_nobody_is_left_to_ask_the_events_tell_the_end(
    known: dict[str, Any], event: dict[str, Any] | None, expected: tuple[str, str]
) -> None:
    run = closed_by_events(Run("x", "running", 1.0, **known), Told([event] if event else []))
    assert (run.status, run.reason, run.exit_code) == (*expected, None)


def test_only_a_sigterm_to_the_run_s_owner_is_what_ngcdl_stop_sends() -> None:
    asked = Run("x", "running", 1.0, owner=DEAD, notes=(STOPPED,))
    for run, number, who in (
        (asked, signal.SIGTERM, "ngcdl stop"), (asked, signal.SIGINT, "SIGINT"),
        (replace(asked, owner=None), signal.SIGTERM, "SIGTERM"), (replace(asked, notes=()), signal.SIGTERM, "SIGTERM"),
    ):  # fmt: skip
        ended = before_start(run, number)
        assert (ended.status, ended.exit_code, ended.reason) == (
            "interrupted", 128 + number, f"stopped by {who} before it had started"
        )  # fmt: skip


def test_a_training_that_saw_no_gpu_has_the_same_code_and_reason_alike(store: Store, engine: FakeEngine) -> None:
    with pytest.raises(GpuNotInside) as caught:
        follow(store, FakeJob(exit=Exit(1, False)), START, NO_GPU)
    later = found(store, engine, Exit(1, False), START, NO_GPU)
    live = store.load(later.id)
    assert (live.status, live.exit_code, live.reason) == ("failed", 125, caught.value.message)
    assert (later.status, later.exit_code, later.reason) == ("failed", 125, caught.value.message)


def test_a_sigterm_that_ngcdl_did_not_send_came_from_outside(store: Store, engine: FakeEngine) -> None:
    """The trainer saves a checkpoint and exits with 143; for a process of this host nothing else is known."""
    run, _ = follow(store, FakeJob(exit=Exit(143, False)), START, STEP, SAVED)
    assert (run.status, run.exit_code, run.reason) == ("interrupted", 143, "stopped by SIGTERM from outside")
    later = found(store, engine, Exit(143, False), START, STEP, SAVED)
    assert later.reason == "interrupted: told to stop", "its own ngcdl, which was killed, may have sent it"


def test_a_command_that_ctrl_c_on_its_own_terminal_ended_was_interrupted(store: Store) -> None:
    ended = Exit(130, False, "ended by SIGINT")
    for tty, status in ((True, "interrupted"), (False, "failed")):  # without a terminal ngcdl would know of Ctrl-C
        its = Store(store.root / status)
        prepared, _ = ready(its, FakeJob(exit=ended), train=False)
        on_terminal = replace(prepared.run, spec={**(prepared.run.spec or {}), "tty": tty})
        run = launch.follow(replace(prepared, run=on_terminal), its, SimpleNamespace(say=print, chunk=print))
        assert (run.status, run.exit_code, run.reason) == (status, 130, "ended by SIGINT")
    training, _ = follow(Store(store.root / "training"), FakeJob(exit=ended), START, STEP)
    assert training.status == "failed", "it saved no checkpoint"


def test_a_command_s_own_file_of_events_decides_nothing(store: Store) -> None:
    prepared, folder = ready(store, FakeJob(exit=Exit(0, False)), train=False)
    (folder / EVENTS).write_text(json.dumps(SAVED) + "\n")
    assert launch.follow(prepared, store, SimpleNamespace(say=print, chunk=print)).status == "finished"
