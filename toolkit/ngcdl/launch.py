"""One run, from start to recorded end, however it ends. Nothing else makes a run happen.

Start, sample, stream, and close the record: after an exit, an error, Ctrl-C, SIGTERM or a lost engine.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ngcdl import store
from ngcdl.engines.base import Chunk, Exit, Job
from ngcdl.errors import EngineLost, GpuNotInside, NgcdlError, StateNotWritable, signal_exit_code
from ngcdl.interrupt import Interrupted, Stopper
from ngcdl.prepare import Ready
from ngcdl.record import Run
from ngcdl.store import Store

if TYPE_CHECKING:
    from ngcdl.telemetry import container, sampler

# A training saves a checkpoint on SIGTERM, at the end of its step.
TRAINING_GRACE_SECONDS = 60.0
GRACE_SECONDS = 10.0
SAMPLE_SECONDS = 1.0
DETACHED = "Detached by Ctrl-P Ctrl-Q; nothing was measured from then on."
UNUSED_GPU = "WARNING: the run had a GPU, but its framework saw none: it computed on the CPU."


class Herald:
    """Says at once when a training that was free to choose computes on the CPU, although it was given a GPU."""

    def __init__(self, folder: Path, show: Show) -> None:
        self._folder, self._show = folder, show
        self._is_known = False
        self.told: tuple[str, ...] = ()

    def look(self, run: Run) -> None:
        """Look whether the trainer has said what it computes on; cheap, and nothing once it has."""
        workload = (run.spec or {}).get("workload") or {}
        if self._is_known or not run.gpus or workload.get("device") != "auto":
            return
        for event in store.lines(self._folder / store.EVENTS):
            if event.get("event") == "start":
                self._is_known = True
                if event.get("device") == "cpu":
                    self.told = (UNUSED_GPU,)
                    self._show.say(UNUSED_GPU)


class Show(Protocol):
    """Where a run tells what it does and writes."""

    def say(self, text: str) -> None: ...

    def chunk(self, chunk: Chunk) -> None: ...


def follow(ready: Ready, shelf: Store, show: Show, terminal: Terminal | None = None) -> Run:
    """Start what is ready and see it through. Gives the closed record; raises NgcdlError after closing it.

    A person who detaches from a terminal gets the record as it is, running; reconcile closes it later.
    """
    run, folder = ready.run, ready.order.folder
    stopper = Stopper(TRAINING_GRACE_SECONDS if ready.order.spec.workload else GRACE_SECONDS)
    trouble: Exception | None = None
    ended = Exit(None)
    job: Job | None = None
    problems: tuple[str, ...] = ()
    herald = Herald(folder, show)
    with stopper.listening():
        try:
            job = ready.engine.start(ready.order)
            stopper.job = job
            for note in job.started.news:
                show.say(note)
            run = replace(run, container=job.identity).noting(*job.started.notes)
            _save(shelf, run, show)
            run = _gpus_inside(run, ready, job, show)
            with _sampling(ready, job, run.gpus) as taken:
                _stream(job, folder, show, terminal, lambda: herald.look(run))
                if not job.detached:
                    ended = job.wait()
            problems = taken.problems
            if job.detached:
                run = run.noting(DETACHED, *problems)
                _save(shelf, run, show)
                return run
            _gpu_was_met(folder, ended)
        except Interrupted:
            ended = Exit(None, reason="interrupted before it had started")
            if job:
                job.kill()
            else:
                _remove_unstarted(ready)
        except Exception as error:  # a fault of ngcdl too leaves nothing running, and no record open
            trouble = error
            if job and not isinstance(error, EngineLost):
                job.kill()
                ended = _quietly(job)
        run = _closed(run, ended, stopper, trouble, folder).noting(*problems)
        herald.look(run)
        run = run.noting(*herald.told)
        _save(shelf, run, show)
    if job and not isinstance(trouble, EngineLost):
        job.remove()
    _tidy(folder)
    if trouble:
        raise trouble
    if stopper.signal and job is None:
        raise Interrupted(stopper.signal)
    return run


def _remove_unstarted(ready: Ready) -> None:
    """Take away what the engine may have made before the interruption."""
    with contextlib.suppress(NgcdlError):
        left = ready.engine.find(ready.run.id)
        if left:
            left.remove()


class Terminal(Protocol):
    """The caller's stdin, while the container has it; `raw`: it is a terminal, and Ctrl-C a byte of it."""

    raw: bool

    def pump(self, job: Job, output: Iterator[Chunk]) -> Iterator[Chunk]: ...


def _gpus_inside(run: Run, ready: Ready, job: Job, show: Show) -> Run:
    """Look for the GPUs in the started container. Raises GpuNotInside where they were demanded and are missing."""
    if ready.order.way == "none" or ready.engine.name == "local":
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


def _gpu_was_met(folder: Path, ended: Exit) -> None:
    """Raise GpuNotInside where the training ended because its framework saw no GPU and was to compute on one."""
    errors = [event for event in store.lines(folder / store.EVENTS) if event.get("event") == "error"]
    if ended.code != 0 and errors and errors[-1].get("kind") == "no_gpu":
        raise GpuNotInside(str(errors[-1].get("message")))


def _stream(job: Job, folder: Path, show: Show, terminal: Terminal | None, look: Callable[[], None]) -> None:
    """Bring the output to the log and the screen. A log that can't be written is said once; the run goes on.

    `look` is called after each piece of it."""
    output = terminal.pump(job, job.output()) if terminal else job.output()
    with contextlib.ExitStack() as stack:
        log = None
        try:
            log = stack.enter_context((folder / store.LOG).open("ab", buffering=0))
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


def _quietly(job: Job) -> Exit:
    try:
        return job.wait()
    except NgcdlError:
        return Exit(None)


def _closed(run: Run, ended: Exit, stopper: Stopper, trouble: Exception | None, folder: Path) -> Run:
    """Give the run as it ended: status, code and why, from the engine, the trainer's events and our own signals."""
    events = list(store.lines(folder / store.EVENTS))
    run = with_events(run, folder)
    fault = f"{type(trouble).__name__}: {trouble}" if trouble else ended.reason
    reason = trouble.message if isinstance(trouble, NgcdlError) else fault
    code = ended.code
    errors = [event for event in events if event.get("event") == "error"]
    if errors and code != 0:
        reason = reason or f"{errors[-1].get('kind')}: {errors[-1].get('message')}"
    if isinstance(trouble, EngineLost):
        status = "lost"
    elif stopper.signal:
        status, code = "interrupted", signal_exit_code(stopper.signal)
        reason = f"stopped by {stopper.name}"
    elif trouble:
        status, code = "failed", trouble.exit_code if isinstance(trouble, NgcdlError) else NgcdlError.exit_code
    elif ended.code != 0 or (ended.oom_killed and run.spec and run.spec.get("workload") and not _has(events, "finish")):
        status = "failed"
    else:
        status = "finished"
    finished = ended.finished or time.time()
    return replace(
        run, status=status, exit_code=code, oom_killed=ended.oom_killed, reason=reason, finished=finished,
        owner=run.owner if status == "lost" else None,  # reconcile goes on looking for it
    )  # fmt: skip


def _has(events: list[dict[str, object]], kind: str) -> bool:
    return any(event.get("event") == kind for event in events)


def with_events(run: Run, folder: Path) -> Run:
    """Give `run` with what its trainer and its samples say."""
    from ngcdl.report import figures

    events = list(store.lines(folder / store.EVENTS))
    starts = [event for event in events if event.get("event") == "start"]
    if starts:
        last = starts[-1]
        run = replace(run, dataset=figures.text(last.get("dataset")), device=figures.text(last.get("device")))
        run = replace(run, dataset_note=run.dataset_note or figures.text(last.get("dataset_note")))
    return replace(run, summary=figures.summary(events, store.lines(folder / store.SAMPLES)))


def _save(shelf: Store, run: Run, show: Show) -> None:
    """A record that can't be written does not stop what runs: it is said, and the run goes on."""
    try:
        shelf.save(run)
    except StateNotWritable as error:
        show.say(f"WARNING: {error.message} The run goes on; its record is not up to date.")


def _tidy(folder: Path) -> None:
    """Take away the HOME that nothing was left in."""
    with contextlib.suppress(OSError):
        (folder / "home").rmdir()
