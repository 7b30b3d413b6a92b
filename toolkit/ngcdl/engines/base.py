"""What an engine is, and what a job is: the interface that launch builds on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from ngcdl.engines.values import Chunk, EngineFacts, Exit, GpuWay, Held, LayerStore, Node, Order, ShowPull, Started
from ngcdl.spec import ImageRef, Placement, RunSpec


class Line(Protocol):
    """What a keyboard, or a pipe, can be connected to."""

    def write(self, data: bytes) -> None: ...

    def close_input(self) -> None: ...

    def resize(self, rows: int, columns: int) -> None: ...


class Job(Line, Protocol):
    """One started run. Every method can safely be called twice."""

    identity: str
    started: Started
    detached: bool  # the user typed the terminal's detach keys: the job goes on, its output ends

    def output(self) -> Iterator[Chunk]:
        """Yield what the job writes until it ends or is lost; if the engine dies, stop without an error.

        A job from `find` yields it from the beginning. Raise EngineLost if that is no longer complete."""
        ...

    def wait(self) -> Exit:
        """Wait until the job has ended and return how. Raise EngineLost if the engine goes away for good."""
        ...

    def ended(self) -> Exit | None:
        """Return how the job ended, None while it runs. Raise EngineLost."""
        ...

    def waiting(self) -> str | None:
        """Return why the job has not started yet, in the engine's words; None if it has."""
        ...

    def stop(self, grace_seconds: float) -> None:
        """Ask the job to end (SIGTERM), and kill it after `grace_seconds`."""
        ...

    def kill(self) -> None: ...

    def remove(self) -> None:
        """Delete what the engine keeps of the job, once the record is complete. Raise EngineError if it is left."""
        ...


@runtime_checkable
class SeesGpus(Protocol):
    """A Job that can be asked which GPUs it sees."""

    def gpus_inside(self) -> tuple[str, ...] | None:
        """Return the UUIDs of the GPUs that the job sees, () for none, None if it ended before it could be queried.

        Raise GpuNotInside with what the driver's tool said, GpuUnknown if it could not be queried."""
        ...


@runtime_checkable
class Interruptible(Protocol):
    """A Job that signals can be passed on to."""

    def interrupt(self, grace_seconds: float) -> None:
        """Pass Ctrl-C on (SIGINT), and stop what has not ended after `grace_seconds`."""
        ...

    def pass_on(self, number: int) -> None:
        """Send a signal to the job's first process; it is no error if that has ended."""
        ...


class Visit(Line, Protocol):
    """A command that was started in a run's container, beside the run's own."""

    def output(self) -> Iterator[Chunk]:
        """Yield what the command writes until it ends. Raise StartError if it could not be started."""
        ...

    def pass_on(self, number: int) -> None:
        """Send a signal to the command and what it started. Raise EngineError."""
        ...

    def leave(self, number: int) -> None:
        """Read no more of its output, and send it a signal. Raise EngineError."""
        ...

    def wait(self) -> Exit:
        """Wait until the command has ended and return how; `reason` says so if its run ended. Raise EngineError."""
        ...


@runtime_checkable
class Enterable(Protocol):
    """A Job in whose container further commands can be started from here."""

    def enter(self, command: Sequence[str], tty: bool) -> Visit:
        """Start `command` as the job's own was: as its user, in its folder, with its variables. Raise EngineError."""
        ...


@runtime_checkable
class EnteredBy(Protocol):
    """A Job in whose container, or on whose node, another program starts further commands."""

    def way_in(self, command: Sequence[str], placement: Mapping[str, Any]) -> str:
        """Return the lines to type for that; `placement` is the run's, as its record has it."""
        ...


@runtime_checkable
class Tailed(Protocol):
    """A Job whose engine gives the end of its output alone."""

    def last(self, lines: int) -> Iterator[Chunk]:
        """Yield the last `lines` of what the job has written, then what it writes until it ends. Raise EngineLost."""
        ...


@runtime_checkable
class Piped(Protocol):
    """A Job that writes into our pipes."""

    def hang_up(self, stream: str) -> bool:
        """Close our end of the job's `stream`, because nobody reads what we pass on: the job's next write to it then
        ends the job, as it would without ngcdl. Return False if the job, and reading its output, must go on."""
        ...


@runtime_checkable
class Unbound(Protocol):
    """A Job whose processes are this host's, in no container."""

    def pids(self) -> frozenset[int]:
        """Return the PIDs of its processes that run now."""
        ...


@runtime_checkable
class OutlivesEngine(Protocol):
    """A Job that may go on while its engine is away. `say` shows when the engine stops answering and answers again."""

    say: Callable[[str], None]

    def absences(self) -> str | None:
        """Return a note on the engine's absences that are over; None if there was none."""
        ...


class Unconnected:
    """What a Job answers that ngcdl is not connected to: it takes no input."""

    def write(self, data: bytes) -> None:
        del data

    def close_input(self) -> None:
        return

    def resize(self, rows: int, columns: int) -> None:
        del rows, columns


# On SIGTERM a training saves a checkpoint at the end of its step.
TRAINING_GRACE_SECONDS, COMMAND_GRACE_SECONDS = 60, 10


def grace_seconds(workload: object) -> float:
    """Return how long a job may take to end before a stop kills it; `workload` is None, or empty, for a command."""
    return TRAINING_GRACE_SECONDS if workload else COMMAND_GRACE_SECONDS


class Engine(Protocol):
    name: str

    @property
    def version(self) -> str: ...

    @property
    def identity(self) -> str | None:
        """What distinguishes this engine from others of its kind; None if there is only one."""
        ...

    @property
    def has_containers(self) -> bool:
        """As in its Kind."""
        ...

    @property
    def is_here(self) -> bool:
        """Whether the engine runs on this host, with this host's GPUs and processes."""
        ...

    @property
    def is_cluster(self) -> bool:
        """As in its Kind."""
        ...

    @property
    def shares_files(self) -> bool:
        """As in its Kind, but False if the engine is on another machine: its containers see no folder of this host."""
        ...

    @property
    def waits_for(self) -> str | None:
        """What `start` is waiting for, if that may take minutes or hang: the Docker engine to start the container."""
        ...

    def facts(self) -> EngineFacts:
        """Return what the engine reports about itself and its machine. Raise EngineError."""
        ...

    def gpu_way(self) -> GpuWay: ...

    def placed(self, placement: Placement | None) -> Placement | None:
        """Return the placement with everything chosen that was left open; None if there is nothing to choose."""
        ...

    def caller(self) -> str | None:
        """Return the uid:gid with which a run's files belong to the caller; None if they do anyway."""
        ...

    def has(self, image: ImageRef) -> Held | None:
        """Return what identifies an image that is here, None if it is not here."""
        ...

    def config(self, image: ImageRef) -> Mapping[str, Any] | None:
        """Return the configuration of an image that is here, as in its config blob: architecture, config.Env, ..."""
        ...

    def pull(self, image: ImageRef, show: ShowPull, auth: Mapping[str, str] | None = None) -> str:
        """Pull `image` and return its verified digest, never a stale one.

        `auth` is {username, password}, None for anonymous."""
        ...

    def layer_store(self) -> LayerStore:
        """Return the images that are here. Raise EngineError."""
        ...

    def untag(self, image: ImageRef) -> None:
        """Remove one name of an image, and the image with its last name. Raise EngineError."""
        ...

    def target(self, image: ImageRef, digest: str) -> str:
        """Return the reference to start: the image's name with `digest`, or `digest` alone if the engine does not know
        the image by that name."""
        ...

    def without_image(self, own: RunSpec | None, has_gpu: bool, show: ShowPull | None) -> str:
        """Return the program to start without an image: that of the command `own`; for a training (`own` None) this
        host's Python with TensorFlow, which is installed first if it is missing. Without `show`, install nothing. Raise
        StartError."""
        ...

    def request(self, order: Order) -> dict[str, Any]:
        """Return what `start` would send. Pure."""
        ...

    def command_line(self, order: Order) -> str:
        """Return the command that a person would type to the same effect, secrets hidden."""
        ...

    def fits(self, order: Order) -> str | None:
        """Return a reason why `order` may never be placed, None if there is none. Start nothing.

        Raise NotPlaceable if it can never be placed."""
        ...

    def start(self, order: Order) -> Job: ...

    def find(self, run_id: str) -> Job | None:
        """Return the job of a run that another process started, even one that has ended; None if there is none."""
        ...


@runtime_checkable
class Selective(Protocol):
    """An Engine whose trainings compute with a framework that it installs on this host."""

    def why_unfit(self, capability: str | None, driver: str | None) -> str | None:
        """Say why that framework can't use a card with this compute capability and driver; None if it can, or if that
        is not known."""
        ...


@runtime_checkable
class SharesCpus(Protocol):
    """An Engine whose jobs have hardly any processors unless they ask for them."""

    def with_cpus(self, placement: Placement, gpus: int) -> Placement:
        """Return the placement with processors for each of a job's `gpus` GPUs on a node, unless they were typed: the
        share that each node that may take it has. Raise EngineError."""
        ...


@runtime_checkable
class Cluster(Protocol):
    """What an Engine with `is_cluster` knows about its nodes."""

    def nodes(self, placement: Placement, gpus: int) -> tuple[Node, ...]:
        """Return all nodes that may run a job with `gpus` GPUs per node, and perhaps more. Raise EngineError."""
        ...

    def kept_off(self, placement: Placement, bad: Sequence[Node], good: Sequence[Node]) -> Placement | None:
        """Return the placement that keeps a run off the `bad` nodes; None if no placement does. Pure."""
        ...
