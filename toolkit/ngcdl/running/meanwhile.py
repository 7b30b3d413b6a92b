"""What ngcdl does while a run starts and runs: checks the GPUs and whether they are used, copies the output to log and
screen, and samples."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from ngcdl import waiting
from ngcdl.engines.base import Job, Piped, SeesGpus, Unbound
from ngcdl.engines.values import Chunk
from ngcdl.errors import GpuError, GpuNotInside, GpuUnknown
from ngcdl.folder import LOG, SAMPLES, lines, opened
from ngcdl.frozen import dataclass
from ngcdl.hostfacts import has_our_cards
from ngcdl.planning.show import Show
from ngcdl.record import Run
from ngcdl.report.measured.case import is_interactive
from ngcdl.report.measured.idle import are_idle, are_shared
from ngcdl.running.prepare import Ready
from ngcdl.spec import GpuRequest

if TYPE_CHECKING:
    from ngcdl.telemetry import sampler, sampler_process
    from ngcdl.telemetry.kernel_log import CardError, KernelLog

# log.txt stops growing when only this much of its disk is free, or a twentieth of the disk if that is less. The free
# space is read whenever the log has grown by LOOK_BYTES.
LEFT_BYTES, LOOK_BYTES = 1 << 30, 16 << 20
HUNG_UP = "so the command's is closed now, too, as without ngcdl; log.txt has what came until then."
GOES_ON = "the run goes on, log.txt has all of it. To end it:  ngcdl stop {}"
SHARED_SECONDS = 3.0  # a container that has just ended may be on the card still
SHARED = (
    "others compute on {which}, too, which costs it memory and time. Who it is, and how to wait for a free card:\n"
    "    ngcdl gpu\n    ngcdl run ... {wait}"
)
IDLE_SECONDS = 60.0  # a command loads its packages and data before it uses its GPU
IDLE = (
    "in its first {seconds:.0f} s the command has left {which} idle (0 % busy, no memory taken): "
    "is it computing on the CPU?"
)
UNUSED_GPU = "WARNING: the run had a GPU, but its framework saw none: it computed on the CPU."


class Terminal(Protocol):
    """The caller's terminal or stdin, while it is connected to the container."""

    def pump(self, job: Job, output: Iterator[Chunk]) -> Iterator[Chunk]: ...


class Herald:
    """Reports at once if a training with device "auto" computes on the CPU although it was given a GPU."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self._is_known = False
        self.told: tuple[str, ...] = ()

    def look(self, run: Run, events: Iterable[dict[str, object]]) -> None:
        """Check whether the trainer has reported its device; once it has, `events` is not read any more."""
        workload = run.workload
        if self._is_known or not run.gpus or workload.get("device") != "auto":
            return
        for event in events:
            if event.get("event") == "start":
                self._is_known = True
                if event.get("device") == "cpu":
                    self.told = (UNUSED_GPU,)
                    self._show.say(UNUSED_GPU)


def gpus_inside(run: Run, ready: Ready, job: Job, show: Show) -> Run:
    """Check which GPUs the started container sees, and return the run with these GPUs. If GPUs were explicitly
    requested, raise GpuError if some of them are missing, GpuNotInside if all are.

    The run keeps the GPUs that it was given if this can't be checked, and also if the container sees other GPUs besides
    them, which WSL does not prevent."""
    if ready.order.way == "none" or not isinstance(job, SeesGpus):
        return run
    try:
        with waiting.telling(show.say, lambda: "nvidia-smi in the container"):
            inside = job.gpus_inside()
        if inside == ():
            raise GpuNotInside("nvidia-smi lists no card")
    except GpuNotInside as error:
        if ready.order.spec.gpus.demanded:
            raise
        note = f"WARNING: the container sees no GPU and computes on the CPU: {error.why}. ngcdl doctor says more."
        show.say(note)
        return replace(run, gpus=()).noting(note)
    except GpuUnknown as error:
        show.say(error.message)
        return run.noting(error.message)
    if inside is None:
        return run.noting("It ended before the GPUs inside could be checked.")
    return _with_seen(run, inside, ready.order.spec.gpus, show)


def _with_seen(run: Run, inside: tuple[str, ...], asked: GpuRequest, show: Show) -> Run:
    """Return the run with the GPUs that its container sees; with a warning if they are fewer, or others too. Raise
    GpuError if GPUs were explicitly requested, and some of them are missing."""
    given = len({*(run.gpus or asked.devices)}) or asked.count  # 0,GPU-... may name one card twice
    if given and len(inside) < given:
        few = f"nvidia-smi in the container lists fewer GPUs than the run was given, {len(inside)} instead of {given}."
        if asked.demanded:
            raise GpuError(few, "The run was stopped. What the driver reports:\n    ngcdl gpu\n    ngcdl doctor")
        show.say(f"WARNING: {few}")
        run = run.noting(f"WARNING: {few}")
    wanted = len(asked.devices) or asked.count
    if wanted is None or len(inside) <= wanted:
        return replace(run, gpus=inside)
    named = [name for name in run.gpus or asked.devices if "-" in name]
    its = tuple(uuid for uuid in inside if any(map(uuid.startswith, named))) or run.gpus
    whose = f"the run's are {', '.join(its)}" if its else "which of them are the run's is not known"
    note = f"nvidia-smi in the container lists more GPUs than requested, {len(inside)} instead of {wanted}: {whose}."
    show.say(note)
    return replace(run, gpus=its).noting(note)


def stream(job: Job, folder: Path, show: Show, terminal: Terminal | None, look: Callable[[], None]) -> str | None:
    """Copy the job's output to log.txt and the screen, and call `look` after each chunk. Return why the log is
    incomplete, None if it is complete.

    If the log can't be written, say so once, write no more of it, and let the run go on. If nobody reads stdout or
    stderr any more, say so once, too: this may end a command, but never a training."""
    output = terminal.pump(job, job.output()) if terminal else job.output()
    log: Log | None = None
    why: str | None = None
    unread: set[str] = set()

    def give_up(error: OSError, more: str = "") -> None:
        nonlocal log, why
        log, why = None, str(error.strerror)
        show.say(f"log.txt can't be written{more} ({why}); the run goes on without it.")

    with contextlib.ExitStack() as stack:
        try:
            if not job.started.keeps_log:
                log = Log(stack.enter_context(opened(folder / LOG, to_extend=True, buffering=0)))
        except OSError as error:
            give_up(error)
        for chunk in output:
            if log:
                try:
                    log.write(chunk.data)
                except OSError as error:
                    give_up(error, " any more")
            try:
                show.chunk(chunk)
            except BrokenPipeError:
                if chunk.stream not in unread:
                    unread.add(chunk.stream)
                    is_closed = isinstance(job, Piped) and job.hang_up(chunk.stream)
                    show.say(f"{chunk.stream} is closed; {HUNG_UP if is_closed else GOES_ON.format(folder.name)}")
            look()
        return why


class Log:
    """An unbuffered file that grows until the disk is nearly full: a program gone wild (`yes`) must not take the space
    that checkpoints, records and everything else on this machine need."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._unlooked_bytes = 0

    def write(self, data: bytes) -> None:
        """Write all of `data`. Raise OSError."""
        self._unlooked_bytes += len(data)
        if self._unlooked_bytes >= LOOK_BYTES:
            self._unlooked_bytes = 0
            disk = os.fstatvfs(self._file.fileno())
            size_bytes, free_bytes = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
            if free_bytes < min(LEFT_BYTES, size_bytes // 20):
                raise OSError(errno.ENOSPC, f"only {free_bytes >> 20:,} MiB are left on its disk")
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) :]


@contextlib.contextmanager
def without_cards(ready: Ready, job: Job, show: Show) -> Iterator[Callable[[Run], Run]]:
    """Watch whether a run that has no container, and was to have no card, computes on a card of this host. Yield a
    function that adds what was seen to the run's record: a note, and these cards as the run's own."""
    from ngcdl.telemetry import unexpected_use

    spec = ready.order.spec
    is_to_have_none = spec.gpus.kind == "none" and not spec.workload  # a training is told its device, and reports it
    if not isinstance(job, Unbound) or not is_to_have_none or not ready.run.machine.gpus:
        yield lambda run: run
        return
    with unexpected_use.UnexpectedUse(job.pids, show.say) as seen:
        yield lambda run: replace(run, gpus=seen.uuids).noting(seen.told) if seen.told else run


@contextlib.contextmanager
def watched_cards(
    ready: Ready, run: Run, show: Show, seconds: tuple[float, float] = (SHARED_SECONDS, IDLE_SECONDS)
) -> Iterator[None]:
    """Say once if others compute on the cards that a command was given, and if it has left these idle: when this is
    looked for, in `seconds` after its start."""
    spec, uuids = ready.order.spec, run.gpus or ()
    is_for_gpus = spec.gpus.demanded or ready.engine.has_containers  # auto gives cards to any command on this host
    if spec.workload or is_interactive(run) or not (is_for_gpus and uuids and has_our_cards(ready.engine)):
        yield
        return

    early = max(seconds[0], 1.5 * spec.sample_seconds)
    late = max(early, seconds[1])
    which = "its GPU" if len(uuids) == 1 else f"its {len(uuids)} GPUs"

    def watch(over: threading.Event) -> None:
        if not over.wait(early) and are_shared(lines(ready.order.folder / SAMPLES), uuids):
            show.say(SHARED.format(which=which, wait="--wait" if spec.gpus.demanded else "--gpus 1 --wait"))
        due = seconds[1] / spec.sample_seconds
        if not over.wait(late - early) and are_idle(lines(ready.order.folder / SAMPLES), uuids, due):
            show.say(IDLE.format(seconds=seconds[1], which=which))

    with waiting.alongside(watch, "ngcdl-watched-cards"):
        yield


@contextlib.contextmanager
def card_errors(ready: Ready, run: Run, kernel: KernelLog | None) -> Iterator[Callable[[], tuple[CardError, ...]]]:
    """Yield a function that returns the errors of the run's cards that the kernel has logged since the block began; ()
    if the cards are unknown, or their errors not in this kernel's log."""
    uuids = run.gpus if ready.engine.is_here else None
    if not uuids:
        yield tuple
        return
    from ngcdl.telemetry.kernel_log import KernelLog

    with kernel or KernelLog() as log:
        cards = log.whole(uuids)
        yield lambda: log.errors_of(cards)


@dataclass(frozen=True)
class Unmeasured:
    """Stands in for the sampler if the run is on a machine that can't be measured from here."""

    problems: tuple[str, ...] = ("The engine is on another machine: nothing was measured there.",)


@contextlib.contextmanager
def sampling(
    ready: Ready, job: Job, uuids: tuple[str, ...] | None
) -> Iterator[sampler_process.SamplerProcess | sampler.Sampler | Unmeasured]:
    from ngcdl.telemetry import card_samples, sampler, sampler_process, usage

    has_cards = has_our_cards(ready.engine)
    if not has_cards and ready.run.machine.hostname != socket.gethostname():
        yield Unmeasured()
        return
    pid, is_local = job.started.pid, not ready.engine.has_containers
    meter: usage.Meter | None = None
    if pid:
        meter = usage.ProcessMeter(pid) if is_local else usage.ContainerMeter(pid)
    path, seconds = ready.order.folder / SAMPLES, ready.order.spec.sample_seconds
    taken: sampler_process.SamplerProcess | sampler.Sampler
    if uuids and has_cards:
        run = card_samples.RunProcesses(uuids, None if is_local else job.identity, pid if is_local else None)
        taken = sampler_process.SamplerProcess(path, meter, run, seconds)
    else:
        taken = sampler.Sampler(path, sampler.sources(meter), seconds)
    with taken:
        yield taken
