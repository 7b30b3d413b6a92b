"""Runs followed by launch.follow on a fake engine, and what the trainer wrote in them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from fakes import FakeJob, FakeShow, ready

from ngcdl.errors import NgcdlError
from ngcdl.folder import EVENTS
from ngcdl.record import Run
from ngcdl.running import launch
from ngcdl.storing.store import Store

START = {"event": "start", "t": 1.0, "dataset": "synthetic", "device": "cpu", "dataset_note": "no network"}
STEP = {"event": "step", "t": 2.0, "step": 0, "loss": 4.68}
FINISH = {"event": "finish", "t": 3.0, "step": 1, "seconds": 2.0}


def follow(store: Store, job: FakeJob | NgcdlError, *events: dict[str, Any], **how: Any) -> tuple[Run, FakeShow]:
    """Follow a run whose trainer wrote `events`; return what was recorded and shown."""
    prepared, folder = ready(store, job, **how)
    (folder / EVENTS).write_text("".join(json.dumps(event) + "\n" for event in events))
    show = FakeShow()
    run = launch.follow(prepared, store, show)
    assert store.load(run.id) == run
    assert run.owner is None
    return run, show


def recorded(store: Store) -> Run:
    return store.load(store.find("last"))


def by_signal(*numbers: int) -> Callable[[], None]:
    """Return a function that sends these signals to this process in turn."""

    def send() -> None:
        for number in numbers:
            os.kill(os.getpid(), number)

    return send
