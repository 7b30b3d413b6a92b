"""`ngcdl run`: prepares, starts and shows what was typed."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from ngcdl import console, settings, trainings
from ngcdl.cli import project, typed_container
from ngcdl.cli.advice import advised
from ngcdl.cli.screen import Screen
from ngcdl.cli.typed import Typed, again, parsed, words_of
from ngcdl.engines.values import Order
from ngcdl.errors import NgcdlError
from ngcdl.folder import HOME
from ngcdl.planning.asked import Asked
from ngcdl.record import Run
from ngcdl.running import ending, hostfolders, launch, meanwhile, prepare, sources, stopping, turn
from ngcdl.running.context import Context
from ngcdl.running.owner import this_process
from ngcdl.running.signals import Interrupted, signal_of
from ngcdl.spec import kind_of
from ngcdl.storing.store import Store

_LOOKED_AT = 20  # among this many of the newest runs records are looked for that were left open
_NO_PYTHON = "this image has no python: take one of TensorFlow or PyTorch"


def run(typed: Typed) -> int:
    """Run what was typed and return the exit code. Raise NgcdlError."""
    config = settings.load()
    store = Store(config.runs)
    screen = Screen(output_to_stderr=typed.json, is_training=bool(typed.train))
    typed = project.filled(typed_container.with_files(typed))
    asked = replace(parsed(typed, config, store), takes_wait=True)
    _check_reach(typed, asked)
    with advised(typed, asked):
        if typed.dry_run:
            return dry_run(asked, config, store, screen, typed.json)
        return carry_out(asked, config, store, screen, detach=typed.detach, as_json=typed.json)[0]


def _check_reach(typed: Typed, asked: Asked) -> None:
    """Say so if the command is a server for a browser that none could reach in its container."""
    if not (typed.command and asked.own and asked.image) or kind_of(typed.engine).is_cluster:
        return
    from ngcdl.cli import served

    if words := served.reachable(words_of(typed)):
        console.say(f"no port is published: no browser reaches {typed.command[0]} in its container.\n{again(words)}")


def carry_out(
    asked: Asked, config: settings.Settings, store: Store, screen: Screen, *, detach: bool, as_json: bool
) -> tuple[int, str]:
    """Prepare, start and show what was asked for. Return the exit code and the run's id. Raise NgcdlError."""
    reconcile_last(store)
    with screen, no_open_record(store):
        ready = prepare.prepare(asked, Context(config, store, screen), is_left=detach)
        if detach:
            run_id = _left(ready, store, screen)
            if as_json:
                console.result_json(store.load(run_id).as_json())
            else:
                watch = f"ngcdl show {run_id}" if ready.awaits else f"ngcdl logs -f {run_id}"
                if not (ready.awaits or ready.engine.is_cluster):
                    watch += f"\n    ngcdl show {run_id} --watch 1"  # a script may print nothing
                waits = f"; it waits for {turn.cards(ready.awaits)}" if ready.awaits else ""
                console.say(f"detached{waits}. Watch it, or stop it:\n    {watch}\n    ngcdl stop {run_id}")
                console.result(run_id)  # last: if it can't be written, the run has been named all the same
            return 0, run_id
        terminal = _terminal(ready, screen)
        done = _followed(ready, store, screen, terminal)
    if done.status == "running":
        lines = f"    ngcdl logs -f {done.id}\n    ngcdl stop {done.id}"
        console.say(f"detached; it keeps running as {done.id}. Watch it, or stop it:\n{lines}")
        return 0, done.id
    if as_json:
        console.result_json(done.as_json())
    elif done.workload:
        from ngcdl.cli.shown import show_summary

        console.result("")
        show_summary(store, done)
        _next_step(done, store)
        _question(done, asked)
    else:
        from ngcdl.cli.shown import say_after_command

        say_after_command(store, done)
    return exit_code(done) or (NgcdlError.exit_code if screen.is_lost else 0), done.id


def _left(ready: prepare.Ready, store: Store, screen: Screen) -> str:
    """Start the run detached, on its cluster or with a watcher process, and return its id."""
    if ready.engine.is_cluster:
        return launch.follow(ready, store, screen, leave=True).id
    from ngcdl.cli.watch import hand_over

    return hand_over(ready, store)


@contextlib.contextmanager
def no_open_record(store: Store) -> Iterator[None]:
    """If a signal arrives before launch handles signals, close the record that was already created."""
    try:
        yield
    except (KeyboardInterrupt, Interrupted) as error:
        number = signal_of(error)
        for run_id in store.ids()[:_LOOKED_AT]:
            with contextlib.suppress(NgcdlError):
                run = store.load(run_id)
                if run.status == "running" and run.owner == this_process():
                    store.save(ending.before_start(stopping.noted(store, run), number))
        raise


def _next_step(done: Run, store: Store) -> None:
    """Say what to type after a training that did not reach its end."""
    from ngcdl.cli import lookup

    lookup.say_how_to_go_on(store, done)
    if done.exit_code in (126, 127) and not done.diagnosis:  # an engine's client ends so, too, if nothing could start
        console.say(_NO_PYTHON)


def _question(done: Run, asked: Asked) -> None:
    """After a finished training whose workload names what to vary, say which comparison answers its question."""
    if not asked.workload or asked.placement or done.status != "finished":
        return
    if trainings.bundled(asked.workload.name).vary:
        image = f"{done.image.reference} " if asked.image else ""  # with the tag, which may not have been typed
        console.say(f"its question: ngcdl compare {image}--train {asked.workload.name}")


def exit_code(done: Run) -> int:
    """Return the run's own exit code; 125 if there is none, or if 0 would hide that the run failed (out of memory
    inside)."""
    if done.exit_code is None or (done.status == "failed" and done.exit_code == 0):
        return NgcdlError.exit_code
    return done.exit_code


def _followed(ready: prepare.Ready, store: Store, screen: Screen, terminal: meanwhile.Terminal | None) -> Run:
    try:
        return launch.follow(ready, store, screen, terminal)
    except NgcdlError as error:
        if ready.order.spec.workload:
            console.say(f"recorded as {ready.run.id}")
        if ready.order.spec.workload and error.exit_code in (126, 127):
            console.say(_NO_PYTHON)
        raise


def _terminal(ready: prepare.Ready, screen: Screen) -> meanwhile.Terminal | None:
    from ngcdl.cli.terminal import UNREAD, Pipe, RawTerminal, is_piped_into

    spec = ready.order.spec
    if spec.stdin:
        return RawTerminal() if spec.tty else Pipe()
    if ready.engine.has_containers and not spec.workload and is_piped_into():
        screen.say(UNREAD)
    return None


def dry_run(asked: Asked, config: settings.Settings, store: Store, screen: Screen, as_json: bool) -> int:
    """Print what a person would type to the same effect, or with `as_json` the request to the engine; start nothing."""
    picked, spec = prepare.decide(asked, Context(config, store, screen))
    if picked.awaits:
        screen.say(turn.foreseen(picked.awaits, store))
    run_id = "dry-run"
    target = sources.planned_target(picked, asked)
    cache = hostfolders.cache_of(picked, spec, config)
    added, way = prepare.planned_packages(picked, spec, config), picked.way.name
    order = Order(spec.without_secrets(), run_id, store.folder(run_id), target, way, cache=cache, packages=added)
    if added and not added.is_dir():
        screen.say(f"the run itself first installs, for this image: {', '.join(spec.packages)}")
    if picked.engine.is_cluster and not as_json:
        console.result_exact(picked.engine.command_line(order).rstrip())
        return 0
    request = picked.engine.request(order)
    if as_json:
        console.result_json({"engine": picked.engine.name, "way": asdict(picked.way), "request": request})
        return 0
    if not picked.engine.has_containers and not Path(target).exists():
        from ngcdl.engines.local.engine import size

        screen.say(f"{target} is not here yet: the run itself installs it first ({size(picked.has_gpu)}).")
    home = order.folder / HOME if asked.workload or picked.engine.has_containers else order.folder
    folders = filter(None, [home, hostfolders.choices_of(asked.workload, picked.image, store), cache])
    made = shlex.join(["mkdir", "-p", *map(str, folders)])
    console.result_exact(f"# what ngcdl would start, by hand:\n{made}\n{picked.engine.command_line(order)}")
    return 0


def reconcile_last(store: Store) -> None:
    """Close the records that a killed ngcdl left open, so that no dead run holds a GPU or a name."""
    left = [run_id for run_id in store.ids()[:_LOOKED_AT] if not store.is_ended(run_id)]
    if left:
        from ngcdl.cli import lookup

        lookup.close(store, left)
