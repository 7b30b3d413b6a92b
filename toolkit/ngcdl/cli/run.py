"""`ngcdl run`: what was typed, parsed once; then prepare, start and show."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ngcdl import console, launch, plan, prepare, settings
from ngcdl.cli.screen import Screen
from ngcdl.engines.base import Order
from ngcdl.errors import BadOption, NgcdlError, NoSuchRun, signal_exit_code
from ngcdl.interrupt import Interrupted
from ngcdl.owner import this_process
from ngcdl.record import Run
from ngcdl.spec import GpuRequest, ImageRef, Mount, Port, RunSpec, Workload, parse_bytes, parse_environment
from ngcdl.store import EVENTS, Store


@dataclass(frozen=True)
class Typed:
    """argv of `ngcdl run`, or of what runs the like, as typer read it; nothing in it is checked yet."""

    image: str | None = None
    stray: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    train: str | None = None
    steps: int | None = None  # None: the workload's own
    batch: int | None = None
    seed: int = 0
    threads: int | None = None
    data: str = "auto"
    resume: str | None = None
    evaluate: bool = True
    gpus: str = "auto"
    device: str | None = None
    engine: str = "auto"
    volumes: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    shm_size: str = "1g"
    ulimits: tuple[str, ...] = ()
    workdir: str | None = None
    interactive: bool = False
    root: bool = False
    pull: str = "missing"
    force: bool = False
    detach: bool = False
    dry_run: bool = False
    json: bool = False


def run(typed: Typed) -> int:
    """Run what was typed and give the exit code. Raises NgcdlError."""
    config = settings.load()
    shelf = Store(config.runs)
    screen = Screen(output_to_stderr=typed.json, is_training=bool(typed.train))
    asked = parsed(typed, config, shelf)
    if typed.dry_run:
        return dry_run(asked, config, shelf, screen, typed.json)
    return carry_out(asked, config, shelf, screen, detach=typed.detach, as_json=typed.json)


def carry_out(
    asked: prepare.Asked, config: settings.Settings, shelf: Store, screen: Screen, *, detach: bool, as_json: bool
) -> int:
    """Prepare, start and show what was asked, and give the exit code. Raises NgcdlError."""
    reconcile_last(shelf)
    with screen, no_open_record(shelf):
        ready = prepare.prepare(asked, config, shelf, screen)
        if detach:
            from ngcdl.cli.watch import hand_over

            run_id = hand_over(ready, shelf)
            if as_json:
                console.result_json(shelf.load(run_id).as_json())
            else:
                console.result(run_id)
                console.say(f"it goes on; look with: ngcdl logs -f {run_id}, end it with: ngcdl stop {run_id}")
            return 0
        terminal = _terminal(ready.order.spec)
        done = _followed(ready, shelf, screen, terminal)
    if done.status == "running":
        console.say(f"detached; it goes on as {done.id}")
        return 0
    if as_json:
        console.result_json(done.as_json())
    elif done.spec and done.spec.get("workload"):
        from ngcdl.cli.runs import show_summary

        console.result("")
        show_summary(shelf, done)
        _next_step(done, shelf)
    elif done.reason:
        console.say(f"{done.reason} ({done.id})")
    return exit_code(done) or (NgcdlError.exit_code if screen.is_lost else 0)


@contextlib.contextmanager
def no_open_record(shelf: Store) -> Iterator[None]:
    """Close the record that was made where a signal comes before launch has taken the signals over."""
    try:
        yield
    except (KeyboardInterrupt, Interrupted) as error:
        number = error.number if isinstance(error, Interrupted) else signal.SIGINT
        for run_id in shelf.ids()[:20]:
            with contextlib.suppress(NgcdlError):
                run = shelf.load(run_id)
                if run.status == "running" and run.owner == this_process():
                    reason = f"stopped by {signal.Signals(number).name} before it had started"
                    closed = replace(run, status="interrupted", exit_code=signal_exit_code(number), reason=reason)
                    shelf.save(replace(closed, finished=time.time(), owner=None))
        raise


def _next_step(done: Run, shelf: Store) -> None:
    """After a training that did not reach its end: what to type."""
    if done.status != "finished" and any((shelf.folder(done.id) / "checkpoints").glob("step-*")):
        console.say(f"a checkpoint was saved; go on from it with: ngcdl run ... --resume {done.id}")
    elif done.exit_code in (126, 127):
        console.say("this image has no python: take one of TensorFlow or PyTorch")


def exit_code(done: Run) -> int:
    """Give the run's own code; 125 where it has none, or where 0 would hide that it failed (out of memory inside)."""
    if done.exit_code is None or (done.status == "failed" and done.exit_code == 0):
        return NgcdlError.exit_code
    return done.exit_code


def _followed(ready: prepare.Ready, shelf: Store, screen: Screen, terminal: launch.Terminal | None) -> Run:
    try:
        return launch.follow(ready, shelf, screen, terminal)
    except NgcdlError as error:
        if ready.order.spec.workload:
            console.say(f"recorded as {ready.run.id}")
        if ready.order.spec.workload and error.exit_code in (126, 127):
            console.say("this image has no python: take one of TensorFlow or PyTorch")
        raise


def _terminal(spec: RunSpec) -> launch.Terminal | None:
    if not spec.stdin:
        return None
    from ngcdl.cli.terminal import Pipe, RawTerminal

    return RawTerminal() if spec.tty else Pipe()


def parsed(typed: Typed, config: settings.Settings, shelf: Store) -> prepare.Asked:
    """Parse. Raises UsageError with the form that was wanted."""
    if typed.stray:
        words = " ".join(typed.stray)
        raise BadOption(f"{words}: the container's command stands after --.", f"    ngcdl run {typed.image} -- {words}")
    if typed.train and typed.command:
        raise BadOption("--train runs the bundled training: no command can stand after --.")
    if typed.train and typed.workdir:
        raise BadOption("-w: a bundled training has its own working directory.", "Leave -w out.")
    if typed.pull not in ("missing", "always"):
        raise BadOption(f"--pull {typed.pull}: missing or always.")
    image = ImageRef.parse(typed.image, config.registry) if typed.image else None
    gpus = GpuRequest.parse(typed.gpus)
    if not typed.train:
        _nothing_of_a_training(typed)
    own = None
    if not typed.train and image:
        terminal = bool(sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()) and not typed.detach
        own = plan.command(image, typed.command, gpus, terminal, typed.interactive)
        own = plan.at_hand(own, _here())
    return prepare.Asked(
        engine=typed.engine,
        image=image,
        gpus=gpus,
        workload=_workload(typed, shelf) if typed.train else None,
        own=own,
        device=typed.device,
        always_pull=typed.pull == "always",
        force=typed.force,
        root=typed.root,
        extra=_extra(typed, own),
    )


def _here() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise BadOption("The folder that this was typed in is gone.", "    cd") from error


def _nothing_of_a_training(typed: Typed) -> None:
    """Raises BadOption where an option stands that only --train reads."""
    plain = Workload("")
    given = {
        "--steps": typed.steps is not None,
        "--batch": typed.batch is not None,
        "--seed": typed.seed != plain.seed,
        "--threads": typed.threads != plain.threads,
        "--data": typed.data != plain.data,
        "--resume": bool(typed.resume),
        "--no-eval": not typed.evaluate,
        "--device": bool(typed.device),
    }
    stray = [name for name, is_given in given.items() if is_given]
    if stray:
        raise BadOption(f"{', '.join(stray)}: only --train reads that.", "    ngcdl run IMAGE --train cifar10 ...")


def _workload(typed: Typed, shelf: Store) -> Workload:
    resume = shelf.find(typed.resume) if typed.resume else None
    if resume and not (shelf.folder(resume) / EVENTS).exists():
        raise NoSuchRun(f"{typed.resume} (a training that began)", shelf.root)
    assert typed.train is not None  # the caller looked
    known = plan.bundled(typed.train)
    return Workload(
        typed.train,
        known.steps if typed.steps is None else typed.steps,
        known.batch if typed.batch is None else typed.batch,
        typed.seed,
        typed.data,
        typed.device or "auto",
        typed.evaluate,
        resume,
        typed.threads,
    )


def _extra(typed: Typed, own: RunSpec | None) -> RunSpec:
    """What was typed beside the plan. An own command keeps what its plan mounts already."""
    here, home = str(_here()), os.environ.get("HOME", "/")
    limits = {"memlock": -1, "stack": 67108864}
    for text in typed.ulimits:
        match = re.fullmatch(r"([a-z]+)=(-1|\d+|host)", text)
        if not match:
            raise BadOption(f"--ulimit {text}: wanted NAME=NUMBER, such as memlock=-1; memlock=host leaves it out.")
        if match[2] == "host":
            limits.pop(match[1], None)
        else:
            limits[match[1]] = int(match[2])
    mounts = tuple(Mount.parse(text, here, home) for text in typed.volumes)
    taken = {mount.container for mount in own.mounts} if own else set()
    for mount in mounts:
        if mount.container in taken:
            raise BadOption(
                f"-v {mount}: {mount.container} is the working directory of this run.", "Mount it elsewhere."
            )
    return RunSpec(
        image=None,
        mounts=mounts,
        environment=tuple(parse_environment(text, os.environ) for text in typed.environment),
        ports=tuple(Port.parse(text) for text in typed.ports),
        shm_bytes=parse_bytes(typed.shm_size),
        ulimits=tuple(limits.items()),
        workdir=typed.workdir,
        stdin=typed.interactive,
    )


def dry_run(asked: prepare.Asked, config: settings.Settings, shelf: Store, screen: Screen, as_json: bool) -> int:
    """Print the request that would be sent, and the same by hand; start nothing."""
    picked, spec, _ = prepare.decide(asked, config, shelf, screen, dry=True)
    run_id = "dry-run"
    target = prepare.planned_target(picked)
    order = Order(spec.without_secrets(), run_id, shelf.folder(run_id), target, picked.way.name)
    request = picked.engine.request(order)
    if as_json:
        console.result_json({"engine": picked.engine.name, "way": asdict(picked.way), "request": request})
        return 0
    console.result("# what ngcdl would send (the image by its digest):")
    console.result_json(request)
    home = shlex.quote(str(order.folder / "home"))
    console.result(f"# the same by hand:\nmkdir -p {home}\n{picked.engine.command_line(order)}")
    return 0


def reconcile_last(shelf: Store) -> None:
    """Close what a killed ngcdl left open, so that no card and no name is taken by the dead."""
    for run_id in shelf.ids()[:20]:
        with contextlib.suppress(NgcdlError):  # a broken record is `ngcdl runs`' to tell
            run = shelf.load(run_id)
            if run.status == "running":
                from ngcdl import reconcile

                reconcile.reconcile(shelf, run)
