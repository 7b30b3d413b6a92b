"""Parses what was typed for a run, once: argv becomes an Asked."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path, PurePosixPath

from ngcdl import console, settings, trainings
from ngcdl.cli import terminal, typed_container
from ngcdl.cli.typed_container import current_folder
from ngcdl.errors import BadOption, NgcdlError
from ngcdl.frozen import dataclass
from ngcdl.planning import plan
from ngcdl.planning.asked import Asked
from ngcdl.preflight import meant
from ngcdl.spec import (
    KINDS,
    USUAL_SAMPLE_SECONDS,
    GpuRequest,
    ImageRef,
    Placement,
    RunSpec,
    Workload,
    is_secret,
    kind_of,
    redacted,
    redacted_words,
)
from ngcdl.spec.inside import WORK
from ngcdl.storing.store import Store

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")  # docker's for a container, and what fits a label of Kubernetes
# The interpreter of a script, by its suffix. The script may not be executable, and this folder is not on PATH.
STARTERS = {".py": "python", ".sh": "bash"}
_PROGRAMS = ("nvidia-smi", "python3", "torchrun")


@dataclass(frozen=True)
class Typed:
    """The argv of `ngcdl run`, or of a similar command, as typer read it; nothing in it is checked yet. `given` names
    the fields that were typed: others have their default."""

    given: frozenset[str] = frozenset()
    image: str | None = None
    stray: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    train: str | None = None
    steps: int | None = None  # None: the workload's own
    epochs: int | None = None
    seconds: float | None = None
    times: int = 1
    clip: float | None = None
    trace: int | None = None
    batch: str | None = None
    seed: int = 0
    threads: int | None = None
    feed: str | None = None
    precision: str = "auto"
    amp: bool = False
    compile: bool = False
    channels_last: bool | None = None
    autotune: bool = False
    teacher: str | None = None
    data: str = "auto"
    resume: str | None = None
    no_eval: bool = False
    gpus: str = "auto"
    device: str | None = None
    engine: str = "auto"
    placement: Placement = field(default_factory=Placement)
    volumes: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    env_files: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    shm_size: str = "1g"
    ulimits: tuple[str, ...] = ()
    cpus: str | None = None
    memory: str | None = None
    workdir: str | None = None
    interactive: bool = False
    sample_every: float = USUAL_SAMPLE_SECONDS
    root: bool = False
    pull: str = "missing"
    force: bool = False
    wait: bool = False
    name: str | None = None
    detach: bool = False
    dry_run: bool = False
    json: bool = False


def parsed(typed: Typed, config: settings.Settings, store: Store) -> Asked:
    """Parse `typed`. Raise UsageError with the expected form."""
    _check(typed)
    patches = tuple(map(_patch, typed.placement.patches))
    typed = replace(typed, placement=replace(typed.placement, patches=patches))
    typed.placement.check(typed.engine)
    if typed.command and _lacks_image(typed):
        raise BadOption(f"With --engine {typed.engine} a command needs an image.", in_an_image(typed))
    image = None if typed.image is None else image_of(typed.image, config)
    gpus = GpuRequest.parse(typed.gpus)
    if not typed.train:
        _nothing_of_a_training(typed, image, store)
    own = None
    if not typed.train and (image or typed.command):
        has_input = not kind_of(typed.engine).is_cluster
        is_terminal = terminal.is_here() and not typed.detach and has_input
        own = plan.command(image, typed.command, gpus, is_terminal, typed.interactive, typed.detach)
        if not image:
            own = replace(own, workdir=str(current_folder()))
        elif kind_of(typed.engine).shares_files:
            own = _at_hand(own, typed, config)
    return Asked(
        engine=typed.engine,
        image=image,
        gpus=gpus,
        workload=_workload(typed, store) if typed.train else None,
        own=own,
        device=typed.device,
        always_pull=typed.pull == "always",
        force=typed.force,
        waits=typed.wait,
        name=typed.name,
        root=typed.root,
        extra=typed_container.added(typed, own),
        placement=typed.placement if kind_of(typed.engine).is_cluster else None,
    )


def _check(typed: Typed) -> None:
    """Raise BadOption if a word is where none belongs, or two exclude each other."""
    if typed.stray or (typed.train and typed.command) or (typed.image and start_of(typed.image)):
        from ngcdl.cli import misplaced  # no line that is right needs it

        raise misplaced.error(typed)
    if typed.train and typed.workdir:
        raise BadOption("-w: a bundled training has its own working directory.", "Leave -w out.")
    if typed.pull not in ("missing", "always"):
        raise BadOption(f"--pull {typed.pull}: must be missing or always.")
    if typed.name is not None and not (NAME.fullmatch(typed.name) and not typed.name.startswith("last")):
        said = "must begin with a letter or a digit, not with last, and have at most 40 letters, digits, _, . and -."
        raise BadOption(f"--name {redacted_words((typed.name,))[0]}: {said}")


def _lacks_image(typed: Typed) -> bool:
    """Return whether no image was typed, but an engine that needs one. Other engines run the command on this host."""
    return not typed.image and typed.engine in KINDS and kind_of(typed.engine).has_containers


def words_of(typed: Typed) -> list[str]:
    """Return the argv that has the command; if a program embeds ngcdl, the shortest argv that runs the command."""
    return sys.argv[1:] if "--" in sys.argv else ["run", "--", *typed.command]


def own_end(words: Sequence[str]) -> int:
    """Return where ngcdl's own words end, and those of the user's command begin, with --."""
    return words.index("--") if "--" in words else len(words)


def in_an_image(typed: Typed) -> str:
    """Return the line that was typed, with an image."""
    first, *more = words_of(typed)
    return again([first, "pytorch", *more])


def _patch(word: str) -> str:
    """Return the content of the file that `word` names. A record repeats a patch as it was: what has several lines, or
    begins with {, is the patch itself. Raise BadOption."""
    if "\n" in word or word.lstrip().startswith("{"):
        return word
    try:
        return f"{Path(word).read_text(encoding='utf-8').rstrip()}\n"
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        hint = "Name a file with what is to be merged into the Job, in YAML or JSON."
        raise BadOption(f"--job-patch {word}: it can't be read ({why}).", hint) from error


def empty(what: str) -> BadOption:
    """Return the error for an empty word, which would count as nothing typed."""
    return BadOption(f"{what} is empty.", "Perhaps a variable of your shell is not set.")


def again(words: Sequence[str]) -> str:
    """Return the line `ngcdl words`, to be typed. A secret variable appears by name only: -e then takes its value from
    the caller's environment. Other words that are recognized as secrets are replaced by ***."""
    at = own_end(words)
    options = [re.sub(r"\A(-\w*?e|--env=)?(\w+)=(.*)\Z", _by_name, word, flags=re.DOTALL) for word in words[:at]]
    options = [redacted("", word) for word in options]
    return f"    ngcdl {shlex.join([*options, *words[at : at + 1], *redacted_words(tuple(words[at + 1 :]))])}"


def _by_name(variable: re.Match[str]) -> str:
    return f"{variable[1] or ''}{variable[2]}" if is_secret(variable[2], variable[3]) else variable[0]


def start_of(word: str) -> list[str] | None:
    """If `word`, typed where an image belongs, is a file of this host, or a program that no image is named like, return
    the command that starts it; else None."""
    path = Path(word)
    starter = STARTERS.get(path.suffix)
    is_path = word.startswith(("./", "../", "/"))
    try:
        is_meant = word in _PROGRAMS or ((starter is not None or is_path) and path.is_file())
    except (OSError, ValueError):
        return None
    return ([starter, word] if starter else [word]) if is_meant else None


def image_of(name: str, config: settings.Settings, command: str = "run") -> ImageRef:
    """Parse an image's name, which may leave open which image is meant (preflight.meant). Raise BadReference, or
    BadOption if a training's name was typed instead. `command` is the one that was typed."""
    if name in trainings.names():
        raise BadOption(f"{name} is a bundled training, not an image.", f"    ngcdl {command} --train {name}")
    if start := start_of(name):
        from ngcdl.cli import misplaced

        raise misplaced.no_image(name, start, command)
    return meant.typed(name, config.registry)


def _at_hand(own: RunSpec, typed: Typed, config: settings.Settings) -> RunSpec:
    """Return `own` with the current folder mounted, unless -v mounts it there already, perhaps read-only. A folder that
    holds keys is mounted only if -v or -w names it; otherwise the folder is left out, with a message."""
    here, holds_keys = current_folder(), _holds_keys(current_folder(), config)
    there = [mount.host for mount in typed_container.mounts(typed) if mount.place == WORK]
    if any(holds_keys or Path(host).resolve() == here for host in there):  # $PWD may have links, unlike `here`
        return replace(own, workdir=WORK)
    if not holds_keys or PurePosixPath(typed.workdir or "/").is_relative_to(WORK):
        return plan.with_folder_mounted(own, here)
    console.say(
        f"{here} is not mounted at {WORK}: a container could read and change the keys and settings in it. "
        f'Run this in the project\'s folder, or mount it on purpose: -v "$PWD:{WORK}"'
    )
    return own


def _holds_keys(folder: Path, config: settings.Settings) -> bool:
    """Return whether write access to `folder` gives access to somebody's keys, start-up files or records of runs."""
    from ngcdl.registry import docker_config

    home = settings.home(os.environ)
    of_ours = home / (os.environ.get("XDG_CONFIG_HOME") or ".config") / "ngcdl"
    kept = (home, config.runs, of_ours, docker_config.path(os.environ))
    if any(path.resolve().is_relative_to(folder) for path in kept):
        return True
    return any(name in folder.parts or os.path.lexists(folder / name) for name in (".ssh", ".docker"))


def of_a_training(typed: Typed) -> list[str]:
    """Return the names of the typed options that only --train reads."""
    plain = Typed()
    names = ["steps", "epochs", "seconds", "batch", "seed", "threads", "data", "resume", "feed", "precision", "times"]
    names += ["clip", "trace", "amp", "compile", "autotune", "teacher", "device"]
    given = {f"--{name}": getattr(typed, name) != getattr(plain, name) for name in names}
    given |= {"--channels-last": typed.channels_last is True, "--channels-first": typed.channels_last is False}
    given |= {"--no-eval": typed.no_eval}
    return [name for name, is_given in given.items() if is_given]


def _nothing_of_a_training(typed: Typed, image: ImageRef | None, store: Store) -> None:
    """Raise BadOption if an option was typed that only --train reads."""
    stray = of_a_training(typed)
    if not stray:
        return
    said = f"{', '.join(stray)}: only --train reads that."
    if typed.command:
        raise BadOption(said, "Leave it out, or, if the command reads it, type it after --.")
    words, name = sys.argv[1:], _resumed(typed, store) or _taking(typed, image, store)
    at = words.index(typed.image) + 1 if typed.image in words else 1
    if name is None or not words or (typed.image and at == 1):  # no training, or argv of a program that embeds ngcdl
        raise BadOption(said, "    ngcdl workloads")
    raise BadOption(said, again([*words[:at], "--train", name, *words[at:]]))


def _resumed(typed: Typed, store: Store) -> str | None:
    """Return the name of the bundled training that --resume means; None if it means none. Raise NoSuchRun."""
    before = _before(typed, store)
    with contextlib.suppress(NgcdlError):
        name = store.load(before).workload.get("name") if before else None
        return name if name in trainings.names() else None
    return None


def _before(typed: Typed, store: Store) -> str | None:
    """Return the id of the run that --resume means; None if it was not typed. Raise NoSuchRun."""
    if not typed.resume:
        return None
    from ngcdl.cli import lookup

    return lookup.id_of(typed.resume, store)


def _taking(typed: Typed, image: ImageRef | None, store: Store) -> str | None:
    """Return the name of a bundled training that accepts the typed options in `image`; None if none does."""
    from ngcdl.planning import validation

    for name in ("cifar10", "cifar10-keras", *trainings.names()):
        with contextlib.suppress(NgcdlError):
            workload = _workload(replace(typed, train=name), store)
            validation.check_workload(workload)
            validation.check_place(workload, image, typed.device or "gpu")
            return name
    return None


def _workload(typed: Typed, store: Store) -> Workload:
    assert typed.train is not None  # the caller checked
    known = trainings.bundled(typed.train)
    if typed.amp and typed.precision not in ("auto", "amp"):
        raise BadOption(f"--amp and --precision {typed.precision}: use only one.", "--amp is --precision amp.")
    is_bounded = typed.seconds is not None or typed.epochs is not None
    asked = Workload(
        typed.train,
        steps=known.steps if typed.steps is None and not is_bounded else typed.steps,
        batch=_batch(typed.batch, known.batch),
        seed=typed.seed,
        data=typed.data,
        device=typed.device or "auto",
        evaluate=not typed.no_eval,
        resume=_before(typed, store),
        threads=typed.threads,
        feed=typed.feed or (None if typed.autotune else "ahead"),
        precision="amp" if typed.amp else typed.precision,
        compile=typed.compile,
        channels_last=typed.channels_last,
        seconds=typed.seconds,
        epochs=typed.epochs,
        teacher=typed.teacher,
        largest_batch=typed.batch == "largest",
        times=typed.times,
        clip=typed.clip,
        trace=typed.trace,
        autotune=typed.autotune,
    )
    if asked.resume:
        from ngcdl.cli import resumed

        resumed.check(asked, asked.resume, typed.engine, typed.placement, store)
    return asked


def _batch(text: str | None, usual: int) -> int:
    if text in (None, "largest"):
        return usual
    if not text.isdecimal() or len(text) > 9:
        raise BadOption(f"--batch {text}: must be a whole number, 1 or more, or largest.")
    return int(text)
