"""What an engine is, and what a job is: the seam on which launch stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ngcdl.spec import ImageRef, RunSpec


@dataclass(frozen=True)
class Exit:
    """How a job ended. `code` None: unknown. `reason` says what the code alone does not."""

    code: int | None
    oom_killed: bool | None = None
    reason: str | None = None
    finished: float | None = None


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
class Started:
    """What is known once a job runs. Its notes go into the record; `news` are those that the caller has not been told
    on this host before. `pid` is its first process on this host."""

    notes: tuple[str, ...] = ()
    news: tuple[str, ...] = ()
    pid: int | None = None


class Job(Protocol):
    """One started run. Every method may be called twice without harm."""

    identity: str
    started: Started
    detached: bool  # a person typed the way out of the terminal: the job goes on, its output ends

    def output(self) -> Iterator[Chunk]:
        """Give what the job writes until it ends or is lost; a dead engine ends it without an error."""
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

    def stop(self, grace_seconds: float) -> None:
        """Ask it to end (SIGTERM), and kill it after `grace_seconds`."""
        ...

    def kill(self) -> None: ...

    def gpus_inside(self) -> tuple[str, ...] | None:
        """Give the UUIDs of the GPUs that the job sees, () for none, None where it ended before it could be asked.

        Raises GpuNotInside with what the driver's tool said."""
        ...

    def remove(self) -> None:
        """Take away what the engine keeps of it, once the record holds everything."""
        ...


@dataclass(frozen=True)
class GpuWay:
    """How GPUs get into a container: `name` is runtime, device-request, cdi or none; `why` is for people."""

    name: str
    why: str


@dataclass(frozen=True)
class Order:
    """One start: the spec with all that it did not fix. `target` is the image by digest or id, or the local Python;
    `way` a GpuWay's name; `folder` the run's, seen inside as RUN_FOLDER."""

    spec: RunSpec
    run_id: str
    folder: Path
    target: str
    way: str


RUN_FOLDER = "/ngcdl/run"


class Engine(Protocol):
    name: str

    @property
    def version(self) -> str: ...

    @property
    def identity(self) -> str | None:
        """Which engine it is, among others of its kind; None where there is but one."""
        ...

    @property
    def is_here(self) -> bool:
        """Does it run on this host, with this host's GPUs and processes?"""
        ...

    @property
    def shares_files(self) -> bool:
        """Are folders of this host seen by its containers?"""
        ...

    def gpu_way(self) -> GpuWay: ...

    def caller(self) -> str | None:
        """Give the uid:gid under which the caller's files stay the caller's."""
        ...

    def has(self, image: ImageRef) -> str | None:
        """Give the digest (or the id, for an image made here) of an image that is here, else None."""
        ...

    def pull(self, image: ImageRef, show: Show, auth: Mapping[str, str] | None = None) -> str:
        """Fetch `image` and give its digest, which was checked. Nothing stale is ever given for it.

        `auth` is {username, password}, None for anonymous."""
        ...

    def target(self, image: ImageRef, digest: str) -> str:
        """Name what is started: the image by digest, or by id where it was made on this host."""
        ...

    def request(self, order: Order) -> dict[str, Any]:
        """Give what `start` would send. Pure."""
        ...

    def command_line(self, order: Order) -> str:
        """Give the command that a person would type for the same, secrets hidden."""
        ...

    def start(self, order: Order) -> Job: ...

    def find(self, run_id: str) -> Job | None:
        """Give the job of a run that somebody else started, also one that has ended; None where there is none."""
        ...
