"""What an engine is, and what a job is: the seam on which launch stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ngcdl.spec import ImageRef, Placement, RunSpec


@dataclass(frozen=True)
class Exit:
    """How a job ended. `code` None: unknown. `reason` says what the code alone does not. `is_stopped`: it was
    ended by somebody else than this ngcdl, or because its time was over."""

    code: int | None
    oom_killed: bool | None = None
    reason: str | None = None
    finished: float | None = None
    is_stopped: bool = False


@dataclass(frozen=True)
class Chunk:
    """A piece of what the job wrote, as it came: `stream` is stdout or stderr; a terminal has stdout only."""

    stream: str
    data: bytes


@dataclass(frozen=True)
class PullEvent:
    """One step of a pull. `layer` is a short id, None for a line about the whole; bytes are None where not told."""

    layer: str | None
    status: str
    current_bytes: int | None = None
    total_bytes: int | None = None


Show = Callable[[PullEvent], None]


@dataclass(frozen=True)
class LayerStore:
    """What an engine has of images. `foreign`: why layers can't be handed to it from this host, None where they can.

    `platform` is (os, architecture); `folder`, on this host, is where images lie; `chains` has for each image, by the
    digest of its configuration, its layers by the digests of their content, the lowest first. With `keeps_packed` it
    keeps layers as registries have them."""

    foreign: str | None
    platform: tuple[str, str] = ("linux", "amd64")
    folder: Path | None = None
    chains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keeps_packed: bool = False

    def has(self, layers: Sequence[str]) -> int:
        """Count the lowest of `layers` that are here. A layer is, where all below it are the same, too:
        https://github.com/opencontainers/image-spec/blob/main/config.md#layer-chainid"""
        pairs = (zip(layers, chain, strict=False) for chain in self.chains.values())
        return max((sum(1 for _ in takewhile(lambda two: two[0] == two[1], chain)) for chain in pairs), default=0)


@dataclass(frozen=True)
class Started:
    """What is known once a job runs, or a cluster has taken it. Its notes go into the record; `news` are those that the
    caller has not been told on this host before. `pid` is its first process on this host. With `keeps_log` what it
    writes is brought to the run's log.txt by others than us."""

    notes: tuple[str, ...] = ()
    news: tuple[str, ...] = ()
    pid: int | None = None
    keeps_log: bool = False


class Job(Protocol):
    """One started run. Every method may be called twice without harm."""

    identity: str
    started: Started
    detached: bool  # a person typed the way out of the terminal: the job goes on, its output ends

    def output(self) -> Iterator[Chunk]:
        """Give what the job writes until it ends or is lost; a dead engine ends it without an error.

        Of a job that `find` gave: from its beginning. Raises EngineLost where that can't be had whole."""
        ...

    def write(self, data: bytes) -> None: ...

    def close_input(self) -> None: ...

    def resize(self, rows: int, columns: int) -> None: ...

    def wait(self) -> Exit:
        """Give how it ended. Raises EngineLost where the engine does not come back to say."""
        ...

    def ended(self) -> Exit | None:
        """Give how it ended, None while it runs. Raises EngineLost."""
        ...

    def waiting(self) -> str | None:
        """Give why it has not begun yet, in the engine's words; None: it has."""
        ...

    def stop(self, grace_seconds: float) -> None:
        """Ask it to end (SIGTERM), and kill it after `grace_seconds`."""
        ...

    def kill(self) -> None: ...

    def gpus_inside(self) -> tuple[str, ...] | None:
        """Give the UUIDs of the GPUs that the job sees, () for none, None where it ended before it could be asked.

        Raises GpuNotInside with what the driver's tool said, GpuUnknown where it could not be asked."""
        ...

    def remove(self) -> None:
        """Take away what the engine keeps of it, once the record holds everything."""
        ...


class NoInput:
    """What a Job has that nobody can type to."""

    def write(self, data: bytes) -> None:
        del data

    def close_input(self) -> None:
        return

    def resize(self, rows: int, columns: int) -> None:
        del rows, columns


@dataclass(frozen=True)
class GpuWay:
    """How GPUs get into a container: `name` is runtime, device-request, cdi or none; `why` is for people. `described`
    are the GPUs that CDI describes, as far as it is known: all, 0, 0:1, GPU-..., MIG-..."""

    name: str
    why: str
    described: tuple[str, ...] = ()


@dataclass(frozen=True)
class Order:
    """One start: the spec with all that it did not fix. `target` is the image by digest or id, or the local Python;
    `way` a GpuWay's name; `folder` the run's, seen inside as RUN_FOLDER. `after`: identities of the jobs that must have
    ended before this one begins, on a cluster that has a queue (spec.QUEUES)."""

    spec: RunSpec
    run_id: str
    folder: Path
    target: str
    way: str
    after: tuple[str, ...] = ()


RUN_FOLDER = "/ngcdl/run"
HERE = "/work"  # the caller's working directory, in an interactive container
# A training saves a checkpoint on SIGTERM, at the end of its step.
TRAINING_GRACE_SECONDS = 60


class Engine(Protocol):
    name: str

    @property
    def version(self) -> str: ...

    @property
    def identity(self) -> str | None:
        """Which engine it is, among others of its kind; None where there is but one."""
        ...

    @property
    def has_containers(self) -> bool:
        """Does it run images? Else it is this host's own Python."""
        ...

    @property
    def is_here(self) -> bool:
        """Does it run on this host, with this host's GPUs and processes?"""
        ...

    @property
    def is_cluster(self) -> bool:
        """Does it put runs on machines of its own choosing? Their record has no owner then: the run goes on without us,
        and nothing can be looked at, measured or fetched from here."""
        ...

    @property
    def shares_files(self) -> bool:
        """Are folders of this host seen by its containers?"""
        ...

    def gpu_way(self) -> GpuWay: ...

    def placed(self, placement: Placement | None) -> Placement | None:
        """Give where a run goes, with all that was left open chosen; None where there is nothing to choose."""
        ...

    def caller(self) -> str | None:
        """Give the uid:gid under which the caller's files stay the caller's."""
        ...

    def has(self, image: ImageRef) -> str | None:
        """Give the digest (or the id, for an image made here) of an image that is here, else None."""
        ...

    def config(self, image: ImageRef) -> Mapping[str, Any] | None:
        """Give the configuration of an image that is here, as its config blob has it: architecture, config.Env, ..."""
        ...

    def pull(self, image: ImageRef, show: Show, auth: Mapping[str, str] | None = None) -> str:
        """Fetch `image` and give its digest, which was checked. Nothing stale is ever given for it.

        `auth` is {username, password}, None for anonymous."""
        ...

    def layer_store(self) -> LayerStore:
        """Tell what is here of images. Raises EngineError."""
        ...

    def untag(self, image: ImageRef) -> None:
        """Take one name of an image away, and the image where it was the last one. Raises EngineError."""
        ...

    def target(self, image: ImageRef, digest: str) -> str:
        """Name what is started: the image by digest, or by id where it was made on this host."""
        ...

    def without_image(self, has_gpu: bool, show: Show | None) -> str:
        """Name what is started where no image is: this host's Python, made first where it is missing; without `show`
        only where it would be. Raises LocalUnavailable."""
        ...

    def request(self, order: Order) -> dict[str, Any]:
        """Give what `start` would send. Pure."""
        ...

    def command_line(self, order: Order) -> str:
        """Give the command that a person would type for the same, secrets hidden."""
        ...

    def fits(self, order: Order) -> str | None:
        """Give what speaks against it that `order` can ever be placed, None where nothing does; start nothing.

        Raises NotPlaceable where it never can be."""
        ...

    def start(self, order: Order) -> Job: ...

    def find(self, run_id: str) -> Job | None:
        """Give the job of a run that somebody else started, also one that has ended; None where there is none."""
        ...


@dataclass(frozen=True)
class Node:
    """A machine that a cluster may choose, as the cluster tells it; what it does not tell is None.

    `architecture` is amd64 or arm64. It has `gpus` cards that are called `card`: one with two kinds of cards is two of
    these. `capability` is their compute capability, where that is told apart from the name."""

    name: str
    architecture: str | None = None
    driver: str | None = None
    card: str | None = None
    capability: str | None = None
    gpus: int = 0


@runtime_checkable
class Cluster(Protocol):
    """What an Engine with `is_cluster` tells of its nodes."""

    def nodes(self, placement: Placement, gpus: int) -> tuple[Node, ...]:
        """Give all nodes that a run with so many GPUs of each may be put on, and perhaps more. Raises EngineError."""
        ...

    def kept_off(self, placement: Placement, bad: Sequence[Node], good: Sequence[Node]) -> Placement | None:
        """Give the placement by which a run comes to none of the `bad` nodes; None where there is no such. Pure."""
        ...


class NoImages:
    """What an Engine has that keeps no images on this host."""

    def has(self, image: ImageRef) -> str | None:
        del image
        return None

    def config(self, image: ImageRef) -> Mapping[str, Any] | None:
        del image
        return None

    def untag(self, image: ImageRef) -> None:
        del image
