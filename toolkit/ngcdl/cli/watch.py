"""Runs that go on without a terminal: a process of its own watches, measures and records them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from ngcdl import engines, launch
from ngcdl.engines.base import Chunk, Order, PullEvent
from ngcdl.errors import BadOption, EngineRefused, NgcdlError
from ngcdl.owner import this_process
from ngcdl.prepare import Ready
from ngcdl.record import Run
from ngcdl.spec import RunSpec
from ngcdl.store import Store

START_SECONDS = 60.0


class Silent:
    """A Show for nobody: what a watched run writes is in its log.txt, and what is said in its record's notes."""

    def say(self, text: str) -> None: ...

    def pull(self, event: PullEvent) -> None: ...

    def download(self, done_bytes: int, total_bytes: int | None, bytes_per_second: float | None) -> None: ...

    def quiet(self) -> None: ...

    def chunk(self, chunk: Chunk) -> None: ...


def hand_over(ready: Ready, shelf: Store) -> str:
    """Start a watcher for `ready` and give the run's id once it runs. Raises EngineRefused where it could not start.

    The order goes through a pipe: variables that look like secrets are in no file and on no command line.
    """
    order = ready.order
    letter = {
        "root": str(shelf.root), "spec": order.spec.as_json(secrets=True), "target": order.target,
        "way": order.way, "engine": ready.engine.name, "uuids": ready.uuids,
    }  # fmt: skip
    watcher = subprocess.Popen(
        [sys.executable, "-m", "ngcdl", "_watch", order.run_id],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    assert watcher.stdin is not None  # PIPE was asked for
    with watcher.stdin:
        watcher.stdin.write(json.dumps(letter).encode())
    run = _once_started(shelf, order.run_id, watcher)
    if run.status == "failed" and run.container is None:
        raise EngineRefused(run.reason or "the run could not be started", f"    ngcdl show {run.id}")
    return run.id


def _once_started(shelf: Store, run_id: str, watcher: subprocess.Popen[bytes]) -> Run:
    end = time.monotonic() + START_SECONDS
    run = shelf.load(run_id)
    while time.monotonic() < end and watcher.poll() is None and run.status == "running" and run.container is None:
        time.sleep(0.05)
        run = shelf.load(run_id)
    return shelf.load(run_id)


def watch(argv: list[str]) -> int:
    """Be the watcher of the run in `argv`: read the order from stdin, and follow the run to its end."""
    try:
        (run_id,), letter = argv, json.load(sys.stdin)
    except (ValueError, AttributeError) as error:
        raise BadOption("_watch RUN is what ngcdl run --detach starts; it is not for typing.") from error
    shelf = Store(Path(letter["root"]))
    run = replace(shelf.load(run_id), owner=this_process())
    shelf.save(run)
    order = Order(RunSpec.from_json(letter["spec"]), run_id, shelf.folder(run_id), letter["target"], letter["way"])
    uuids = None if letter["uuids"] is None else tuple(letter["uuids"])
    try:
        done = launch.follow(Ready(engines.connect(letter["engine"]), order, run, uuids), shelf, Silent())
    except NgcdlError as error:
        if shelf.load(run_id).status == "running":
            shelf.save(replace(run, status="failed", exit_code=error.exit_code, reason=error.message, owner=None))
        return error.exit_code
    return done.exit_code or 0
