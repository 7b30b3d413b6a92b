"""One run, from start to recorded end, however it ends. Nothing else makes a run happen.

Start, sample, stream, and close the record: after an exit, an error, Ctrl-C, SIGTERM or a lost engine.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ngcdl import store
from ngcdl.engines.base import Chunk, Exit, Job
from ngcdl.errors import EngineLost, GpuNotInside, NgcdlError, StateNotWritable
from ngcdl.interrupt import KILL_SECONDS, Interrupted, Stopper, Unkillable
from ngcdl.prepare import Ready
from ngcdl.record import Run
from ngcdl.report.diagnosis import diagnosed, told
from ngcdl.report.filled import filled
from ngcdl.store import Store

if TYPE_CHECKING:
    from ngcdl.telemetry import container, sampler

# A training saves a checkpoint on SIGTERM, at the end of its step.
TRAINING_GRACE_SECONDS = 60.0
GRACE_SECONDS = 10.0
SAMPLE_SECONDS = 1.0
DETACHED = "Detached by Ctrl-P Ctrl-Q; nothing was measured from then on."
STOPPED = "ngcdl stop was typed."
UNUSED_GPU = "WARNING: the run had a GPU, but its framework saw none: it computed on the CPU."


class Herald:
    """Says at once when a training that was free to choose computes on the CPU, although it was given a GPU."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self._is_known = False
        self.told: tuple[str, ...] = ()

    def look(self, run: Run, events: Iterable[dict[str, object]]) -> None:
        """Look whether the trainer has said what it computes on; nothing is read of `events` once it has."""
        workload = (run.spec or {}).get("workload") or {}
        if self._is_known or not run.gpus or workload.get("device") != "auto":
            return
        for event in events:
            if event.get("event") == "start":
                self._is_known = True
                if event.get("device") == "cpu":
                    self.told = (UNUSED_GPU,)
                    self._show.say(UNUSED_GPU)


class Show(Protocol):
    """Where a run tells what it does and writes."""

    def say(self, text: str) -> None: ...

    def chunk(self, chunk: Chunk) -> None: ...


class Terminal(Protocol):
    """The caller's stdin, while the container has it; `raw`: it is a terminal, and Ctrl-C a byte of it."""

    raw: bool

    def pump(self, job: Job, output: Iterator[Chunk]) -> Iterator[Chunk]: ...


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
            stopper.ended()
            course.given_up()
        except Exception as error:  # a fault of ngcdl too leaves nothing running, and no record open
            course.failed(error)
        stopper.ended()
        if course.is_left:
            raise course.trouble or EngineLost("the run")
        course.close()
    course.clean_up()
    if course.trouble:
        raise course.trouble
    if stopper.signal and (course.job is None or course.run.status == "lost"):
        raise Interrupted(stopper.signal)
    return course.run


class Course:
    """One run on its way: its record so far, its job once it has started, and how both ended."""

    def __init__(self, ready: Ready, shelf: Store, show: Show, stopper: Stopper) -> None:
        self._ready, self._shelf, self._show, self._stopper = ready, shelf, show, stopper
        self._folder = ready.order.folder
        self._herald = Herald(show)
        self._ended = Exit(None)
        self._is_recorded = False
        self._is_lost = False
        self._is_cluster = ready.engine.is_cluster
        self.run = ready.run
        self.job: Job | None = None
        self.trouble: Exception | None = None

    @property
    def is_left(self) -> bool:
        """Does it go on, as far as anybody knows, on a cluster that can't be asked?"""
        return self._is_cluster and self._is_lost

    def start(self, begun: Job | None = None) -> Job:
        """Start the job and record what it runs in, and which GPUs it sees; one that has `begun` is as its record."""
        if begun:
            self.job = self._stopper.job = begun
            return begun
        job = self.job = self._stopper.job = self._ready.engine.start(self._ready.order)
        for note in job.started.news:
            self._show.say(note)
        owner = None if self._is_cluster else self.run.owner  # a cluster's run needs nobody to watch it
        self.run = replace(self.run, container=job.identity, owner=owner).noting(*job.started.notes)
        self._save()
        self.run = _gpus_inside(self.run, self._ready, job, self._show)
        return job

    def watch(self, job: Job, terminal: Terminal | None) -> None:
        """Measure, and bring the output to log and screen, until the job has ended or a person has detached."""
        if self._is_cluster:
            _stream(job, self._folder, self._show, terminal, lambda: self._herald.look(self.run, self._events()))
            self._ended = job.wait()
            return
        with _sampling(self._ready, job, self.run.gpus) as taken:
            _stream(job, self._folder, self._show, terminal, lambda: self._herald.look(self.run, self._events()))
            if not job.detached:
                self._ended = job.wait()
        self.run = self.run.noting(*([DETACHED] if job.detached else []), *taken.problems)
        if job.detached:
            self._save()

    def interrupted(self) -> None:
        """A signal came before there was a job that could be asked to stop."""
        self._ended = Exit(None, reason="interrupted before it had started")
        if self.job:
            self.job.kill()
            return
        with contextlib.suppress(NgcdlError):
            left = self._ready.engine.find(self.run.id)  # the engine may have made it
            if left:
                left.remove()

    def given_up(self) -> None:
        """A second signal came, and the kill did not end the job: ask once how it stands, and leave it."""
        ended = None
        if self.job:
            with contextlib.suppress(NgcdlError):
                ended = self.job.ended()
        self._is_lost = ended is None
        unknown = f"stopped by {self._stopper.name}, but its end is not confirmed after {KILL_SECONDS:g} s"
        self._ended = ended or Exit(None, reason=unknown)
        if self._is_lost:
            self._show.say(unknown)

    def failed(self, error: Exception) -> None:
        self._is_lost = isinstance(error, EngineLost)
        if isinstance(error, EngineLost) and not self._is_cluster and self.job and self._ready.order.spec.workload:
            error = type(error)(error.doing, is_training=True).with_traceback(error.__traceback__)
        self.trouble = error
        if self.job and not self._is_lost:
            with contextlib.suppress(NgcdlError, Unkillable):
                self.job.kill()
                self._ended = self.job.wait()

    def close(self) -> None:
        """Record how it ended: from the engine, the trainer's events and our own signals."""
        events = list(self._events())
        self.trouble = self.trouble or _gpu_not_met(events, self._ended)
        if self._is_cluster:  # others may have written into its record
            with contextlib.suppress(NgcdlError):
                self.run = self.run.noting(*self._shelf.load(self.run.id).notes)
        self.run = filled(self._closed(events), events, store.samples(self._folder))
        self._herald.look(self.run, events)
        self.run = self.run.noting(*self._herald.told)
        self._diagnose()
        self._is_recorded = self._save("Its record is not up to date; the next ngcdl command closes it.")

    def _diagnose(self) -> None:
        """Record the famous failure that the log or the error tells of, and say it, unless the error's hint does."""
        hint = self.trouble.hint if isinstance(self.trouble, NgcdlError) else ""
        self.run = diagnosed(self.run, self._folder / store.LOG, str(self.trouble or ""))
        if self.run.diagnosis and str(self.run.diagnosis.cause) not in hint:
            self._show.say(told(self.run.diagnosis))

    def _closed(self, events: list[dict[str, object]]) -> Run:
        """Give the run as it ended: status, code and why."""
        run, ended, trouble = self.run, self._ended, self.trouble
        fault = f"{type(trouble).__name__}: {trouble}" if trouble else ended.reason
        reason = trouble.message if isinstance(trouble, NgcdlError) else fault
        code = ended.code
        errors = [event for event in events if event.get("event") == "error"]
        reason = reason or (f"{errors[-1].get('kind')}: {errors[-1].get('message')}" if errors and code != 0 else None)
        has_finished = any(event.get("event") == "finish" for event in events)
        if self._is_lost:
            status = "lost"
        elif self._stopper.signal or (self._stopper.is_late and code != 0):
            status, code, reason = "interrupted", self._stopper.exit_code or code, self._stopper.why
        elif ended.is_stopped or (STOPPED in run.notes and code != 0):
            status, reason = "interrupted", stopped_by(run, ended)
        elif trouble:
            status, code = "failed", trouble.exit_code if isinstance(trouble, NgcdlError) else NgcdlError.exit_code
        elif code != 0 or (ended.oom_killed and run.spec and run.spec.get("workload") and not has_finished):
            status = "failed"
        else:
            status = "finished"
            # what the kernel killed was a try of the search for the largest batch
            reason = None if any(event.get("event") == "oom" for event in events) else reason
        return replace(
            run, status=status, exit_code=code, oom_killed=ended.oom_killed, reason=reason,
            finished=ended.finished or time.time(),
            owner=run.owner if status == "lost" else None,  # reconcile goes on looking for it
        )  # fmt: skip

    def clean_up(self) -> None:
        """Take away what the engine keeps of a job whose end is recorded, and the HOME that nothing was left in."""
        if self.job and self._is_recorded and not self._is_lost:
            self.job.remove()
        with contextlib.suppress(OSError):
            (self._folder / "home").rmdir()

    def _events(self) -> Iterator[dict[str, object]]:
        return store.lines(self._folder / store.EVENTS)

    def _save(self, otherwise: str = "The run goes on; its record is not up to date.") -> bool:
        """A record that can't be written does not stop what runs: it is said, with what comes of it. Was it written?"""
        try:
            self._shelf.save(self.run)
        except StateNotWritable as error:
            self._show.say(f"WARNING: {error.message} {otherwise}")
            return False
        return True


def stopped_by(run: Run, ended: Exit) -> str | None:
    """Say by what a run was stopped that did not end by itself."""
    return "stopped by ngcdl stop" if STOPPED in run.notes else ended.reason


def _gpus_inside(run: Run, ready: Ready, job: Job, show: Show) -> Run:
    """Look for the GPUs in the started container. Raises GpuNotInside where they were demanded and are missing."""
    if ready.order.way == "none" or ready.engine.name == "local" or ready.engine.is_cluster:
        return run
    try:
        inside = job.gpus_inside()
        if inside == ():
            raise GpuNotInside("nvidia-smi lists no card")
    except GpuNotInside as error:
        if ready.order.spec.gpus.demanded:
            raise
        note = f"WARNING: the container sees no GPU and computes on the CPU: {error.message}"
        show.say(note)
        return replace(run, gpus=()).noting(note)
    if inside is None:
        return run.noting("It ended before the GPUs inside could be looked at.")
    return replace(run, gpus=inside)


def _gpu_not_met(events: list[dict[str, object]], ended: Exit) -> GpuNotInside | None:
    """Give the error of a training that ended because its framework saw no GPU and was to compute on one."""
    errors = [event for event in events if event.get("event") == "error"]
    if ended.code != 0 and errors and errors[-1].get("kind") == "no_gpu":
        return GpuNotInside(str(errors[-1].get("message")))
    return None


def _stream(job: Job, folder: Path, show: Show, terminal: Terminal | None, look: Callable[[], None]) -> None:
    """Bring the output to the log and the screen. A log that can't be written is said once; the run goes on.

    `look` is called after each piece of it."""
    output = terminal.pump(job, job.output()) if terminal else job.output()
    with contextlib.ExitStack() as stack:
        log = None
        try:
            log = None if job.started.keeps_log else stack.enter_context((folder / store.LOG).open("ab", buffering=0))
        except OSError as error:
            show.say(f"log.txt can't be written ({error.strerror}); the run goes on without it.")
        for chunk in output:
            if log:
                try:
                    log.write(chunk.data)
                except OSError as error:
                    show.say(f"log.txt can't be written any more ({error.strerror}); the run goes on without it.")
                    log = None
            show.chunk(chunk)
            look()


@contextlib.contextmanager
def _sampling(ready: Ready, job: Job, uuids: tuple[str, ...] | None) -> Iterator[sampler.Sampler]:
    from ngcdl.telemetry import container, gpu_reader, sampler

    pid, is_local = job.started.pid, ready.engine.name == "local"
    usage: container.Meter | None = None
    if pid:
        usage = container.ProcessMeter(pid) if is_local else container.ContainerMeter(pid)
    gpus = None
    if uuids and ready.engine.is_here:
        ours = None if is_local else job.identity
        gpus = gpu_reader.GpuReader(uuids, container_id=ours, pid=pid if is_local else None)
    taken = sampler.Sampler(ready.order.folder / store.SAMPLES, sampler.sources(usage, gpus), SAMPLE_SECONDS)
    taken.start()
    try:
        yield taken
    finally:
        taken.stop()
