"""A run submitted to the stand-in for Kubernetes, and what becomes of its output."""

from __future__ import annotations

import base64
import io
import tarfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from ngcdl.engines.kubernetes import KubernetesEngine
from ngcdl.engines.kubernetes.job import KubernetesJob
from ngcdl.engines.kubernetes.pod_output import BEGIN, END
from ngcdl.engines.values import Chunk, Order
from ngcdl.errors import EngineError
from ngcdl.spec import GpuRequest, ImageRef, Placement, RunSpec

RUN = "20261121-192252-cifar10-beefca"
NAME = f"ngcdl-{RUN}"
IMAGE = ImageRef.parse("pytorch:25.03-py3")


def order(engine: KubernetesEngine, tmp_path: Path, nodes: int = 1, **more: Any) -> Order:
    spec = RunSpec(IMAGE, ("true",), GpuRequest("count", count=1), placement=Placement(nodes=nodes), **more)
    placed = replace(spec, placement=engine.placed(spec.placement))
    return Order(placed, RUN, tmp_path / "runs" / RUN, str(IMAGE), engine.gpu_way().name)


def started(engine: KubernetesEngine, tmp_path: Path, nodes: int = 1) -> KubernetesJob:
    job = engine.start(order(engine, tmp_path, nodes))
    assert isinstance(job, KubernetesJob)
    job.poll_seconds = 0.05
    return job


def record(**files: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name.replace("__", "."))
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return BEGIN + base64.encodebytes(made.getvalue()) + END


class Followed:
    """A job's output, read in its own thread, as launch does, while a test plays the cluster."""

    def __init__(self, job: KubernetesJob) -> None:
        self.chunks: list[Chunk] = []
        self.error: EngineError | None = None
        self._job = job
        self._more = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for chunk in self._job.output():
                with self._more:
                    self.chunks.append(chunk)
                    self._more.notify_all()
        except EngineError as error:
            self.error = error

    def text(self, stream: str = "stdout") -> str:
        return b"".join(chunk.data for chunk in self.chunks if chunk.stream == stream).decode()

    def until(self, text: str, stream: str = "stdout") -> None:
        with self._more:
            assert self._more.wait_for(lambda: text in self.text(stream), 120), f"{text!r} is not in {self.chunks}"

    def end(self) -> str:
        self._thread.join(120)
        assert not self._thread.is_alive(), "the output has no end"
        return self.text()
