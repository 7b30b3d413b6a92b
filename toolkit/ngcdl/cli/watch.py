"""Detached runs: a separate process watches, measures and records them."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ngcdl import console, engines, errors, processes, waiting
from ngcdl.engines.base import Job
from ngcdl.engines.values import Chunk, Order, PullEvent
from ngcdl.errors import BadOption, ContainerLeft, NgcdlError
from ngcdl.given_cards import Need
from ngcdl.record import Run
from ngcdl.running import ending, launch, prepare, stopping, turn
from ngcdl.running.owner import this_process
from ngcdl.running.prepare import Ready
from ngcdl.running.reconcile import MAY_BE_LEFT
from ngcdl.running.signals import Interrupted, signal_of, signals_deferred
from ngcdl.spec import RunSpec
from ngcdl.storing.store import Store

LOOK_SECONDS = 0.2


class Silent:
    """A Show that shows nothing: a watched run's output is in its log.txt, and messages are in its record's notes."""

    def say(self, text: str) -> None: ...

    def pull(self, event: PullEvent) -> None: ...

    def download(self, done_bytes: int, total_bytes: int | None, bytes_per_second: float | None) -> None: ...

    def quiet(self) -> None: ...

    def chunk(self, chunk: Chunk) -> None: ...


class Begun:
    """A Terminal that forwards no input. `pump` is called once the run has started and its GPUs were checked: it then
    reports success to the process that started the watcher."""

    def pump(self, job: Job, output: Iterator[Chunk]) -> Iterator[Chunk]:
        del job
        _answer({})
        return output


def hand_over(ready: Ready, store: Store) -> str:
    """Start a watcher for `ready`, and return the run's id once the run has started and its GPUs were checked, or once
    it waits in line for them.

    If the start fails, close the record and raise the error. The order goes through a pipe, so variables that look
    like secrets are in no file and on no command line.
    """
    order = ready.order
    watcher: subprocess.Popen[bytes] | None = None
    with contextlib.ExitStack() as stack:
        try:
            said = stack.enter_context(tempfile.TemporaryFile(dir=order.folder))
            with signals_deferred():  # else a Ctrl-C during the start leaves a watcher that nobody stops
                watcher = subprocess.Popen(
                    processes.of_ngcdl("ngcdl", "_watch", order.run_id),
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, start_new_session=True,
                )  # fmt: skip
            with waiting.telling(console.say, lambda: "the run to start"):
                answer = _asked(watcher, json.dumps(_letter(ready, store)).encode())
        except (KeyboardInterrupt, Interrupted) as error:
            if watcher:
                with watcher:  # closes its pipes and waits
                    watcher.terminate()
            number = signal_of(error)
            _close_left(store, ready, "interrupted", errors.signal_exit_code(number), "interrupted")
            console.say(f"recorded as {order.run_id}")
            raise
        except OSError as error:  # no process or no file can be made: limits, a full disk
            raise _unwatched(store, ready, f"could not be started: {error.strerror or error}") from error
        if answer is None:
            said.seek(0)
            raise _died(store, ready, watcher.wait(), said.read().decode(errors="replace"))
    if answer:
        raise _error(answer)
    return order.run_id


def _letter(ready: Ready, store: Store) -> dict[str, Any]:
    """Return what _followed needs to follow the run, besides its record."""
    order = ready.order
    return {
        "root": str(store.root), "spec": order.spec.as_json(secrets=True), "target": order.target,
        "way": order.way, "engine": ready.engine.name, "cache": str(order.cache) if order.cache else None,
        "packages": str(order.packages) if order.packages else None,
        "awaits": asdict(ready.awaits) if ready.awaits else None,
    }  # fmt: skip


def _asked(watcher: subprocess.Popen[bytes], letter: bytes) -> dict[str, Any] | None:
    """Send `letter` to the watcher and return its answer: {} if the run has started, else the error; None if the
    watcher died without an answer."""
    assert watcher.stdin is not None  # Popen got PIPE
    assert watcher.stdout is not None
    with contextlib.suppress(BrokenPipeError), watcher.stdin:
        watcher.stdin.write(letter)
    with watcher.stdout:
        has_ended = False
        while not select.select([watcher.stdout], [], [], LOOK_SECONDS)[0]:
            if has_ended:  # the watcher gave no answer; a child that it left behind may hold the pipe open
                return None
            has_ended = watcher.poll() is not None
        try:
            answer: dict[str, Any] = json.loads(watcher.stdout.readline())
        except ValueError:
            return None
        return answer


def _died(store: Store, ready: Ready, code: int, said: str) -> NgcdlError:
    """Close the record of a run after its watcher ended without an answer, and return the error that says so."""
    last = (said.strip().splitlines() or [f"it ended with {code}"])[-1]
    return _unwatched(store, ready, f"ended: {last}")


def _unwatched(store: Store, ready: Ready, what: str) -> NgcdlError:
    """Close the record of a run whose watcher failed, and return the error. `what` says how the watcher failed."""
    reason = f"The process that should watch the run {what}"
    _close_left(store, ready, "failed", NgcdlError.exit_code, reason)
    return NgcdlError(reason, f"    ngcdl show {ready.run.id}")


def _close_left(store: Store, ready: Ready, status: str, code: int, reason: str) -> None:
    """Kill the run if a watcher left it running, and close its record."""
    run = store.load(ready.run.id)
    if run.status != "running":
        return
    known = store.is_known(run)
    closed = run.closed(status, code, reason, time.time())
    try:
        if left := ready.engine.find(run.id):
            left.kill()
            left.remove()
    except ContainerLeft as error:
        closed = closed.noting(error.note)
    except NgcdlError as error:  # with its owner in the record, reconcile looks for the container again
        closed = replace(closed, owner=run.owner)
        console.say(error.message)
        console.say(MAY_BE_LEFT)
    store.save(closed, known)


def _error(answer: dict[str, Any]) -> NgcdlError:
    """Rebuild the error that the watcher reported, with its class, which has the exit code."""
    kind = getattr(errors, answer["kind"], NgcdlError)
    error: NgcdlError = kind.__new__(kind)
    NgcdlError.__init__(error, answer["message"], answer["hint"])
    return error


def _answer(answer: dict[str, Any]) -> None:
    """Report once, on stdout, how the start went, and close that pipe."""
    with contextlib.suppress(OSError):  # nobody reads the pipe any more
        os.write(1, json.dumps(answer).encode() + b"\n")
    console.discard(1)


def watch(argv: list[str]) -> int:
    """Watch the run in `argv`: read the order from stdin, and follow the run to its end."""
    try:
        (run_id,), letter = argv, json.load(sys.stdin)
    except (ValueError, AttributeError) as error:
        raise BadOption("_watch RUN is internal: ngcdl run --detach starts it.") from error
    store = Store(Path(letter["root"]))
    run = replace(store.load(run_id), owner=this_process())
    try:
        store.save(run)
        done = _followed(store, run, letter)
    except NgcdlError as error:
        if (left := store.load(run_id)).status == "running":
            store.save(left.closed("failed", error.exit_code, error.message, time.time()), store.is_known(left))
        _answer({"kind": type(error).__name__, "message": error.message, "hint": error.hint})
        return error.exit_code
    except (KeyboardInterrupt, Interrupted) as error:
        if (left := store.load(run_id)).status == "running":
            ended = ending.before_start(stopping.noted(store, left), signal_of(error))
            store.save(ended, store.is_known(left))
        raise
    return done.exit_code or 0


def _followed(store: Store, run: Run, letter: dict[str, Any]) -> Run:
    folder = store.folder(run.id)
    cache, packages = (Path(letter[name]) if letter.get(name) else None for name in ("cache", "packages"))
    spec = RunSpec.from_json(letter["spec"])
    order = Order(spec, run.id, folder, letter["target"], letter["way"], cache=cache, packages=packages)
    ready = Ready(engines.connect(letter["engine"]), order, run)
    if letter.get("awaits"):
        need = Need(**letter["awaits"])
        with turn.awaited(need, store, Silent().say, in_line=lambda: _answer({})) as cards:
            ready = prepare.with_cards(ready, need, cards)
            store.save(ready.run)
    return launch.follow(ready, store, Silent(), Begun())
