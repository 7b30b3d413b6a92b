"""What was typed for a run's container: mounts, limits, variables, packages, ports."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ngcdl import console
from ngcdl.errors import BadOption
from ngcdl.planning import requirements
from ngcdl.spec import (
    LIMITS,
    USUAL_SAMPLE_SECONDS,
    Mount,
    Port,
    RunSpec,
    kind_of,
    parse_bytes,
    parse_cpus,
    parse_environment,
    parse_sample_seconds,
    whole_cpus,
)

if TYPE_CHECKING:
    from ngcdl.cli.typed import Typed

# Docker takes all but "as": https://github.com/docker/go-units/blob/v0.5.0/ulimit.go
_LIMITS = sorted({*LIMITS} - {"as"})
# Fewer bytes than this were not meant. A /dev/shm of 64 KiB is typed as --shm-size 65536, too, but no container starts
# with so little memory: docker's least is 6 MiB, https://docs.docker.com/engine/containers/resource_constraints/
_FEWEST_BYTES = {"--shm-size": 64 << 10, "--memory": 1 << 20}


def added(typed: Typed, own: RunSpec | None) -> RunSpec:
    """Return what the options add to the plan `own`. Raise BadOption if -v names a path at which `own`, or
    another -v, has a mount."""
    limits = _limits(typed.ulimits)
    cpus = None if typed.cpus is None else parse_cpus(typed.cpus)
    if cpus is not None and kind_of(typed.engine).has_whole_cpus:
        cpus = whole_cpus(cpus)
    sample_seconds = parse_sample_seconds(typed.sample_every)
    if sample_seconds != USUAL_SAMPLE_SECONDS and kind_of(typed.engine).is_cluster:
        raise BadOption(f"--sample-every: with --engine {typed.engine} each node samples once a second.")
    if typed.packages and any(text.partition("=")[0] == "PYTHONUSERBASE" for text in typed.environment):
        raise BadOption("-e PYTHONUSERBASE: --pip sets that itself.", "Leave one of them out.")
    more = mounts(typed)
    for mount in more:
        if mount.is_volume and os.access(current_folder() / mount.host, os.F_OK):  # a name may be too long
            console.say(f"-v {mount}: a volume of the engine's, as for docker; what is in this folder: -v ./{mount}")
    _check_places(more, own.mounts if own else ())
    return RunSpec(
        image=None,
        mounts=more,
        environment=tuple(parse_environment(text, os.environ) for text in typed.environment),
        packages=requirements.listed(typed.packages, current_folder()) if typed.packages else (),
        ports=tuple(Port.parse(text) for text in typed.ports),
        shm_bytes=_size(typed.shm_size, "--shm-size"),
        ulimits=limits,
        cpu_limit=cpus,
        memory_bytes=None if typed.memory is None else _size(typed.memory, "--memory"),
        workdir=typed.workdir,
        stdin=typed.interactive,
        sample_seconds=sample_seconds,
    )


def _size(text: str, option: str) -> int:
    """Parse a size. A number alone means bytes, as for docker. Raise BadOption if they are so few that GiB or MiB were
    meant: with --shm-size 8 /dev/shm has 4 KiB, and a data loader fails."""
    number = parse_bytes(text, f"{option} ")
    if text.strip().isdigit() and number < _FEWEST_BYTES[option]:
        meant = f"{option} {number}{'g' if number < 1000 else 'm'}"
        raise BadOption(f"{option} {text}: {number:,} bytes are too few.", f"Did you mean:\n    ngcdl ... {meant}")
    return number


def mounts(typed: Typed) -> tuple[Mount, ...]:
    here, home = str(current_folder()), os.environ.get("HOME", "/")
    return tuple(Mount.parse(text, here, home) for text in typed.volumes)


def current_folder() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise BadOption("The current folder no longer exists.", "    cd") from error


def _limits(ulimits: Iterable[str]) -> tuple[tuple[str, int], ...]:
    limits = dict(RunSpec.ulimits)
    for text in ulimits:
        match = re.fullmatch(r"([a-z]+)=(-1|\d+|host)(:\2)?", text)  # docker takes NAME=SOFT:HARD too
        if not match:
            raise BadOption(
                f"--ulimit {text}: must be NAME=NUMBER, such as memlock=-1, for both the soft and the hard limit; "
                "memlock=host leaves it unset."
            )
        if match[1] not in _LIMITS:
            raise BadOption(f"--ulimit {text}: {match[1]} is not a limit of Docker's, which are {', '.join(_LIMITS)}.")
        if match[2] == "host":
            limits.pop(match[1], None)
        else:
            limits[match[1]] = int(match[2])
    return tuple(limits.items())


def _check_places(more: Iterable[Mount], planned: Iterable[Mount]) -> None:
    """Raise BadOption if a mount that was typed is where the plan, or another one, has a mount."""
    taken, places = {mount.container for mount in planned}, dict[str, Mount]()
    for mount in more:
        if mount.place in taken:
            raise BadOption(f"-v {mount}: {mount.place} is the working directory of this run.", "Mount it elsewhere.")
        if other := places.get(mount.place):
            raise BadOption(f"-v {other} and -v {mount}: both are at {mount.place}.", "Leave one of them out.")
        places[mount.place] = mount


def with_files(typed: Typed) -> Typed:
    """Return `typed` with the variables of --env-file as if -e had named them first. Raise BadOption."""
    found = [f"{name}={value}" for file in typed.env_files for name, value in _in_file(file)]
    return replace(typed, environment=(*found, *typed.environment), env_files=())


def _in_file(file: str) -> list[tuple[str, str]]:
    """Return the variables of a file, as docker reads it: a name alone passes the caller's value on, if there is one,
    and quotes are part of the value.

    https://docs.docker.com/reference/cli/docker/container/run/#env"""
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: it is not UTF-8, or no path
        why = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise BadOption(f"--env-file {file}: {why}.") from error
    found, bad = [], []
    for number, line in enumerate(text.split("\n"), 1):
        name, equals, _ = line.lstrip().partition("=")
        if line.isspace() or name.startswith("#"):
            continue
        if not (equals or name in os.environ or {*" \t"} & {*name}):  # EPOCHS 3 is no name: it lacks an =
            continue
        try:
            found.append(parse_environment(line.lstrip(), os.environ))
        except BadOption:  # not repeated: the line may have a secret
            bad.append(str(number))
    if bad:
        many = "lines" if len(bad) > 1 else "line"
        raise BadOption(f"--env-file {file}: {many} {', '.join(bad)} must be NAME=VALUE.")
    if quoted := [name for name, value in found if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"]:
        console.say(f"--env-file {file}: the quotes are part of the value of {', '.join(quoted)}, as for docker")
    return found
