"""Runs that lost their ngcdl: the records it left open, and an engine that kept a container."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from docker_socket import Daemon, serving
from house import House

from ngcdl.folder import EVENTS, LOG
from ngcdl.record import Machine, Owner, Run
from ngcdl.running.reconcile import reconcile
from ngcdl.storing.store import Store

DEAD = Owner(2**22 + 1, 5, "another boot")
RUN = Run("20180216-182126-cifar10-beef", "running", 1.0, engine="local", container="pid:4194305", owner=DEAD)
ELSEWHERE = Machine(hostname="node-7")
STEP = {"event": "step", "t": 5.0, "step": 3, "loss": 4.0}
ENDED = {"Running": False, "ExitCode": 1, "OOMKilled": False, "FinishedAt": "2018-02-16T08:25:08.344427123Z"}
SAID = b"epoch 1\nepoch 2\nRuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB\n"


@pytest.fixture
def house(tmp_path: Path) -> House:
    house = House(tmp_path)
    house.bring_trainer()
    return house


def left(store: Store, run: Run, *events: dict[str, Any]) -> Run:
    """Store a run that is still open and whose trainer wrote `events`; reconcile it, and return the result."""
    folder = store.create(run)
    (folder / EVENTS).write_text("".join(json.dumps(event) + "\n" for event in events))
    found = reconcile(store, run)
    assert store.load(run.id) == found
    assert reconcile(store, found) == found, "once is enough"
    return found


def quiet(store: Store, run: Run, engine_id: str | None = None) -> Run:
    """Store `run` as one of another machine, or of this one under another name, whose files have long not changed."""
    run = replace(run, started=1.0, machine=ELSEWHERE, engine_id=engine_id)
    store.save(run)
    for path in store.folder(run.id).iterdir():
        os.utime(path, (1, 1))
    return run


def frames(data: bytes) -> bytes:
    """Split `data` alternately over stdout and stderr, as in the Engine API."""
    pieces = [data[at : at + 11] for at in range(0, len(data), 11)]
    return b"".join(
        bytes([1 + i % 2, 0, 0, 0]) + len(piece).to_bytes(4, "big") + piece for i, piece in enumerate(pieces)
    )


@pytest.fixture
def unwatched(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Daemon, Run, Path]]:
    """An engine whose container has ended, the run's open record, and its log up to when ngcdl was killed."""
    daemon = Daemon(tmp_path / "docker.sock", info={"ID": "this-one"}, state=ENDED, log=frames(SAID))
    run = replace(RUN, engine="docker", container="c0ffee")
    log = store.create(run) / LOG
    log.write_bytes(b"epoch 1\nep")
    with serving(daemon):
        monkeypatch.setenv("DOCKER_HOST", daemon.host)
        yield daemon, run, log
