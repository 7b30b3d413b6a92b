"""`ngcdl stop`: stops a run or a comparison, or all that have not ended."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from functools import partial

from ngcdl import console, waiting
from ngcdl.cli import lookup, terminal
from ngcdl.cli.shown import how_it_ended
from ngcdl.errors import BadOption, NgcdlError
from ngcdl.record import Run
from ngcdl.report.measured import naming
from ngcdl.running import stopping
from ngcdl.running.owner import has_runner
from ngcdl.running.reconcile import reconcile
from ngcdl.storing import comparisons
from ngcdl.storing.comparisons import StoredComparison
from ngcdl.storing.store import Store
from ngcdl.terminal_text import table

_AT_ONCE = 16  # runs that are stopped at the same time: each may take its grace period, and asks its engine
_LOOKED_AT = 100  # `stop` without a name looks for running ones among this many of the newest runs


def stop(name: str | None, everything: bool, yes: bool) -> int:
    """Stop the run or the comparison that `name` means, or all; return 125 if some may go on, else 0. Raise BadOption,
    and of what was named also NoSuchRun, NoSuchComparison, EngineError, RunElsewhere or RunOfOthers."""
    store = lookup.open_store()
    if everything:
        if name is not None:
            raise BadOption("Name a run, or say --all, and only one of the two.", f"    ngcdl stop {name}")
        return _stop_all(store, yes)
    if name is None:
        raise _which(store)
    if comparisons.is_named(name, store):
        from ngcdl.cli import compare

        compare.stop(name)
    else:
        _stop(store, lookup.id_of(name, store))
    return 0


def _stop(store: Store, run_id: str) -> Run:
    """Stop a run, say how it ended, and return it."""
    run = reconcile(store, store.load(run_id))
    if run.status == "running":
        run = stopping.stopped(store, run)
        console.say(f"{run.id}: {how_it_ended(run)}")
    else:
        console.say(f"{run.id} has already ended: {how_it_ended(run)}")
    return run


def _stop_all(store: Store, yes: bool) -> int:
    """Stop all runs and comparisons that have not ended, on whatever engine or host, after one question."""
    if not (yes or terminal.is_here()):
        hint = "What would be stopped:\n    ngcdl runs\nWithout a question:\n    ngcdl stop --all --yes"
        raise BadOption("Nothing was stopped: there is no terminal to ask on.", hint)
    running = lookup.running(store, store.ids())
    going = [one for one in comparisons.stored(store) if _goes_on(store, one, {run.id for run in running})]
    if not (running or going):
        console.say("nothing is running")
        return 0
    rows = [("RUN", "ENGINE", "WHAT"), *((run.id, _where(run), naming.what(run)) for run in running)]
    for line in table(rows, console.columns(sys.stdout)) if running else ():
        console.result(line)
    for one in going:
        console.result(f"the comparison {one.id}")
    if not yes and not terminal.agreed("Stop all of them?" if len(running) + len(going) > 1 else "Stop it?"):
        console.say("nothing was stopped")
        return 0
    ids, left = [run.id for run in running], list[str]()
    for one in going:  # first: else each would start its next run as soon as one has ended
        try:
            ids += stopping.left(store, comparisons.stop(one, store))
            console.say(f"{one.id}: no further run of it starts")
        except NgcdlError as error:
            console.show_error(error)
            left.append(one.id)
    first = [run.id for run in running if run.is_waiting]  # else they would start on the cards of the others
    left += _left(store, first) + _left(store, [run_id for run_id in dict.fromkeys(ids) if run_id not in first])
    if left:
        console.say(f"not stopped: {', '.join(left)}")
    return NgcdlError.exit_code if left else 0


def _left(store: Store, ids: Sequence[str]) -> list[str]:
    """Stop runs at the same time, and return those that may go on."""
    left = []
    for start in range(0, len(ids), _AT_ONCE):
        stops = {run_id: waiting.Later(partial(_stop, store, run_id)) for run_id in ids[start : start + _AT_ONCE]}
        for run_id, stop in stops.items():
            try:
                left += [run_id] if stop.result().status == "running" else []
            except NgcdlError as error:
                console.show_error(error)
                left.append(run_id)
    return left


def _goes_on(store: Store, kept: StoredComparison, running: set[str]) -> bool:
    """Return whether a comparison may start another run."""
    is_led = has_runner(store, kept) or any(trial.run in running for trial in kept.trials)
    return is_led and kept.finished is None and not stopping.is_over(store, kept)


def _where(run: Run) -> str:
    """Name a run's engine, and the cluster or the other host that it is on."""
    host = run.machine.hostname
    if run.kind.is_cluster:
        return f"{run.engine} {run.engine_id or ''}"
    return f"{run.engine} on {host}" if host not in (None, socket.gethostname()) else str(run.engine)


def _which(store: Store) -> BadOption:
    """Return the error for `ngcdl stop` without a name, with the line that stops each running run."""
    running = lookup.running(store, store.ids()[:_LOOKED_AT])
    lines = "\n".join(f"    ngcdl stop {run.id}" for run in running)
    match running:
        case []:
            return BadOption("stop: which run? None is running.", "    ngcdl runs")
        case [run]:
            return BadOption(f"stop: which run? One is running: {naming.what(run)}.", lines)
        case _:
            all_of_them = "All of them:\n    ngcdl stop --all"
            return BadOption(f"stop: which run? {len(running)} are running.", f"{lines}\n{all_of_them}")
