"""The local engine, orders for it, and its jobs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ngcdl.engines import local
from ngcdl.engines.values import Order
from ngcdl.spec import RunSpec

Start = Callable[..., local.LocalJob]


@pytest.fixture
def engine(tmp_path: Path) -> local.LocalEngine:
    return local.LocalEngine(tmp_path / "share", tmp_path / "runs")


def own(*words: str, **spec: object) -> RunSpec:
    return replace(RunSpec(None, words), **spec)  # type: ignore[arg-type]  # fields of a RunSpec


def order(folder: Path, *command: str, **spec: object) -> Order:
    return Order(own("python", *command, **spec), "run-1", folder, sys.executable, "none")


@pytest.fixture
def start(engine: local.LocalEngine, tmp_path: Path) -> Iterator[Start]:
    jobs: list[local.LocalJob] = []

    def started(code: str, *argv: str, **spec: object) -> local.LocalJob:
        job = engine.start(order(tmp_path, "-c", code, *argv, **spec))
        assert isinstance(job, local.LocalJob)
        jobs.append(job)
        return job

    yield started
    for job in jobs:
        job.remove()  # a test that failed leaves files open, which the next one would be blamed for


def read(job: local.LocalJob) -> dict[str, bytes]:
    found = {"stdout": b"", "stderr": b""}
    for chunk in job.output():
        found[chunk.stream] += chunk.data
    return found
