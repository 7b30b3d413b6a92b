"""One run, from start to recorded end, however it ends. Nothing else makes a run happen.

Start, sample, stream, and close the record: after an exit, an error, Ctrl-C, SIGTERM or a lost engine.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import replace

from ngcdl import ending, meanwhile
from ngcdl.engines.base import TRAINING_GRACE_SECONDS, Exit, Job
from ngcdl.errors import EngineHangs, EngineLost, NgcdlError, StateNotWritable
from ngcdl.folder import EVENTS, HOME, LOG, lines
from ngcdl.interrupt import KILL_SECONDS, Interrupted, Stopper, Unkillable
from ngcdl.meanwhile import Show, Terminal
from ngcdl.nodesamples import samples
from ngcdl.prepare import Ready
from ngcdl.record import Run
from ngcdl.report.diagnosis import diagnosed, told
from ngcdl.report.filled import filled
from ngcdl.store import Store

GRACE_SECONDS = 10.0
DETACHED = "Detached with the detach keys; nothing was measured from then on."


def follow(
    ready: Ready,
    shelf: Store,
    show: Show,
    terminal: Terminal | None = None,
    until: float | None = None,
    *,
    leave: bool = False,
    begun: Job | None = None,
) -> Run:
    """Start what is ready and see it through, at most `until` (s since the epoch): then it is stopped.

    `begun`: its job, where a cluster has taken it before.

    Gives the closed record; raises NgcdlError after closing it.
    A person who detaches from a terminal gets the record as it is, running; reconcile closes it later. So does who asks
    to `leave` what a cluster has taken; one that can't be asked any more leaves the record running, too.
    """
    stopper = Stopper(TRAINING_GRACE_SECONDS if ready.order.spec.workload else GRACE_SECONDS, show.say)
    course = Course(ready, shelf, show, stopper)
    with stopper.listening():
        try:
            job = course.start(begun)
            if leave:
                return course.run
            stopper.stop_at(until)
            course.watch(job, terminal)
            if job.detached:
                return course.run
        except Interrupted:
            course.interrupted()
        except Unkillable:
            course.given_up()
        except Exception as error:  # a fault of ngcdl too leaves nothing running, and no record open
            course.failed(error)
        stopper.ended()
        course.close()
    course.clean_up()
    return course.came_out()


class Course:
    """One run on its way: its record so far, its job once it has started, and how both ended."""

    def __init__(self, ready: Ready, shelf: Store, show: Show, stopper: Stopper) -> None:
        self._ready, self._shelf, self._show, self._stopper = ready, shelf, show, stopper
        self._folder = ready.order.folder
        self._herald = meanwhile.Herald(show)
        self._ended = Exit(None)
        self._is_recorded = False
        self._is_lost = False
        self._may_be_left = False  # the container of a start that was given up
        self._is_cluster = ready.engine.is_cluster
        self.run = ready.run
        self.job: Job | None = None
        self._trouble: Exception | None = None

    def start(self, begun: Job | None = None) -> Job:
        """Start the job and record what it runs in, and which GPUs it sees; one that has `begun` is as its record."""
        if begun:
            self.job = self._stopper.job = begun
            return begun
        engine = self._ready.engine
        with meanwhile.telling(self._show.say, lambda: None if self._stopper.signal else engine.waits_for):
            job = self.job = self._stopper.job = engine.start(self._ready.order)
        for note in job.started.news:
            self._show.say(note)
        owner = None if self._is_cluster else self.run.owner  # a cluster's run needs nobody to watch it
        self.run = replace(self.run, container=job.identity, owner=owner).noting(*job.started.notes)
        self._save()
        self.run = meanwhile.gpus_inside(self.run, self._ready, job, self._show)
        return job

    def watch(self, job: Job, terminal: Terminal | None) -> None:
        """Measure, and bring the output to log and screen, until the job has ended or a person has detached."""
        if self._is_cluster:
            self._stream(job, terminal)
            self._ended = job.wait()
            return
        with meanwhile.sampling(self._ready, job, self.run.gpus) as taken:
            self._stream(job, terminal)
            if not job.detached:
                self._ended = job.wait()
        self.run = self.run.noting(*([DETACHED] if job.detached else []), *taken.problems)
        if job.detached:
            self._save()

    def _stream(self, job: Job, terminal: Terminal | None) -> None:
        def look() -> None:
            self._herald.look(self.run, self._events())

        meanwhile.stream(job, self._folder, self._show, terminal, look)

    def interrupted(self) -> None:
        """A signal came before there was a job that could be asked to stop."""
        self._ended = Exit(None, reason="interrupted before it had started")
        if self.job:
            self.job.kill()
        else:
            self._remove_left(is_given_up=True)

    def _remove_left(self, is_given_up: bool) -> None:
        """Remove the job that the engine may have created before it could return it.

        `is_given_up`: its answer was not waited for, and it may still create one. The record keeps its owner then, and
        reconcile looks for the job."""
        self._may_be_left = is_given_up and self._ready.engine.has_containers and not self._is_cluster
        with contextlib.suppress(NgcdlError, Interrupted):
            left = self._ready.engine.find(self.run.id)
            if left:
                self.run = replace(self.run, container=left.identity)
                left.remove()
                self._may_be_left = self._ready.engine.find(self.run.id) is not None
        if self._may_be_left:
            self._show.say("the engine may still have its container, or create it: the next ngcdl command removes it")

    def given_up(self) -> None:
        """A second signal came, and the kill did not end the job: ask once how it stands, and leave it."""
        self._stopper.ended()
        ended = None
        if self.job:
            with contextlib.suppress(NgcdlError):
                ended = self.job.ended()
        self._is_lost = ended is None
        unknown = f"stopped by {self._stopper.name}, but its end is not confirmed after {KILL_SECONDS:g} s"
        self._ended = ended or Exit(None, reason=unknown)
        if self._is_lost:
            self._show.say(unknown + (f"; what became of it:  ngcdl show {self.run.id}" if self._is_cluster else ""))

    def failed(self, error: Exception) -> None:
        self._is_lost = isinstance(error, EngineLost)
        if isinstance(error, EngineLost) and not self._is_cluster and self.job and self._ready.order.spec.workload:
            error = type(error)(error.doing, is_training=True).with_traceback(error.__traceback__)
        self._trouble = error
        if not self.job and not self._is_cluster:  # what a cluster may have taken goes on there
            self._remove_left(is_given_up=isinstance(error, EngineHangs))
        if self.job and not self._is_lost:
            with contextlib.suppress(NgcdlError, Unkillable):
                self.job.kill()
                self._ended = self.job.wait()

    def close(self) -> None:
        """Record how it ended: from the engine, the trainer's events and our own signals.

        Raises where it goes on, as far as anybody knows, on a cluster: its record stays open."""
        if self._is_cluster and self._is_lost:
            raise self._trouble or Interrupted(self._stopper.signal or signal.SIGINT)
        events = list(self._events())
        self._trouble = self._trouble or ending.gpu_not_met(events, self._ended)
        if self._is_cluster:  # others may have written into its record
            with contextlib.suppress(NgcdlError):
                self.run = self.run.noting(*self._shelf.load(self.run.id).notes)
        end = ending.End(self._ended, self._trouble, self._is_lost)
        owner = self.run.owner
        self.run = filled(ending.closed(self.run, end, events, self._stopper), events, samples(self._folder))
        self.run = replace(self.run, owner=owner) if self._may_be_left else self.run
        self._herald.look(self.run, events)
        self.run = self.run.noting(*self._herald.told)
        self._diagnose()
        self._is_recorded = self._save("Its record is not up to date; the next ngcdl command closes it.")

    def _diagnose(self) -> None:
        """Record the famous failure that the log or the error tells of, and say it, unless the error's hint does."""
        hint = self._trouble.hint if isinstance(self._trouble, NgcdlError) else ""
        self.run = diagnosed(self.run, self._folder / LOG, str(self._trouble or ""))
        if self.run.diagnosis and str(self.run.diagnosis.cause) not in hint:
            self._show.say(told(self.run.diagnosis))

    def clean_up(self) -> None:
        """Take away what the engine keeps of a job whose end is recorded, and the HOME that nothing was left in."""
        if self.job and self._is_recorded and not self._is_lost:
            try:
                self.job.remove()
            except EngineLost as error:
                if self._is_cluster:
                    raise
                # The container alone has what could not be read.
                note = f"log.txt may lack its end ({error.message}):  docker logs {self.job.identity[:12]}"
                self._show.say(note)
                self.run = self.run.noting(note)
                self._save()
        with contextlib.suppress(OSError):
            (self._folder / HOME).rmdir()

    def came_out(self) -> Run:
        """Give the closed record. Raises what went wrong, or Interrupted where a signal ended nothing."""
        if self._trouble:
            raise self._trouble
        if self._stopper.signal and (self.job is None or self.run.status == "lost"):
            raise Interrupted(self._stopper.signal)
        return self.run

    def _events(self) -> Iterator[dict[str, object]]:
        return lines(self._folder / EVENTS)

    def _save(self, otherwise: str = "The run goes on; its record is not up to date.") -> bool:
        """A record that can't be written does not stop what runs: it is said, with what comes of it. Was it written?"""
        try:
            self._shelf.save(self.run)
        except StateNotWritable as error:
            self._show.say(f"WARNING: {error.message} {otherwise}")
            return False
        return True
