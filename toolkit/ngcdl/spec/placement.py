"""Where on a cluster a run goes: how many machines, from which part of it, and what runs its image there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Self

from ngcdl.errors import BadOption
from ngcdl.frozen import dataclass
from ngcdl.spec.kinds import KINDS, kind_of
from ngcdl.spec.secrets import redacted

CONTAINERS = ("pyxis", "docker", "podman", "apptainer", "singularity")
TYPED = {"time_limit": "--time", "options": "--sbatch", "patches": "--job-patch"}
_LISTS = ("options", "patches", "avoid")
_LIMIT = (
    "On this machine another program ends a run in time, as ngcdl stop does:\n"
    "    timeout {} ngcdl ...  # without --time TIME"
)
_LONGEST_PATCH = 1 << 16
_START = re.compile(r"(?:\s*#.*\n)*\s*---")  # comments may come before the line that begins a document
_DOCUMENT = re.compile(r"^---", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,@:+-]*")
_PRINTED = re.compile(r"[!-~]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_TIME = re.compile(r"\d+|\d+:\d\d(:\d\d)?|\d+-\d+(:\d\d){0,2}")


@dataclass(frozen=True)
class Placement:
    """`nodes` machines, each with the run's GPUs. `container` is one of CONTAINERS; None: whichever is installed.

    `partition`, `account`, `qos`, `time_limit` and `options` (further words for sbatch) are Slurm's, as sbatch takes
    them. `cpus` are per GPU, or per task if it has none, and are ignored if the run has a `cpu_limit`; `images` is a
    folder that all nodes share, in which an image that one node fetched is kept for all. `namespace`, `data_pvc` (a
    claim that has the data), `pull_secret` (the name of a Secret) and `patches` (of the Job, the text of each) are
    Kubernetes'.

    ngcdl sets the rest itself, to keep a run off nodes that can't run its image: `gpu_type` is the type of Slurm's
    GPUs to ask for; `avoid` lists nodes by name (Slurm), or node labels, KEY=VALUE (Kubernetes).
    """

    nodes: int = 1
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time_limit: str | None = None
    container: str | None = None
    cpus: int | None = None
    images: str | None = None
    namespace: str | None = None
    data_pvc: str | None = None
    pull_secret: str | None = None
    options: tuple[str, ...] = ()
    patches: tuple[str, ...] = ()
    gpu_type: str | None = None
    avoid: tuple[str, ...] = ()

    def check(self, engine: str) -> None:
        """Raise BadOption as `check_values` does, and if a value means nothing to `engine`."""
        plain, taken = Placement(), kind_of(engine).takes
        typed = [field.name for field in fields(self) if getattr(self, field.name) != getattr(plain, field.name)]
        if stray := [name for name in typed if name not in taken]:
            who = [name for name, one in KINDS.items() if stray[0] in one.takes]
            there = [f"    ngcdl ... --engine {name}" for name in who if {*typed} <= {*kind_of(name).takes}]
            less = f"    ngcdl ...  # without {' '.join(f'{_typed(name)} N' for name in stray)}"
            hint = "\n".join(there) or f"Leave out what it does not use:\n{less}"
            if stray == ["time_limit"] and not kind_of(engine).is_cluster:
                hint = _LIMIT.format(_duration(self.time_limit))
            raise BadOption(f"{_typed(stray[0])}: engine {engine} does not use it; {' or '.join(who)} does.", hint)
        self.check_values()

    def check_values(self) -> None:
        """Raise BadOption if a value makes no sense: each goes into a script or a manifest."""
        if not 1 <= self.nodes <= 100_000:
            raise BadOption(f"--nodes {self.nodes}: must be a whole number, 1 or more.")
        if self.container is not None and self.container not in CONTAINERS:
            raise BadOption(f"--container {self.container}: must be {', '.join(CONTAINERS[:-1])} or {CONTAINERS[-1]}.")
        if self.time_limit is not None and not _TIME.fullmatch(self.time_limit):
            raise BadOption(
                f"--time {self.time_limit}: must be MINUTES, HOURS:MINUTES:SECONDS or DAYS-HOURS, as for sbatch."
            )
        for name in ("partition", "account", "qos", "namespace", "data_pvc", "pull_secret"):
            value = getattr(self, name)
            if value is not None and not _WORD.fullmatch(value):
                raise BadOption(f"{_typed(name)} {value!r}: must be one word.")
        for name, chosen in (("gpu_type", [self.gpu_type] if self.gpu_type else []), ("avoid", self.avoid)):
            for word in chosen:
                if not _PRINTED.fullmatch(word):
                    raise BadOption(f"{_typed(name)} {word!r}: must be one word.")
        for word in self.options:  # each is a line of the script
            if _CONTROL.search(word):
                raise BadOption(f"--sbatch {word!r}: must be one line, without control characters.")
        for text in self.patches:
            _check_patch(text)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), **{name: list(getattr(self, name)) for name in _LISTS}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Parse the output of as_json. Raise BadOption as `check_values` does."""
        known = {field.name for field in fields(cls)}
        values = {name: value for name, value in data.items() if name in known and value is not None}
        found = cls(**{**values, **{name: tuple(values.get(name, ())) for name in _LISTS}})
        found.check_values()
        return found


def _check_patch(text: str) -> None:
    if len(text) > _LONGEST_PATCH:
        raise BadOption("--job-patch: it is longer than 64 KiB.")
    first = _START.match(text)
    if _DOCUMENT.search(text, first.end() if first else 0):
        raise BadOption(
            "--job-patch: it has several documents (---).", "Name a file for each: --job-patch is repeatable."
        )
    if redacted("", text) != text:
        raise BadOption(
            "--job-patch: something in it looks like a secret, and would be written into record and manifest.",
            "As a variable it is kept in the run's own Secret:\n    ngcdl run ... -e NAME",
        )


def _duration(limit: str | None) -> str:
    """Return Slurm's time limit as `timeout` takes it. https://slurm.schedmd.com/sbatch.html#OPT_time"""
    days, dash, rest = (limit or "").rpartition("-")
    if not _TIME.fullmatch(limit or ""):
        return "30m"
    parts = [int(part) for part in rest.split(":")]
    hours, minutes, seconds = ((parts if dash or len(parts) == 3 else [0, *parts]) + [0, 0])[:3]
    minutes += 60 * (hours + 24 * int(days or 0))
    return f"{60 * minutes + seconds}s" if seconds else f"{minutes}m"


def _typed(name: str) -> str:
    return TYPED.get(name, f"--{name.replace('_', '-')}")
