"""What an engine is, and what a job is: the interface that launch builds on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ngcdl.spec import ImageRef, Placement, RunSpec


@dataclass(frozen=True)
class Exit:
    """How a job ended. `code` is None if unknown; `reason` adds what the code alone does not say. `is_stopped`:
    somebody other than this ngcdl ended it, or its time limit did."""

    code: int | None
    oom_killed: bool | None = None
    reason: str | None = None
    finished: float | None = None
    is_stopped: bool = False


@dataclass(frozen=True)
class Chunk:
    """A piece of the job's output, unmodified. `stream` is stdout or stderr; a terminal has stdout only."""

    stream: str
    data: bytes


@dataclass(frozen=True)
class PullEvent:
    """One step of a pull. `layer` is a short id, None for the image as a whole; bytes are None if not reported."""

    layer: str | None
    status: str
    current_bytes: int | None = None
    total_bytes: int | None = None


ShowPull = Callable[[PullEvent], None]


@dataclass(frozen=True)
class LayerStore:
    """The images that an engine holds. `foreign`: why this host can't hand it layers, None if it can.

    `platform` is (os, architecture); `folder` is where it stores images on this host. `chains` maps the digest of each
    image's configuration to its layers' diff IDs (digests of their content), lowest first. `keeps_packed`: it keeps
    layers compressed, as registries serve them."""

    foreign: str | None
    platform: tuple[str, str] = ("linux", "amd64")
    folder: Path | None = None
    chains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keeps_packed: bool = False

    def has(self, layers: Sequence[str]) -> int:
        """Count how many of `layers`, from the lowest up, are here. A layer matches only if all below it match, too:
        https://github.com/opencontainers/image-spec/blob/main/config.md#layer-chainid"""
        pairs = (zip(layers, chain, strict=False) for chain in self.chains.values())
        return max((sum(1 for _ in takewhile(lambda two: two[0] == two[1], chain)) for chain in pairs), default=0)


@dataclass(frozen=True)
class Started:
    """What is known once a job runs, or a cluster has accepted it. `notes` go into the record; `news` are those that
    the caller has not seen on this host before. `pid` is its first process on this host. With `keeps_log`, the engine
    and not launch writes its output to the run's log.txt."""

    notes: tuple[str, ...] = ()
    news: tuple[str, ...] = ()
    pid: int | None = None
    keeps_log: bool = False


class Job(Protocol):
    """One started run. Every method can safely be called twice."""

    identity: str
    started: Started
    detached: bool  # the user typed the terminal's detach keys: the job goes on, its output ends

    def output(self) -> Iterator[Chunk]:
        """Yield what the job writes until it ends or is lost; if the engine dies, stop without an error.

        A job from `find` yields it from the beginning. Raise EngineLost if that is no longer complete."""
        ...

    def write(self, data: bytes) -> None: ...

    def close_input(self) -> None: ...

    def resize(self, rows: int, columns: int) -> None: ...

    def wait(self) -> Exit:
        """Wait for its end and return it. Raise EngineLost if the engine goes away and does not come back."""
        ...

    def ended(self) -> Exit | None:
        """Return how it ended, None while it runs. Raise EngineLost."""
        ...

    def waiting(self) -> str | None:
        """Return why it has not started yet, in the engine's words; None if it has."""
        ...

    def stop(self, grace_seconds: float) -> None:
        """Ask it to end (SIGTERM), and kill it after `grace_seconds`."""
        ...

    def kill(self) -> None: ...

    def gpus_inside(self) -> tuple[str, ...] | None:
        """Return the UUIDs of the GPUs that the job sees, () for none, None if it ended before it could be queried.

        Raise GpuNotInside with what the driver's tool said, GpuUnknown if it could not be queried."""
        ...

    def remove(self) -> None:
        """Delete what the engine keeps of it, once the record is complete."""
        ...


@runtime_checkable
class Interruptible(Protocol):
    """A Job that Ctrl-C can be passed on to."""

    def interrupt(self, grace_seconds: float) -> None:
        """Pass Ctrl-C on (SIGINT), and stop what has not ended after `grace_seconds`."""
        ...


@runtime_checkable
class Piped(Protocol):
    """A Job that writes into our pipes."""

    def hang_up(self, stream: str) -> bool:
        """Close the pipe of `stream`, which nobody reads any more: its next write ends the job as it would without
        ngcdl. Return False if the job is to go on, and is still read."""
        ...


@runtime_checkable
class Unbound(Protocol):
    """A Job whose processes are this host's, in no container."""

    def pids(self) -> frozenset[int]:
        """Return those that run now."""
        ...


class NoInput:
    """The input half of a Job that takes no input."""

    def write(self, data: bytes) -> None:
        del data

    def close_input(self) -> None:
        return

    def resize(self, rows: int, columns: int) -> None:
        del rows, columns


@dataclass(frozen=True)
class GpuWay:
    """How GPUs get into a container. `name` is runtime, device-request, cdi or none; `why` is for people. `described`
    lists the GPUs that CDI describes, as far as known: all, 0, 0:1, GPU-..., MIG-... `is_final`: there is no way, and
    none is worth trying."""

    name: str
    why: str
    described: tuple[str, ...] = ()
    is_final: bool = False


@dataclass(frozen=True)
class Held:
    """An image that an engine has: `id` is the engine's own name for it, `digest` the registry's, None if it has none,
    as one that was built or loaded there."""

    id: str
    digest: str | None = None


@dataclass(frozen=True)
class EngineFacts:
    """What is known about an engine. `images_folder` is where it stores pulled images.

    `cdi_dirs` is empty if CDI is off; `cdi_devices` are those that the engine reports (since Docker 28.2) and those in
    the descriptions in `cdi_dirs`. `is_desktop`: a virtual machine of Docker Desktop.
    """

    version: str | None = None
    name: str | None = None
    architecture: str | None = None  # amd64, arm64
    images_folder: str | None = None
    free_bytes: int | None = None
    default_runtime: str | None = None
    cdi_dirs: tuple[str, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    is_rootless: bool = False
    is_snap: bool = False
    is_desktop: bool = False
    cgroup_driver: str | None = None
    live_restore: bool | None = None
    authorization_plugins: tuple[str, ...] | None = None
    http_proxy: str | None = None  # without a password
    https_proxy: str | None = None
    runc_version: str | None = None
    kernel: str | None = None
    cores: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Order:
    """One start: the spec plus everything it left open. `target` is the image by digest or id, or the local Python;
    `way` is a GpuWay's name; `folder` is the run's, seen inside as RUN_FOLDER. `after`, on a cluster with a queue:
    identities of the jobs that must have ended before this one starts. `cache` is a folder that outlives the run, seen
    inside as CACHE_FOLDER; None if what programs cache there is lost with it."""

    spec: RunSpec
    run_id: str
    folder: Path
    target: str
    way: str
    after: tuple[str, ...] = ()
    cache: Path | None = None


RUN_FOLDER, CACHE_FOLDER = "/ngcdl/run", "/ngcdl/cache"
HERE = "/work"  # the caller's working directory, in an interactive container
# On SIGTERM a training saves a checkpoint at the end of its step.
TRAINING_GRACE_SECONDS, COMMAND_GRACE_SECONDS = 60, 10


def is_planned(container: str) -> bool:
    """Is a mount at this place in the container ngcdl's own? Only the cache's may also have been typed."""
    return container.startswith("/ngcdl/") and container.rstrip("/") != CACHE_FOLDER


def grace_seconds(workload: object) -> float:
    """Return how long a job may take to end before a stop kills it; `workload` is None, or empty, for a command."""
    return TRAINING_GRACE_SECONDS if workload else COMMAND_GRACE_SECONDS


class Engine(Protocol):
    name: str

    @property
    def version(self) -> str: ...

    @property
    def identity(self) -> str | None:
        """What tells this engine from others of its kind; None if there is only one."""
        ...

    @property
    def has_containers(self) -> bool:
        """As in its Kind."""
        ...

    @property
    def is_here(self) -> bool:
        """Does it run on this host, with this host's GPUs and processes?"""
        ...

    @property
    def is_cluster(self) -> bool:
        """As in its Kind."""
        ...

    @property
    def shares_files(self) -> bool:
        """As in its Kind, but False if the engine is another machine's: its containers see no folder of this host."""
        ...

    @property
    def waits_for(self) -> str | None:
        """What `start` is waiting for, where that may take minutes, or hang: the Docker engine to start ..."""
        ...

    def facts(self) -> EngineFacts:
        """Return what it reports about itself and its machine. Raise EngineError."""
        ...

    def gpu_way(self) -> GpuWay: ...

    def placed(self, placement: Placement | None) -> Placement | None:
        """Return where a run goes, with everything left open now chosen; None if there is nothing to choose."""
        ...

    def caller(self) -> str | None:
        """Return the uid:gid under which the caller's files stay the caller's."""
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
        """Return what to start: the image by `digest`; by it alone if the engine does not know it by that name."""
        ...

    def without_image(self, own: RunSpec | None, has_gpu: bool, show: ShowPull | None) -> str:
        """Return what to start without an image: the program of `own`, a command; for a training (None) this host's
        Python, which is installed first if it is missing. Without `show`, only return its path. Raise StartError."""
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


@dataclass(frozen=True)
class Node:
    """A machine that a cluster may choose, as the cluster describes it; what it does not report is None.

    `architecture` is named as images name it: amd64, arm64, ... The node has `gpus` cards of the model `card`: one
    with two models is two of these. `capability` is their compute capability, if reported separately from the name."""

    name: str
    architecture: str | None = None
    driver: str | None = None
    card: str | None = None
    capability: str | None = None
    gpus: int = 0


def architecture(machine: object) -> str | None:
    """Return the name that images have for a machine: amd64 for x86_64, arm64 for aarch64; of others, their own.

    https://go.dev/doc/install/source#environment"""
    if not isinstance(machine, str) or not machine:
        return None
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine.lower(), machine.lower())


@runtime_checkable
class Cluster(Protocol):
    """What an Engine with `is_cluster` knows about its nodes."""

    def nodes(self, placement: Placement, gpus: int) -> tuple[Node, ...]:
        """Return all nodes that may run a job with `gpus` GPUs per node, and perhaps more. Raise EngineError."""
        ...

    def kept_off(self, placement: Placement, bad: Sequence[Node], good: Sequence[Node]) -> Placement | None:
        """Return the placement that keeps a run off the `bad` nodes; None if no placement does. Pure."""
        ...
