"""`ngcdl runs`, `show` and `wait`: lists and shows what the records say, and waits for runs."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence

from ngcdl import console
from ngcdl.cli import listed, lookup
from ngcdl.cli.shown import how_it_ended, show_summary
from ngcdl.errors import BadOption, NgcdlError
from ngcdl.record import Run
from ngcdl.running import silence
from ngcdl.running.reconcile import Obstacles, reconcile, standing
from ngcdl.storing.store import Store

NEWEST = 20  # runs that are listed without --all


def runs(as_json: bool, everything: bool = False) -> None:
    """List the newest runs, or all. An unreadable record is named on stderr and hides no other."""
    store, found = lookup.open_store(), []
    ids = store.ids()
    shown = ids if everything or as_json else ids[:NEWEST]
    with lookup.asking() as obstacles:
        for run_id in shown:
            try:
                found.append(lookup.with_figures(store, reconcile(store, store.load(run_id), obstacles)))
            except NgcdlError as error:
                console.show_error(error)
    if as_json:
        console.result_json([run.as_json() for run in found])
        return
    if not found:
        console.say(f"there are no runs in {store.root} yet:  ngcdl run --train cifar10")
        return
    silent = {run.id: seconds for run in found if (seconds := silence.silent_seconds(run, store.folder(run.id)))}
    said = {run.id: _standing(_share(run, store), silent.get(run.id)) for run in found}
    for line in listed.table(found, said, ids, console.columns(sys.stdout), time.time()):
        console.result(line)
    if any(lookup.RECENT in run.notes for run in found):
        console.say(f"* {lookup.RECENT}")
    for run in found:
        if run.id in silent:
            console.say(silence.with_advice(run, silent[run.id]))
    if len(ids) > len(shown):
        console.say(f"{len(ids) - len(shown)} older runs:  ngcdl runs --all")


def _share(run: Run, store: Store) -> int | None:
    """Return which part of its steps a run that goes on has done, in percent; None if that is unknown."""
    from ngcdl.cli import live

    return live.read(run, store.folder(run.id), time.time()).percent if run.status == "running" else None


def _standing(percent: int | None, silent_seconds: float | None) -> str:
    """Return what the list says after `running`."""
    share = "" if percent is None else f" {percent} %"
    return share if silent_seconds is None else f"{share}, {silence.in_words(silent_seconds)}"


def show(name: str, as_json: bool, watch_seconds: float | None = None) -> None:
    """Show one run; with `watch_seconds`, show what it does now, at that interval, until it ends. Raise NoSuchRun or
    RecordBroken."""
    store = lookup.open_store()
    if watch_seconds is not None:
        from ngcdl.cli import live

        live.watch(store, lookup.id_of(name, store), watch_seconds, as_json)
        return
    with lookup.asking() as obstacles:
        run = reconcile(store, store.load(lookup.id_of(name, store)), obstacles)
    if as_json:
        console.result_json(lookup.with_figures(store, run).as_json())
        return
    show_summary(store, run)
    if seconds := silence.silent_seconds(run, store.folder(run.id)):
        console.say(silence.with_advice(run, seconds))
    lookup.say_how_to_go_on(store, run)


def wait(names: Sequence[str], everything: bool) -> int:
    """Wait until these runs have ended, or all that go on now, and say how each did. Return the exit code of the first
    of them that failed, else 0. Raise BadOption, NoSuchRun or RecordBroken."""
    if everything and names:
        raise BadOption("Name runs, or say --all, and only one of the two.", f"    ngcdl wait {shlex.join(names)}")
    store = lookup.open_store()
    if everything:
        ids = [run.id for run in lookup.running(store, store.ids()[::-1])]
        console.say(f"waiting for {', '.join(ids)}" if ids else "nothing is running")
    else:
        ids = lookup.each(names or ["last"], lambda name: lookup.id_of(name, store))
    codes = [_waited(store, run_id) for run_id in dict.fromkeys(ids)]
    return next(filter(None, codes), 0)


def _waited(store: Store, run_id: str) -> int:
    from ngcdl.cli.run import exit_code

    obstacles, is_told = Obstacles(), False
    states = standing(store, run_id, obstacles=obstacles)
    while (run := next(states)).status == "running":
        for error in () if is_told else obstacles.errors:
            console.say(lookup.unheard(error))
            is_told = True
    console.say(f"{run.id}: {how_it_ended(run)}")
    return exit_code(run)
