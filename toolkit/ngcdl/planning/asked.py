"""What was typed for a run, and checks of options that make no sense where the run is to be."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from ngcdl.errors import BadOption, MountMissing, at_once
from ngcdl.frozen import dataclass
from ngcdl.spec import GpuRequest, ImageRef, Placement, RunSpec, Workload, kind_of, redacted_words


@dataclass(frozen=True)
class Asked:
    """What was typed, parsed. `own` is the spec of a command to run, with no GPUs chosen yet; None for a training."""

    engine: str
    image: ImageRef | None
    gpus: GpuRequest
    workload: Workload | None
    own: RunSpec | None = None
    command: str = "run"  # the ngcdl command that was typed: advice repeats it
    device: str | None = None
    always_pull: bool = False
    force: bool = False
    waits: bool = False  # until its GPUs are free
    name: str | None = None  # the word of its id
    takes_wait: bool = False  # the command that was typed has --wait
    root: bool = False
    placement: Placement | None = None  # where on a cluster; None without one
    extra: RunSpec | None = None  # the mounts, environment, packages, ports, limits, -w and -i that were typed
    repeats: bool = False  # a recorded run, which had this engine, image and cards: nobody typed them
    installed: tuple[str, ...] | None = None  # the packages, name==version, of the run that this one repeats

    @property
    def nodes(self) -> int:
        """The number of machines to run on."""
        return self.placement.nodes if self.placement else 1


# The variables that choose a run's cards if no container does; the engine sets them from --gpus.
CARD_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


def check_without_container(asked: Asked) -> None:
    """Raise BadOption if an option was typed that needs a container, or a variable that would undo --gpus."""
    if stray := container_options(asked):
        raise BadOption(why_no_container_options(stray), "In an image:\n    ngcdl ... pytorch  # without --engine NAME")
    if own_cards := card_variables(asked):
        raise BadOption(why_no_card_variables(own_cards), f"    ngcdl {asked.command} ... --gpus 1")


def why_no_container_options(options: Sequence[str]) -> str:
    """Say why these options can't be given."""
    return f"{', '.join(options)}: only for containers, and this run has none."


def why_no_card_variables(names: Sequence[str]) -> str:
    """Say why these variables, of CARD_VARIABLES, can't be set."""
    return f"-e {', '.join(names)}: without a container --gpus chooses the cards."


def card_variables(asked: Asked) -> list[str]:
    """Return the names of CARD_VARIABLES that were typed."""
    typed = [*(asked.extra.environment if asked.extra else ()), *(asked.own.environment if asked.own else ())]
    return [name for name in CARD_VARIABLES if name in dict(typed)]


def container_options(asked: Asked) -> list[str]:
    """Return the options that were typed and need a container."""
    plain, typed = RunSpec(None), asked.extra or RunSpec(None)
    given = {
        "-v": typed.mounts != plain.mounts,
        "--pip": typed.packages != plain.packages,
        "-p": typed.ports != plain.ports,
        "--shm-size": typed.shm_bytes != plain.shm_bytes,
        "--ulimit": typed.ulimits != plain.ulimits,
        "--cpus": typed.cpu_limit is not None,
        "--memory": typed.memory_bytes is not None,
        "-w": typed.workdir != plain.workdir,
        "-i": asked.workload is not None and typed.stdin != plain.stdin,
        "--root": asked.root,
        "--pull": asked.always_pull,
    }
    return [name for name, is_given in given.items() if is_given]


def check_without_screen(asked: Asked, engine: str) -> None:
    """Raise BadOption if an option was typed that needs a terminal or a port of this machine."""
    typed = asked.extra or RunSpec(None)
    has_command = asked.own is None or bool(asked.own.command)
    stray = [name for name, is_given in {"-i": typed.stdin, "-p": bool(typed.ports)}.items() if is_given]
    if stray or not has_command:
        what = f"{', '.join(stray)}: not with --engine {engine}" if stray else "A shell needs a terminal"
        command = "" if has_command else " -- COMMAND"
        raise BadOption(
            f"{what}: a run there has no terminal, and no port on this machine.",
            f"    ngcdl run ...{command}  # without -i --interactive -p PORT --publish PORT",
        )


def check_without_packages(asked: Asked, engine: str) -> None:
    """Raise BadOption if packages are to be added where ngcdl can't install them beforehand."""
    if packages_of(asked):
        raise BadOption(
            f"--pip: only with an engine of this machine, which --engine {engine} is not.",
            f"Install them in the same run, or put them into an image:\n{installing(asked, '--engine', engine)}",
        )


def packages_of(asked: Asked) -> tuple[str, ...]:
    return (*(asked.extra.packages if asked.extra else ()), *(asked.own.packages if asked.own else ()))


def installing(asked: Asked, *options: str) -> str:
    """Return the line that installs the packages in the same run, before its command, or an example of one, begins."""
    image = asked.image.typable if asked.image else "IMAGE"
    command = asked.own.command if asked.own else ()
    then = shlex.join(redacted_words(command or ("python", "train.py")))
    steps = shlex.quote(f"pip install --user {shlex.join(packages_of(asked))} && {then}")
    name = "compare" if asked.command == "compare" else "run"
    return f"    ngcdl {name} {shlex.join([image, *options])} -- sh -c {steps}"


def check_waiting(asked: Asked) -> None:
    """Raise BadOption if there are no GPUs of this host for which the run could wait."""
    if asked.gpus.kind == "none" or asked.device == "cpu":
        needless = "--device cpu" if asked.device == "cpu" else "--gpus none"
        raise BadOption(f"--wait: with {needless} the run needs no GPU.", "Leave one of them out.")
    if kind_of(asked.engine).is_cluster:
        raise BadOption(f"--wait: {asked.engine} has a queue of its own.", "Leave it out.")
    if asked.gpus.kind == "auto" and not asked.workload:
        raise BadOption(
            "--wait: a command gets all GPUs, free or not, unless it asks for some.", "    ngcdl run ... --gpus 1"
        )


def look_ahead(asked: Asked) -> None:
    """Raise MountMissing now if folders to mount are missing, not after a long download."""
    folders = [mount.host for mount in (asked.extra.mounts if asked.extra else ()) if not mount.is_volume]
    if missing := [MountMissing(folder) for folder in dict.fromkeys(folders) if _is_missing(folder)]:
        raise at_once(missing)


def _is_missing(path: str) -> bool:
    try:
        Path(path).stat()
    except PermissionError:
        return False  # the daemon may see more than the caller
    except OSError:
        return True
    return False
