"""`ngcdl runs`, `show`, `logs`, `stop`: what the records say."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator

from ngcdl import console, engines
from ngcdl.cli import kept
from ngcdl.cli.shown import how_it_ended, show_summary
from ngcdl.console import NOT_AVAILABLE, measured, number
from ngcdl.ending import STOPPED
from ngcdl.errors import NgcdlError, NoLog, RecordBroken, RunElsewhere
from ngcdl.folder import EXIT, LOG, opened
from ngcdl.owner import is_alive
from ngcdl.reconcile import reconcile, training
from ngcdl.record import Run
from ngcdl.spec import USED_BY
from ngcdl.store import Store

NEWEST = 20
FOLLOW_SECONDS = 0.3
FIRST_ASK_SECONDS, ASK_SECONDS = 0.5, 15.0  # a cluster's controller is everybody's
STOP_SECONDS = 60  # a training saves a checkpoint first
COMMAND_STOP_SECONDS = 10.0


def runs(as_json: bool, everything: bool = False) -> None:
    """List the newest runs, or all. A record that can't be read is named on stderr and hides no other."""
    shelf, found = kept.shelf(), []
    ids = shelf.ids()
    shown = ids if everything or as_json else ids[:NEWEST]
    with kept.asking() as away:
        for run_id in shown:
            try:
                found.append(kept.with_figures(shelf, reconcile(shelf, shelf.load(run_id), away)))
            except NgcdlError as error:
                console.show_error(error)
    if as_json:
        console.result_json([run.as_json() for run in found])
        return
    if not found:
        console.say(f"there are no runs in {shelf.root} yet:  ngcdl run --train cifar10")
        return
    rows: list[tuple[str, ...]] = [("RUN", "STATUS", "ON", "DATA", "STEPS", "EXAMPLES/S", "CPU", "GPU", "IMAGE")]
    silent = {run.id: seconds for run in found if (seconds := kept.silence(shelf, run))}
    rows += [_row(run, silent.get(run.id)) for run in found]
    for line in console.table(rows, console.columns(sys.stdout)):
        console.result(line)
    for run in found:
        if run.id in silent:
            kept.say_silence(run, silent[run.id])
    if len(ids) > len(shown):
        console.say(f"{len(ids) - len(shown)} older ones:  ngcdl runs --all")


def _row(run: Run, silent_seconds: float | None) -> tuple[str, ...]:
    figures = run.summary
    status = run.status if run.exit_code in (0, None) else f"{run.status} {run.exit_code}"
    status += f", {kept.in_words(silent_seconds)}" if silent_seconds else ""
    return (
        run.id,
        status,
        run.device or NOT_AVAILABLE,
        run.dataset or "-",
        NOT_AVAILABLE if figures.steps is None else str(figures.steps),
        measured(figures.examples_per_second),
        number(figures.cpu_percent_mean, 0, "%"),
        number(figures.gpu_percent_mean, 0, "%"),
        _short(run.image.reference or f"({run.engine})"),
    )


def _short(reference: str) -> str:
    """tensorflow:18.01-py2, or pytorch@sha256:8a90117865db...: what a row has room for."""
    name, at, digest = reference.rpartition("/")[2].partition("@")
    return f"{name}@{digest[:19]}..." if at else name


def show(name: str, as_json: bool) -> None:
    """Show one run. Raises NoSuchRun or RecordBroken."""
    shelf = kept.shelf()
    with kept.asking() as away:
        run = reconcile(shelf, shelf.load(shelf.find(name)), away)
    if as_json:
        console.result_json(kept.with_figures(shelf, run).as_json())
        return
    show_summary(shelf, run)
    if seconds := kept.silence(shelf, run):
        kept.say_silence(run, seconds)
    kept.say_how_to_go_on(shelf, run)


def logs(name: str, follow: bool) -> None:
    """Print log.txt as it was written; with `follow` until the run has ended. Raises NoLog."""
    shelf = kept.shelf()
    run_id = shelf.find(name)
    path = shelf.folder(run_id) / LOG
    stream = console.result_stream()
    try:
        with opened(path) as file:
            for run in _standing(shelf, run_id):
                while data := file.read(65536):
                    stream.write(
                        console.plain(data.decode("utf-8", "replace")).encode() if sys.stdout.isatty() else data
                    )
                stream.flush()
                if not follow or run.status != "running":
                    return
    except FileNotFoundError as error:
        raise NoLog(run_id) from error
    except OSError as error:
        if error.filename is None:  # stdout took nothing more
            raise
        raise RecordBroken(path, error.strerror or str(error)) from error


def _standing(
    shelf: Store, run_id: str, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Run]:
    """Give a run as it stands, every FOLLOW_SECONDS. A cluster, which also brings the log then, is asked after pauses
    that grow, and at once where the run's end was written."""
    ended, due, pause = None, clock(), FIRST_ASK_SECONDS
    while True:
        run, before = shelf.load(run_id), ended
        with contextlib.suppress(OSError):
            ended = (shelf.folder(run_id) / EXIT).stat().st_mtime_ns
        if run.engine not in USED_BY or ended != before or clock() >= due:
            run = reconcile(shelf, run)
            pause = FIRST_ASK_SECONDS if ended != before else pause
            due, pause = clock() + pause, min(pause * 1.5, ASK_SECONDS)
        yield run
        sleep(FOLLOW_SECONDS)


def _stop_process(shelf: Store, run: Run) -> None:
    """End a training of the local engine that nobody watches: SIGTERM, and SIGKILL if it does not listen."""
    end = time.monotonic() + STOP_SECONDS
    number: int | None = signal.SIGTERM
    while pid := training(shelf, run):
        if number:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number)
        number = signal.SIGKILL if time.monotonic() > end else None
        time.sleep(FOLLOW_SECONDS)


def stop(name: str) -> None:
    """Ask a run to stop: its watcher, or where that has gone its container. Raises RunElsewhere."""
    shelf = kept.shelf()
    run = reconcile(shelf, shelf.load(shelf.find(name)))
    if run.status != "running":
        console.say(f"{run.id} has ended already: {how_it_ended(run)}")
        return
    if run.owner is None and run.engine not in USED_BY:
        console.say(f"{run.id} was started by {run.engine}, not by ngcdl, and is stopped there: docker compose stop")
        return
    if run.owner and is_alive(run.owner):
        os.kill(run.owner.pid, signal.SIGTERM)
    elif run.engine == "docker" or run.engine in USED_BY:
        engine = engines.connect(run.engine)
        if run.engine_id not in (None, engine.identity):
            raise RunElsewhere(run.id, run.engine, str(run.engine_id), engine.identity)
        job = engine.find(run.id)
        if job:
            shelf.save(run.noting(STOPPED))
            job.stop(STOP_SECONDS if run.workload else COMMAND_STOP_SECONDS)
    else:
        _stop_process(shelf, run)
    for now in _standing(shelf, run.id):
        if now.status != "running" or (now.owner and not is_alive(now.owner)):
            console.say(f"{now.id}: {how_it_ended(now)}")
            return
