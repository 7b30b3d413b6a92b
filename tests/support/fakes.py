"""A scripted engine and job: the protocols of engines/base.py without Docker and without a process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ngcdl.engines.base import Engine, Job
from ngcdl.engines.values import Chunk, EngineFacts, Exit, GpuWay, Held, LayerStore, Order, PullEvent, ShowPull, Started
from ngcdl.errors import ContainerLeft, NgcdlError
from ngcdl.record import Run
from ngcdl.running.owner import this_process
from ngcdl.running.prepare import Ready
from ngcdl.spec import GpuRequest, ImageRef, Placement, RunSpec, Workload
from ngcdl.storing.store import Store

IMAGE = ImageRef.parse("tensorflow:18.01-py2")


@dataclass
class FakeJob:
    """Write `chunks`, calling those that are callables, and end with `exit` (raised if it is an error).

    With `until_stopped` it runs until stop() or kill(), and ends with 143 or 137. `asked` records the calls.
    """

    chunks: Sequence[bytes | Callable[[], None]] = (b"step 0\n",)
    exit: Exit | NgcdlError = field(default_factory=lambda: Exit(0, False, None, 50.0))
    gpus: tuple[str, ...] | NgcdlError | None = ()
    until_stopped: bool = False
    ignores_stop: bool = False
    started: Started = field(default_factory=Started)
    identity: str = "c0ffee"
    detached: bool = False
    pending: str | None = None
    asked: list[str] = field(default_factory=list)
    ending: threading.Event = field(default_factory=threading.Event)

    def output(self) -> Iterator[Chunk]:
        for chunk in self.chunks:
            if callable(chunk):
                chunk()
            else:
                yield Chunk("stdout", chunk)
        if self.until_stopped:
            assert self.ending.wait(120), "nobody stopped it"

    def write(self, data: bytes) -> None:
        self.asked.append(f"write {data!r}")

    def close_input(self) -> None:
        self.asked.append("close_input")

    def resize(self, rows: int, columns: int) -> None:
        self.asked.append(f"resize {rows} {columns}")

    def wait(self) -> Exit:
        if isinstance(self.exit, NgcdlError):
            raise self.exit
        return self.exit

    def ended(self) -> Exit | None:
        return self.wait()

    def waiting(self) -> str | None:
        return self.pending

    def stop(self, grace_seconds: float) -> None:
        self.asked.append(f"stop {grace_seconds:g}")
        if not self.ignores_stop:
            self._end(143)

    def interrupt(self, grace_seconds: float) -> None:
        self.asked.append(f"interrupt {grace_seconds:g}")
        if not self.ignores_stop:
            self._end(130)

    def pass_on(self, number: int) -> None:
        self.asked.append(f"signal {number}")

    def kill(self) -> None:
        self.asked.append("kill")
        self._end(137)

    def _end(self, code: int) -> None:
        if not isinstance(self.exit, NgcdlError):
            self.exit = Exit(code, False, None, 50.0)
        self.ending.set()

    def gpus_inside(self) -> tuple[str, ...] | None:
        if isinstance(self.gpus, NgcdlError):
            raise self.gpus
        return self.gpus

    def remove(self) -> None:
        self.asked.append("remove")


class LeftJob(FakeJob):
    """A job whose container Docker does not remove."""

    def remove(self) -> None:
        raise ContainerLeft(self.identity, "Docker said: device or resource busy.")


@dataclass
class FakeEngine:
    """Starts `job`; if that is an error, or `at_start` raises one, start() raises it."""

    job: FakeJob | NgcdlError
    name: str = "docker"
    version: str = "29.1.0"
    identity: str | None = "7TWA:KOZU"
    is_here: bool = True
    is_cluster: bool = False
    has_containers: bool = True
    shares_files: bool = True
    waits_for: str | None = None
    at_start: Callable[[], None] = lambda: None
    pulled: str | NgcdlError = "sha256:" + "0" * 64
    auths: list[Mapping[str, str] | None] = field(default_factory=list)

    def facts(self) -> EngineFacts:
        return EngineFacts()

    def gpu_way(self) -> GpuWay:
        return GpuWay("runtime", "the runtime nvidia is there")

    def placed(self, placement: Placement | None) -> Placement | None:
        return placement

    def caller(self) -> str | None:
        return "1000:1000"

    def has(self, image: ImageRef) -> Held | None:
        return None

    def config(self, image: ImageRef) -> Mapping[str, Any] | None:
        return None

    def pull(self, image: ImageRef, show: ShowPull, auth: Mapping[str, str] | None = None) -> str:
        self.auths.append(auth)
        if isinstance(self.pulled, NgcdlError):
            raise self.pulled
        show(PullEvent(None, "Pulling"))
        return self.pulled

    def layer_store(self) -> LayerStore:
        return LayerStore("the engine is a fake")

    def untag(self, image: ImageRef) -> None: ...

    def without_image(self, own: RunSpec | None, has_gpu: bool, show: ShowPull | None) -> str:
        return "python3"

    def target(self, image: ImageRef, digest: str) -> str:
        return image.pinned(digest)

    def request(self, order: Order) -> dict[str, Any]:
        return {}

    def command_line(self, order: Order) -> str:
        return ""

    def fits(self, order: Order) -> str | None:
        return None

    def start(self, order: Order) -> Job:
        self.at_start()
        if isinstance(self.job, NgcdlError):
            raise self.job
        return self.job

    def find(self, run_id: str) -> Job | None:
        return None if isinstance(self.job, NgcdlError) or "remove" in self.job.asked else self.job


@dataclass
class FakeShow:
    """Collects what is shown: `said` lines, `shown` bytes, until nobody reads that stream."""

    said: list[str] = field(default_factory=list)
    shown: bytes = b""
    unread: tuple[str, ...] = ()

    def say(self, text: str) -> None:
        self.said.append(text)

    def pull(self, event: PullEvent) -> None:
        self.said.append(event.status)

    def download(self, done_bytes: int, total_bytes: int | None, bytes_per_second: float | None) -> None: ...

    def quiet(self) -> None: ...

    def begins(self, what: str) -> None: ...

    def chunk(self, chunk: Chunk) -> None:
        if chunk.stream in self.unread:
            raise BrokenPipeError
        self.shown += chunk.data


def ready(
    store: Store, job: FakeJob | NgcdlError, gpus: str = "none", train: bool = True, way: str = "", **engine: Any
) -> tuple[Ready, Path]:
    """Record a run as running; return it with its folder, ready for launch.follow."""
    workload = Workload("cifar10") if train else None
    spec = RunSpec(IMAGE, ("python",), GpuRequest.parse(gpus), workload=workload)
    run = Run("20180216-182126-test-beef", "running", 1.0, engine="docker", spec=spec.as_json(), owner=this_process())
    folder = store.create(run)
    way = way or ("none" if gpus == "none" else "runtime")
    order = Order(spec, run.id, folder, IMAGE.pinned("sha256:" + "0" * 64), way)
    fake: Engine = FakeEngine(job, **engine)
    return Ready(fake, order, run), folder
