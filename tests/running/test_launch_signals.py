"""A run that somebody stops, and one that nothing stops."""

from __future__ import annotations

import signal
import threading

import pytest
from fakes import FakeJob, FakeShow, ready
from followed import FINISH, START, STEP, by_signal, follow, recorded
from house import until

from ngcdl.engines.values import Exit
from ngcdl.errors import EngineHangs, EngineLost, NgcdlError
from ngcdl.running import launch
from ngcdl.running.ending import HANGUP
from ngcdl.running.interrupt import Stopper
from ngcdl.running.signals import Interrupted
from ngcdl.storing.store import Store


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_job_and_the_run_is_interrupted(store: Store, number: signal.Signals) -> None:
    job = FakeJob((b"step 0\n", by_signal(number)), until_stopped=True)
    run, _ = follow(store, job, START, STEP)
    assert (run.status, run.exit_code, run.reason) == ("interrupted", 128 + number, f"stopped by {number.name}")
    assert (HANGUP in run.notes) == (number == signal.SIGHUP)
    assert job.asked == ["stop 60", "remove"], "a training may save its checkpoint"
    assert run.summary.steps == 0


def test_ctrl_c_is_passed_on_to_a_command(store: Store) -> None:
    job = FakeJob((by_signal(signal.SIGINT),), until_stopped=True)
    run, _ = follow(store, job, train=False)
    assert (run.status, run.exit_code, run.reason) == ("interrupted", 130, "stopped by SIGINT")
    assert job.asked == ["interrupt 10", "remove"]


def test_a_second_ctrl_c_kills(store: Store) -> None:
    job = FakeJob(until_stopped=True, ignores_stop=True)
    # the kill comes after the stop: a kill that overtakes the stop leaves nothing to stop
    job.chunks = (by_signal(signal.SIGTERM), lambda: until(lambda: job.asked), by_signal(signal.SIGINT))
    run, _ = follow(store, job, train=False)
    assert sorted(job.asked) == ["kill", "remove", "stop 10"]
    assert (run.status, run.exit_code, run.reason) == ("interrupted", 137, "stopped by SIGTERM"), "the first counts"


@pytest.mark.parametrize("code", [0, 5, 75])
def test_a_command_that_catches_the_signal_keeps_its_own_exit_code(store: Store, code: int) -> None:
    job = FakeJob((by_signal(signal.SIGINT),), exit=Exit(code, False, None, 50.0))
    job.interrupt = lambda _: None  # type: ignore[method-assign]
    run, _ = follow(store, job, train=False)
    assert (run.status, run.exit_code, run.reason) == ("interrupted", code, "stopped by SIGINT")


@pytest.mark.parametrize("numbers", [
    (signal.SIGHUP, signal.SIGHUP), (signal.SIGTERM, signal.SIGHUP), (signal.SIGINT, signal.SIGTERM),
    (signal.SIGTERM, signal.SIGTERM),
], ids=["a closed terminal", "logind", "Ctrl-C and ngcdl stop", "ngcdl stop twice"])  # fmt: skip
def test_a_training_keeps_the_time_for_its_checkpoint_whatever_comes_twice(
    store: Store, numbers: tuple[signal.Signals, ...]
) -> None:
    job = FakeJob((by_signal(*numbers),), until_stopped=True)
    run, _ = follow(store, job, START, STEP)
    assert job.asked == ["stop 60", "remove"]
    assert (run.status, run.reason) == ("interrupted", f"stopped by {numbers[0].name}")


def test_a_training_that_had_finished_before_ctrl_c_is_finished_and_the_caller_hears_of_it(store: Store) -> None:
    job = FakeJob((b"step 0\n", by_signal(signal.SIGINT)))
    job.stop = lambda _: None  # type: ignore[method-assign]  # a container that has ended
    with pytest.raises(Interrupted):  # a comparison goes no further
        follow(store, job, START, STEP, FINISH)
    run = recorded(store)
    assert (run.status, run.exit_code, run.reason) == ("finished", 0, None)


def test_a_training_that_ends_with_0_when_it_is_stopped_is_interrupted(store: Store) -> None:
    job = FakeJob((b"step 0\n", by_signal(signal.SIGINT)))
    job.stop = lambda _: None  # type: ignore[method-assign]
    run, _ = follow(store, job, START, STEP)
    assert (run.status, run.exit_code) == ("interrupted", 130)


def test_a_run_that_has_failed_keeps_its_reason_if_a_signal_comes_while_the_sampler_ends(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    join = threading.Thread.join

    def joined(self: threading.Thread, timeout: float | None = None) -> None:
        if self.name == "ngcdl-sampler":
            signal.raise_signal(signal.SIGINT)
        join(self, timeout)

    monkeypatch.setattr(threading.Thread, "join", joined)
    error = {"event": "error", "t": 3.0, "kind": "diverged", "message": "loss is NaN"}
    job = FakeJob(exit=Exit(1, False, None, 50.0))
    with pytest.raises(Interrupted):  # a comparison goes no further
        follow(store, job, START, STEP, error)
    run = recorded(store)
    assert (run.status, run.exit_code, run.reason) == ("failed", 1, "diverged: loss is NaN")
    assert job.asked == ["remove"]


class Unmoved(FakeJob):
    """A job that no kill ends; `told` is how its engine then answers when asked about the job."""

    told: Exit | EngineLost | None = None

    def kill(self) -> None:
        self.asked.append("kill")

    def ended(self) -> Exit | None:
        if isinstance(self.told, EngineLost):
            raise self.told
        return self.told


def test_a_second_signal_ends_ngcdl_also_where_the_kill_does_not_end_the_job(store: Store) -> None:
    job = Unmoved((by_signal(signal.SIGINT, signal.SIGINT),), until_stopped=True, ignores_stop=True)
    prepared, _ = ready(store, job)
    show = FakeShow()
    with pytest.raises(Interrupted) as caught:
        launch.follow(prepared, store, show)
    assert caught.value.number == signal.SIGINT
    run = recorded(store)
    assert (run.status, run.exit_code, "remove" in job.asked) == ("lost", None, False)
    assert "its end is not confirmed" in (run.reason or "")
    assert show.said[-1] == run.reason
    assert run.owner is not None, "the next command looks for it again"


@pytest.mark.parametrize(
    ("told", "is_cluster", "status"),
    [
        (EngineLost("asked about the run"), False, "lost"),
        (Exit(137, False), False, "interrupted"),
        (Exit(137, False), True, "interrupted"),
        (EngineLost("asked about the run"), True, "running"),
        (None, True, "running"),
    ],
)
def test_what_can_t_be_killed_is_as_its_engine_says_and_goes_on_for_all_we_know_on_a_cluster(
    store: Store, told: Exit | EngineLost | None, is_cluster: bool, status: str
) -> None:
    job, show = Unmoved(), FakeShow()
    job.told = told
    prepared, _ = ready(store, job, is_cluster=is_cluster)
    stopper = Stopper(1, show.say)
    course = launch.Course(prepared, store, show, stopper)
    course.start()
    stopper.signal = signal.SIGINT
    course.given_up()
    if status == "running":
        with pytest.raises(Interrupted):
            course.close()
        assert show.said[-1].endswith(f"not confirmed after 5 s; what became of it:  ngcdl show {recorded(store).id}")
    else:
        course.close()
    run = recorded(store)
    assert (run.status, run.exit_code) == (status, 130 if status == "interrupted" else None)


def test_a_run_that_was_detached_by_its_keys_is_not_killed_by_a_signal_that_comes_in_that_moment(store: Store) -> None:
    def detach() -> None:
        job.detached = True
        by_signal(signal.SIGTERM)()

    job = FakeJob((detach,), ignores_stop=True)
    prepared, _ = ready(store, job)
    assert launch.follow(prepared, store, FakeShow()).status == "running"
    assert "kill" not in job.asked


def test_signals_are_the_caller_s_again_afterwards(store: Store) -> None:
    before = signal.getsignal(signal.SIGTERM)
    follow(store, FakeJob())
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_before_the_start_is_recorded_and_passed_on(store: Store) -> None:
    prepared, _ = ready(store, FakeJob(), at_start=by_signal(signal.SIGTERM))
    with pytest.raises(Interrupted) as caught:
        launch.follow(prepared, store, FakeShow())
    run = recorded(store)
    assert caught.value.number == signal.SIGTERM
    assert (run.status, run.exit_code, run.owner) == ("interrupted", 143, None)


class Unremovable(FakeJob):
    """A job that may still be there after its removal, because the engine does not answer."""

    def remove(self) -> None: ...


@pytest.mark.parametrize("made", [EngineHangs("x.sock", 8), Unremovable()])
def test_a_start_that_was_given_up_is_interrupted_and_what_it_may_leave_is_the_next_command_s(
    store: Store, made: FakeJob | NgcdlError
) -> None:
    prepared, _ = ready(store, made, at_start=by_signal(signal.SIGINT))
    show = FakeShow()
    with pytest.raises(Interrupted):
        launch.follow(prepared, store, show)
    run = recorded(store)
    assert (run.status, run.exit_code, run.reason) == ("interrupted", 130, "stopped by SIGINT")
    assert (run.owner, run.is_open) == (prepared.run.owner, True)
    assert run.container == (made.identity if isinstance(made, FakeJob) else None)
    assert show.said == ["the engine may still have its container, or create it: the next ngcdl run or runs removes it"]


def test_a_second_ctrl_c_while_what_a_start_left_is_looked_for_ends_that_at_once(store: Store) -> None:
    prepared, _ = ready(store, FakeJob(), at_start=by_signal(signal.SIGINT))
    prepared.engine.find = lambda _: by_signal(signal.SIGINT)()  # type: ignore[method-assign]
    with pytest.raises(Interrupted) as caught:
        launch.follow(prepared, store, FakeShow())
    run = recorded(store)
    assert (caught.value.number, run.status, run.exit_code) == (signal.SIGINT, "interrupted", 130)
    assert run.owner is not None


def test_a_command_on_this_host_that_a_signal_meets_at_its_start_is_stopped_like_any_other(store: Store) -> None:
    """If the signal interrupted the start halfway, nobody would know of the process."""
    job = FakeJob(until_stopped=True)
    prepared, _ = ready(store, job, at_start=by_signal(signal.SIGINT), train=False, has_containers=False)
    run = launch.follow(prepared, store, FakeShow())
    assert (run.status, run.exit_code, run.reason) == ("interrupted", 130, "stopped by SIGINT")
    assert (run.container, run.owner, job.asked) == (job.identity, None, ["interrupt 10", "remove"])


def test_a_local_training_that_was_not_started_leaves_nothing_to_look_for(store: Store) -> None:
    prepared, _ = ready(store, EngineLost("x"), has_containers=False)
    stopper = Stopper(1, print)
    stopper.signal = signal.SIGINT
    course = launch.Course(prepared, store, FakeShow(), stopper)
    course.interrupted()
    course.close()
    run = recorded(store)
    assert (run.status, run.owner) == ("interrupted", None)


def test_an_interrupted_run_is_diagnosed_too(store: Store) -> None:
    bus = b"ERROR: Unexpected bus error encountered in worker. ... insufficient shared memory (shm).\n"
    job = FakeJob((bus, by_signal(signal.SIGINT)), until_stopped=True)
    run, show = follow(store, job, train=False)
    assert (run.status, run.exit_code) == ("interrupted", 130)
    assert run.diagnosis
    assert run.diagnosis.name == "shm-too-small"
    assert "--shm-size" in show.said[-1]
