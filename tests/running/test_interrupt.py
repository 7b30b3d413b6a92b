"""The first signal stops a run and records that; a second Ctrl-C kills the run."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import dataclass, field
from typing import Any

import docker.errors
import pytest
from fakes import FakeJob
from followed import by_signal
from house import until

from ngcdl.engines.docker.job import Clients, DockerJob
from ngcdl.engines.values import Started
from ngcdl.errors import EngineHangs
from ngcdl.running.interrupt import OR_KILL, STOPPING, Stopper, Unkillable
from ngcdl.running.signals import SIGNALS, Interrupted, come_again, signals_deferred

NEVER_SECONDS = 600.0  # no alarm while a test on a busy machine is between a kill and its end


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_before_there_is_a_job_interrupts(number: signal.Signals) -> None:
    stopper = Stopper(1, print)
    with pytest.raises(Interrupted) as caught, stopper.listening(), stopper.looking():
        os.kill(os.getpid(), number)
    assert (caught.value.number, stopper.signal, stopper.name) == (number, number, number.name)


def test_during_a_start_a_signal_is_noticed_that_interrupted_no_call() -> None:
    stopper, (ours, theirs) = Stopper(1, print), socket.socketpair()

    def to_another_thread() -> None:  # as if it had come just before the main thread's call
        time.sleep(0.1)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    def start() -> None:
        threading.Thread(target=to_another_thread).start()
        ours.recv(1)

    ours.settimeout(240)
    began = time.monotonic()
    with ours, theirs, stopper.listening(), stopper.looking(), pytest.raises(Interrupted):
        start()
    assert time.monotonic() - began < 200
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_signal_that_was_deferred_comes_also_if_the_step_failed() -> None:
    with Stopper(1, print).listening(), pytest.raises(Interrupted), signals_deferred():
        raise OSError(signal.raise_signal(signal.SIGTERM))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_python_ignored_is_the_first_when_it_comes_again(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopper, job = Stopper(7, print), FakeJob(ignores_stop=True)

    def hook(ignored: Any) -> None:
        stopper.job = job  # it starts meanwhile
        come_again(ignored)

    monkeypatch.setattr(sys, "unraisablehook", hook)
    lock = FakeJob()
    kept = weakref.ref(lock, lambda _: signal.raise_signal(number))
    with stopper.listening():
        del lock
        until(lambda: job.asked)
    assert (kept(), job.asked, stopper.signal) == (None, ["stop 7"], number)


@pytest.mark.parametrize("first", SIGNALS)
def test_the_first_signal_stops_and_a_second_ctrl_c_kills(first: signal.Signals) -> None:
    stopper, job = Stopper(7, print, NEVER_SECONDS), FakeJob(ignores_stop=True)
    stopper.job = job
    stopper.on_signal(first)
    until(lambda: job.asked == ["stop 7"])
    stopper.on_signal(signal.SIGINT)
    until(lambda: job.asked == ["stop 7", "kill"])
    stopper.ended()
    assert stopper.signal == first


@pytest.mark.parametrize(("number", "asked"), [(signal.SIGINT, "interrupt 7"), (signal.SIGTERM, "stop 7"),
                                               (signal.SIGHUP, "stop 7")])  # fmt: skip
def test_a_command_gets_ctrl_c_and_is_asked_to_stop_by_the_others(number: signal.Signals, asked: str) -> None:
    stopper, job = Stopper(7, print, is_command=True), FakeJob()
    stopper.job = job
    stopper.on_signal(number)
    assert job.ending.wait(240)
    stopper.ended()
    assert job.asked == [asked]


@pytest.mark.parametrize(("is_command", "asked", "heard"), [
    (True, [f"signal {int(signal.SIGUSR1)}"], None), (False, ["stop 7"], signal.SIGUSR1),
], ids=["a command", "a training"])  # fmt: skip
def test_a_warning_of_the_batch_system_is_a_command_s_own_and_a_training_saves_its_checkpoint(
    is_command: bool, asked: list[str], heard: int | None
) -> None:
    stopper, job = Stopper(7, print, is_command=is_command), FakeJob(ignores_stop=True)
    stopper.job = job
    with stopper.listening():
        os.kill(os.getpid(), signal.SIGUSR1)
        until(lambda: job.asked)
    assert (job.asked, stopper.signal) == (asked, heard)


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("first", SIGNALS)
def test_a_closed_terminal_or_a_second_stop_kills_nothing(first: signal.Signals, second: signal.Signals) -> None:
    """If a terminal is closed, bash and the kernel each send SIGHUP, and logind sends SIGTERM."""
    stopper, job = Stopper(7, print, kill_seconds=0), FakeJob(ignores_stop=True)
    stopper.job = job
    before = set(threading.enumerate())
    with stopper.listening():
        for number in (first, second):
            os.kill(os.getpid(), number)
        until(lambda: job.asked)
        for thread in set(threading.enumerate()) - before:
            thread.join(240)
    assert (job.asked, stopper.signal) == (["stop 7"], first)


@pytest.mark.parametrize(("first", "told"), [(signal.SIGINT, OR_KILL), (signal.SIGTERM, STOPPING)])
def test_a_first_ctrl_c_says_what_the_second_does_and_ngcdl_stop_speaks_of_no_ctrl_c(
    first: signal.Signals, told: str
) -> None:
    said: list[str] = []
    stopper = Stopper(7, said.append, NEVER_SECONDS)
    stopper.job = FakeJob(ignores_stop=True)
    stopper.on_signal(first)
    stopper.on_signal(signal.SIGINT)
    until(lambda: said)
    stopper.ended()
    assert said == [told]


@dataclass
class Daemon:
    """A Docker engine with one container, which runs for `looks` more inspections. A signal to it raises `error`, if
    any."""

    looks: int
    error: Exception | None = None
    asked: list[str] = field(default_factory=list)

    def kill(self, identity: str, signal: str) -> None:
        self.asked.append(signal)
        if self.error:
            raise self.error

    def inspect_container(self, identity: str) -> dict[str, Any]:
        self.looks -= 1
        return {"State": {"Running": self.looks >= 0}}

    def stop(self, identity: str, timeout: int) -> None:
        self.asked.append(f"stop {timeout}")


@pytest.mark.parametrize(("daemon", "grace_seconds", "looks"), [
    (Daemon(2), 60, -1), (Daemon(1000), 0.2, None), (Daemon(5, docker.errors.APIError("is not running")), 60, 5),
], ids=["it heeds Ctrl-C", "it does not", "it has just ended"])  # fmt: skip
def test_a_container_gets_ctrl_c_and_then_the_usual_stop(
    daemon: Daemon, grace_seconds: float, looks: int | None
) -> None:
    job = DockerJob(Clients(daemon, daemon), "unix:///x", "c0ffee", False, Started())
    job.interrupt(grace_seconds)
    assert daemon.asked == ["SIGINT", f"stop {int(grace_seconds)}"]
    assert looks in (None, daemon.looks)


def test_a_job_whose_time_is_up_is_stopped_and_no_signal_came() -> None:
    said: list[str] = []
    stopper, job = Stopper(7, said.append), FakeJob()
    stopper.job = job
    stopper.stop_at(0.0)
    assert job.ending.wait(240)
    stopper.ended()
    assert (job.asked, stopper.signal, stopper.is_late) == (["stop 7"], None, True)
    assert said == ["the time is up: stopping"]


def test_a_job_without_a_time_or_before_it_is_left_alone() -> None:
    for moment in (None, time.time() + 1000):
        stopper, job = Stopper(7, print), FakeJob()
        stopper.job = job
        stopper.stop_at(moment)
        stopper.ended()
        assert (job.asked, stopper.is_late) == ([], False)


def test_a_job_that_does_not_end_when_it_is_killed_is_waited_for_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    send = signal.pthread_kill

    def just_before_a_call(_thread: int, number: int) -> None:  # which the signal then does not interrupt
        monkeypatch.setattr(signal, "pthread_kill", send)
        ctypes.pythonapi.PyErr_SetInterruptEx(number)

    monkeypatch.setattr(signal, "pthread_kill", just_before_a_call)
    stopper = Stopper(7, print, kill_seconds=0.05)
    stopper.job = FakeJob(ignores_stop=True)

    def killed() -> None:
        by_signal(signal.SIGINT, signal.SIGINT)()
        threading.Event().wait(200)

    began = time.monotonic()
    with stopper.listening(), pytest.raises(Unkillable):
        killed()
    assert time.monotonic() - began < 150


def test_that_a_job_was_not_killed_in_time_is_raised_also_where_python_ignores_it_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", come_again)
    stopper = Stopper(7, print, kill_seconds=0.05)
    stopper.job = FakeJob(ignores_stop=True)
    lock = FakeJob()
    kept = weakref.ref(lock, lambda _: threading.Event().wait(0.5))  # the kill's time is over meanwhile

    def killed() -> None:
        nonlocal lock
        by_signal(signal.SIGINT, signal.SIGINT)()
        del lock
        threading.Event().wait(20)

    with stopper.listening(), pytest.raises(Unkillable):
        killed()
    assert kept() is None


def test_a_job_that_ended_in_time_is_closed_in_peace() -> None:
    stopper = Stopper(7, print, NEVER_SECONDS)
    stopper.job = FakeJob(ignores_stop=True)
    before = set(threading.enumerate())
    with stopper.listening():
        by_signal(signal.SIGINT, signal.SIGINT)()
        (timer,) = [one for one in set(threading.enumerate()) - before if isinstance(one, threading.Timer)]
        stopper.ended()
        assert not timer.is_alive()
        timer.function()  # as if the timer had fired just before
        signal.raise_signal(signal.SIGALRM)


def test_a_stop_or_a_kill_that_fails_is_said() -> None:
    class Hanging(FakeJob):
        def stop(self, grace_seconds: float) -> None:
            super().stop(grace_seconds)
            raise EngineHangs("unix socket", 60)

        def kill(self) -> None:
            raise EngineHangs("unix socket", 5)

    said: list[str] = []
    stopper, job = Stopper(7, said.append, NEVER_SECONDS), Hanging()
    stopper.job = job
    stopper.on_signal(signal.SIGINT)
    until(lambda: len(said) == 2)
    assert said[0] == OR_KILL
    assert "unix socket accepts connections but gave no answer within 60 s" in said[1]
    stopper.on_signal(signal.SIGINT)
    until(lambda: len(said) == 3)
    stopper.ended()
    assert said[2] == said[1].replace("60 s", "5 s")
    assert (job.asked, stopper.name) == (["stop 7"], "SIGINT")


def test_a_job_whose_time_is_up_is_asked_until_it_could_be_and_each_failure_is_said() -> None:
    class Busy(FakeJob):
        def stop(self, grace_seconds: float) -> None:
            if len(self.asked) < 2:
                self.asked.append("stop")
                raise EngineHangs("unix socket", 60)
            super().stop(grace_seconds)

    said: list[str] = []
    stopper, job = Stopper(7, said.append, retry_seconds=0.01), Busy()
    stopper.job = job
    stopper.stop_at(0.0)
    assert job.ending.wait(240)
    stopper.ended()
    assert job.asked == ["stop", "stop", "stop 7"]
    assert (said[0], len(said), said.count(EngineHangs("unix socket", 60).message)) == (
        "the time is up: stopping",
        3,
        2,
    )
    assert stopper.is_late


def test_a_signal_whose_stop_failed_is_obeyed_when_it_can_be() -> None:
    class Busy(FakeJob):
        def stop(self, grace_seconds: float) -> None:
            super().stop(grace_seconds)
            if len(self.asked) < 3:
                raise EngineHangs("unix socket", 60)

    said: list[str] = []
    stopper, job = Stopper(7, said.append, retry_seconds=0.01), Busy(ignores_stop=True)
    stopper.job = job
    stopper.on_signal(signal.SIGTERM)
    until(lambda: len(job.asked) == 3, "a stop that was accepted")
    stopper.ended()
    assert (job.asked, said[0], len(said)) == (["stop 7"] * 3, STOPPING, 3)


def test_a_job_that_has_been_asked_as_its_time_was_up_is_not_asked_twice() -> None:
    """A training that gets a second SIGTERM ends at once, without its checkpoint."""
    said: list[str] = []
    stopper, job = Stopper(7, said.append), FakeJob(ignores_stop=True)
    stopper.job = job
    stopper.stop_at(0.0)
    until(lambda: job.asked)
    before = set(threading.enumerate())
    stopper.on_signal(signal.SIGHUP)
    for thread in set(threading.enumerate()) - before:
        thread.join(240)
    until(lambda: STOPPING in said)
    stopper.ended()
    assert job.asked == ["stop 7"]


def test_a_job_that_ended_is_not_asked_again_whatever_its_stop_came_to() -> None:
    class Gone(FakeJob):
        def stop(self, grace_seconds: float) -> None:
            super().stop(grace_seconds)
            stopper.ended()
            raise EngineHangs("unix socket", 60)

    stopper, job = Stopper(7, print, retry_seconds=0.0), Gone()
    stopper.job = job
    stopper.stop_at(0.0)
    assert job.ending.wait(240)
    until(lambda: stopper._bell and not stopper._bell.is_alive(), "the end of the timer")
    assert job.asked == ["stop 7"]


def test_no_exception_handler_of_a_library_swallows_an_interruption() -> None:
    assert not issubclass(Interrupted, Exception)
    assert Stopper(1, print).name == "no signal"


def test_handlers_are_put_back_also_after_an_error() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with contextlib.suppress(RuntimeError), Stopper(1, print).listening():
        assert [signal.getsignal(number) for number in SIGNALS] != before
        raise RuntimeError
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_a_signal_that_was_ignored_from_the_start_stays_ignored() -> None:
    """nohup ignores SIGHUP."""
    code = """
import os, signal
signal.signal(signal.SIGHUP, signal.SIG_IGN)
from ngcdl.running.interrupt import Stopper
from ngcdl.running.signals import raise_on_signals
raise_on_signals()
with Stopper(1, print).listening():
    os.kill(os.getpid(), signal.SIGHUP)
print("still here")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("still here\n", "")
