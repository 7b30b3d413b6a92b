"""One run, from start to recorded end, however it ends. Nothing else starts a run.

Start, sample, stream, and close the record: after an exit, an error, Ctrl-C, SIGTERM or the loss of the engine.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ngcdl import waiting
from ngcdl.engines.base import Job, OutlivesEngine, grace_seconds
from ngcdl.engines.values import Exit
from ngcdl.errors import ContainerLeft, EngineHangs, EngineLost, NgcdlError, StateNotWritable
from ngcdl.folder import EVENTS, HOME, LOG, lines
from ngcdl.planning.show import Show
from ngcdl.record import Run
from ngcdl.running import ending, meanwhile, recorded_job, silence, stopping
from ngcdl.running.interrupt import KILL_SECONDS, Stopper, Unkillable
from ngcdl.running.meanwhile import Terminal
from ngcdl.running.prepare import Ready
from ngcdl.running.reconcile import DETACHED, JOB_LEFT, MAY_BE_LEFT, SUBMISSION_SECONDS
from ngcdl.running.signals import Interrupted, signals_deferred
from ngcdl.storing.nodesamples import samples
from ngcdl.storing.store import Store

if TYPE_CHECKING:
    from ngcdl.telemetry.kernel_log import CardError, KernelLog

MAY_BE_ACCEPTED = "Interrupted before the cluster answered: it may have accepted the job, or may yet accept it."


def follow(
    ready: Ready,
    store: Store,
    show: Show,
    terminal: Terminal | None = None,
    until: float | None = None,
    *,
    leave: bool = False,
    begun: Job | None = None,
    before_stop: Callable[[], object] = lambda: None,
    kernel: KernelLog | None = None,
) -> Run:
    """Start the prepared run and follow it to its end; stop it at `until` (s since the epoch).

    `begun` is the run's job if a cluster has already accepted it; `before_stop` is called, in another thread, before
    that is asked to stop; `kernel` is the kernel log to read, this host's if None.

    Return the closed record. After closing it, raise the error that ended the run, or Interrupted if a signal came
    before there was a job to stop.

    Return the open record while the run goes on if the user detaches from the terminal, or, with `leave`, as soon as a
    cluster has accepted the job; reconcile closes it later. If a cluster stops answering, it stays open, too.
    """
    workload = ready.order.spec.workload
    stopper = Stopper(grace_seconds(workload), show.say, is_command=workload is None, before_stop=before_stop)
    course = Course(ready, store, show, stopper)
    is_left = False
    with stopper.listening():
        try:
            job = course.start(begun)
            is_left = leave and not stopper.signal
            if not is_left:
                stopper.stop_at(until)
                course.watch(job, terminal, kernel)
                is_left = job.detached
        except Interrupted:
            course.interrupted()
        except Unkillable:
            course.given_up()
        except Exception as error:  # even a bug in ngcdl leaves nothing running, and no record open
            course.failed(error)
        stopper.ended()
        if not is_left:
            course.close()
    if is_left:
        return course.left() if leave else course.run
    course.clean_up()
    return course.came_out()


class Course:
    """One run in progress: its record so far, its job once it has started, and how it ended."""

    def __init__(self, ready: Ready, store: Store, show: Show, stopper: Stopper) -> None:
        self._ready, self._store, self._show, self._stopper = ready, store, show, stopper
        self._folder = ready.order.folder
        self._herald = meanwhile.Herald(show)
        self._ended = Exit(None)
        self._is_recorded = False
        self._is_lost = False
        self._may_be_left = False  # whether a start that was given up may leave a container
        self._card_errors: tuple[CardError, ...] = ()  # that the kernel logged
        self._unlogged: str | None = None  # why log.txt lacks output
        self._is_cluster = ready.engine.is_cluster
        self.run = ready.run
        self.job: Job | None = None
        self._trouble: Exception | None = None
        self._clock_ahead = _clock_ahead()

    def start(self, begun: Job | None = None) -> Job:
        """Start the job, and record its container and the GPUs it sees. If the job has already `begun`, return it."""
        if begun:
            self.job = self._stopper.job = begun
            return begun
        engine = self._ready.engine
        # An engine with containers can find a job again that a signal cut off from ngcdl in mid start. Nobody can find
        # such a process of this host, so signals wait until it has started.
        has_finder = engine.has_containers or self._is_cluster
        with (
            waiting.telling(self._show.say, lambda: None if self._stopper.signal else engine.waits_for),
            waiting.alongside(_load_what_follows, "ngcdl-loading"),
            self._stopper.looking() if has_finder else signals_deferred(),
        ):
            job = self.job = self._stopper.job = engine.start(self._ready.order)
        if isinstance(job, OutlivesEngine):
            job.say = self._show.say
        for note in job.started.news:
            self._show.say(note)
        owner = None if self._is_cluster else self.run.owner  # a run on a cluster needs no watcher
        self.run = replace(self.run, container=job.identity, owner=owner).noting(*job.started.notes)
        self._save()
        self.run = meanwhile.gpus_inside(self.run, self._ready, job, self._show)
        return job

    def watch(self, job: Job, terminal: Terminal | None, kernel: KernelLog | None) -> None:
        """Sample, and copy the output to log and screen, until the job has ended or the user has detached."""
        if self._is_cluster:
            self._stream(job, terminal)
            self._ended = job.wait()
            return

        def note() -> None:
            self.run = told(self.run).noting(*taken.problems)

        with (
            contextlib.ExitStack() as afterwards,  # also if the engine is lost meanwhile
            meanwhile.sampling(self._ready, job, self.run.gpus) as taken,
            meanwhile.without_cards(self._ready, job, self._show) as told,
            meanwhile.card_errors(self._ready, self.run, kernel) as card_errors,
            meanwhile.watched_cards(self._ready, self.run, self._show),
        ):
            afterwards.callback(note)
            self._stream(job, terminal)
            if not job.detached:
                self._ended = self._by_this_clock(job.wait())
                self._stopper.ended()  # a signal that comes from now on did not end it
                self._card_errors = card_errors() if self._ended.code else ()
        if job.detached:
            self.run = self.run.noting(DETACHED, *self._absences())
            self._save()

    def _stream(self, job: Job, terminal: Terminal | None) -> None:
        def look() -> None:
            self._herald.look(self.run, self._events())

        with silence.Teller(self._show.say, self.run, self._folder, job.waiting).looking():
            self._unlogged = meanwhile.stream(job, self._folder, self._show, terminal, look)

    def interrupted(self) -> None:
        """Clean up after a signal that came before there was a job to stop."""
        self._ended = Exit(None, reason="interrupted before it had started")
        if self.job:
            self.job.kill()
        elif self._is_cluster:
            self._withdraw()
        else:
            self._remove_left(is_given_up=True)

    def _withdraw(self) -> None:
        """Remove the job that a cluster may have accepted without ngcdl seeing its answer.

        If no job is found, or it can't be removed, the job may still run: the record stays open, and reconcile looks
        again."""
        with contextlib.suppress(NgcdlError, Interrupted):
            if left := self._ready.engine.find(self.run.id):
                left.remove()
                return
        self._is_lost = True
        self.run = self.run.noting(MAY_BE_ACCEPTED)
        self._save()
        later = f"{SUBMISSION_SECONDS / 60:.0f} min from now"
        look, stop = f"ngcdl show {self.run.id}", f"ngcdl stop {self.run.id}"
        self._show.say(f"{MAY_BE_ACCEPTED} What became of it, {later}:  {look}; to stop it:  {stop}")

    def _remove_left(self, is_given_up: bool) -> None:
        """Remove the job that the engine may have created without returning it.

        `is_given_up`: ngcdl stopped waiting for the engine's answer, so the engine may still create a job. Then the
        record keeps its owner, and reconcile looks for the job."""
        self._may_be_left = is_given_up and self._ready.engine.has_containers
        with contextlib.suppress(NgcdlError, Interrupted):
            if left := self._ready.engine.find(self.run.id):
                self.run = replace(self.run, container=left.identity)
                self._may_be_left = True
                left.remove()
                self._may_be_left = self._ready.engine.find(self.run.id) is not None
        if self._may_be_left:
            self._show.say(MAY_BE_LEFT)

    def given_up(self) -> None:
        """Query the job's state once, and leave the job: a second Ctrl-C came, and the kill was not confirmed."""
        self._stopper.ended()
        ended = None
        if self.job:
            with contextlib.suppress(NgcdlError):
                ended = self.job.ended()
        self._is_lost = ended is None
        unknown = f"stopped by {self._stopper.name}, but its end is not confirmed after {KILL_SECONDS:g} s"
        self._ended = self._by_this_clock(ended or Exit(None, reason=unknown))
        if self._is_lost:
            self._show.say(unknown + (f"; what became of it:  ngcdl show {self.run.id}" if self._is_cluster else ""))

    def failed(self, error: Exception) -> None:
        """Remember what went wrong, and end the job unless the engine is lost."""
        self._is_lost = isinstance(error, EngineLost)
        if isinstance(error, EngineLost) and not self._is_cluster and self.job and self._ready.order.spec.workload:
            error = EngineLost(error.doing, is_training=True).with_traceback(error.__traceback__)
        self._trouble = error
        if not self.job and not self._is_cluster:  # a job that a cluster may have accepted goes on
            self._remove_left(is_given_up=isinstance(error, EngineHangs))
        if self.job and not self._is_lost:
            try:
                if self._is_cluster:  # of several nodes some may be well, and have something to save
                    self.job.stop(grace_seconds(self._ready.order.spec.workload))
                self.job.kill()
                self._ended = self._by_this_clock(self.job.wait())
            except (NgcdlError, Unkillable) as unkilled:  # the record stays open, and reconcile looks again
                self._is_lost, self._may_be_left = self._is_cluster, self._ready.engine.has_containers
                self._say_it_may_run(unkilled)

    def _say_it_may_run(self, unkilled: BaseException) -> None:
        later = f"it may still run; to stop it:  ngcdl stop {self.run.id}" if self._is_cluster else MAY_BE_LEFT
        self._show.say(f"its end is not confirmed{f' ({unkilled})' if str(unkilled) else ''}; {later}")

    def close(self) -> None:
        """Record how the run ended, according to the engine, the trainer's events and the signals that ngcdl received.

        If the run may still go on on a cluster, leave the record open, and raise the error, or Interrupted."""
        if self._is_cluster and self._is_lost:
            raise self._trouble or Interrupted(self._stopper.signal or signal.SIGINT)
        from ngcdl.report.measured.filled import filled
        from ngcdl.report.measured.told import Told

        told = Told(self._events())
        self._trouble = self._trouble or ending.gpu_not_met(self.run, told, self._ended)
        if self._is_cluster:  # other commands may have added notes to its record
            with contextlib.suppress(NgcdlError):
                self.run = self.run.noting(*self._store.load(self.run.id).notes)
        if self._stopper.signal:
            self.run = stopping.noted(self._store, self.run)
        end = ending.End(self._ended, self._trouble, self._is_lost)
        owner = self.run.owner
        signals = ending.Signals(self._stopper.signal, self._stopper.is_late)
        closed = self._by_stopwatch(ending.closed(self.run, end, told, signals))
        self.run = filled(closed, told, samples(self._folder))
        self.run = replace(self.run, owner=owner) if self._may_be_left else self.run
        self._herald.look(self.run, self._events())
        self.run = self.run.noting(*self._herald.told, *self._absences(), *(() if self._is_lost else self._lacking()))
        if self.run.status == "failed":
            self._tell(*(f"The kernel logged during the run: {error}" for error in self._card_errors))
        self._diagnose()
        self._is_recorded = self._save("Its record is not up to date; the next ngcdl run or runs closes it.")

    def _by_this_clock(self, ended: Exit) -> Exit:
        """Return `ended`, which the engine has just reported, timed by this host's clock, as the run's start is: the
        clock of Docker Desktop's virtual machine, or of another machine, may differ by minutes. What a cluster reports
        may have ended long ago, and keeps its time."""
        return ended if self._ready.engine.is_here or self._is_cluster else replace(ended, finished=time.time())

    def _by_stopwatch(self, closed: Run) -> Run:
        """Return `closed` with its end corrected by how far the wall clock was set during the run, because comparisons
        are made of durations. An end that a cluster reports is not changed: it is by another machine's clock."""
        set_seconds = round(_clock_ahead() - self._clock_ahead, 2)  # less is the time between reading the two clocks
        if closed.finished is None or self._is_cluster:
            return closed
        return replace(closed, finished=closed.finished - set_seconds)

    def _tell(self, *notes: str) -> None:
        for note in notes:
            self._show.say(note)
        self.run = self.run.noting(*notes)

    def _diagnose(self) -> None:
        """Record the known failure that log.txt, the error or the kernel's log shows, and report it unless the error's
        hint does so already."""
        from ngcdl.report.measured.diagnosis import as_text, diagnosed

        hint = self._trouble.hint if isinstance(self._trouble, NgcdlError) else ""
        logged = [error.kernel_line for error in self._card_errors]
        self.run = diagnosed(self.run, self._folder / LOG, "\n".join([str(self._trouble or ""), *logged]))
        if self.run.diagnosis and str(self.run.diagnosis.cause) not in hint:
            self._show.say(as_text(self.run.diagnosis))

    def clean_up(self) -> None:
        """Remove what the engine keeps of a job whose end is recorded, and the run's HOME if it is empty."""
        if self.job and self._is_recorded and not self._is_lost:
            try:
                if self._is_log_whole():
                    self.job.remove()
            except ContainerLeft as error:
                self._tell(error.note)
                self._save()
            except NgcdlError as error:
                if self._is_cluster:
                    self._tell(JOB_LEFT.format(error.message))
                elif isinstance(error, EngineLost):
                    self._unlogged = error.message  # only the container has what could not be read
                    self._tell(*self._lacking())
                else:
                    raise
                self._save()
        with contextlib.suppress(OSError):
            (self._folder / HOME).rmdir()

    def _is_log_whole(self) -> bool:
        """Append to log.txt what it lacks, from the engine's copy. Return whether that copy may be removed; if it alone
        has the rest, say so."""
        before = self._lacking()
        if not before or not self._ready.engine.has_containers:
            return True
        try:
            if not (left := self._ready.engine.find(self.run.id)):
                return True
            recorded_job.bring_output(left, self._folder / LOG)
        except (NgcdlError, OSError):
            self._show.say(*before)
            return False
        self._unlogged = None
        self.run = replace(self.run, notes=tuple(note for note in self.run.notes if note not in before))
        if not self.run.diagnosis:
            self._diagnose()
        return self._save("Its record is not up to date.")

    def _absences(self) -> tuple[str, ...]:
        note = self.job.absences() if isinstance(self.job, OutlivesEngine) else None
        return (note,) if note else ()

    def _lacking(self) -> tuple[str, ...]:
        """Return a note that log.txt may lack its end, why, and where the rest is; () if log.txt is complete."""
        if self._unlogged is None:
            return ()
        where = f":  docker logs {self.job.identity[:12]}" if self.job and self._ready.engine.has_containers else "."
        return (f"log.txt may lack its end ({self._unlogged}){where}",)

    def left(self) -> Run:
        """Return the open record of a run on a cluster. If a signal came before it was left, kill it, and raise."""
        if number := self._stopper.signal or self._stopper.afterwards:
            try:
                if self.job:
                    self.job.kill()
            except NgcdlError as unkilled:
                self._say_it_may_run(unkilled)
            raise Interrupted(number)
        return self.run

    def came_out(self) -> Run:
        """Return the closed record. Raise the error that ended the run, or Interrupted if a signal came but did not end
        the job."""
        if self._trouble:
            raise self._trouble
        stopper, has_ended = self._stopper, self.run.status in ("finished", "failed")
        # A signal after the job's end changes nothing here, but it also stops what the caller would do next.
        number = stopper.signal if self.job is None or self.run.status in ("lost", "finished") else stopper.afterwards
        if number:
            if self.job and has_ended:
                name = signal.Signals(number).name
                self._show.say(f"it had {self.run.status} before {name} reached it:  ngcdl show {self.run.id}")
            raise Interrupted(number)
        return self.run

    def _events(self) -> Iterator[dict[str, object]]:
        return lines(self._folder / EVENTS)

    def _save(self, otherwise: str = "The run goes on; its record is not up to date.") -> bool:
        """Save the record and return whether that worked. If it failed, warn, and add the sentence `otherwise`; the run
        goes on."""
        try:
            self._store.save(self.run)
        except StateNotWritable as error:
            self._show.say(f"WARNING: {error.message} {otherwise}")
            return False
        return True


def _load_what_follows(_: threading.Event) -> None:
    """Load what a run needs once it has started: while an engine starts it, this process is idle."""
    from ngcdl.report.measured import diagnosis, filled  # noqa: F401
    from ngcdl.telemetry import sampler  # noqa: F401


def _clock_ahead() -> float:
    """Return wall clock minus CLOCK_BOOTTIME, in s: it changes only if somebody sets the clock."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
