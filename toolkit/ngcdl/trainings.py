"""The bundled trainings, as their files describe them, and where these files are."""

from __future__ import annotations

import ast
import contextlib
import difflib
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from ngcdl.errors import BadOption, LocalUnavailable
from ngcdl.frozen import dataclass
from ngcdl.spec import GpuRequest, Workload

WRITTEN = {"pytorch": "PyTorch", "tf1": "TensorFlow 1", "tf2": "TensorFlow 2"}  # how people write each framework's name


def containers_folder() -> Path:
    """Find containers/, first in the checkout: an editable install leaves old copies in site-packages."""
    package = Path(__file__).resolve().parent
    for folder in (package.parents[1] / "containers", package / "containers"):
        if (folder / "trainer" / "__main__.py").exists():
            return folder
    raise LocalUnavailable("The trainer is missing from this installation of ngcdl.", "Reinstall ngcdl.")


@dataclass(frozen=True)
class Bundled:
    """What a workload's file says at its top; the trainer's workloads/__init__.py explains each word."""

    name: str
    summary: str
    source: str  # where these numbers come from
    data: str  # "cifar10", or the name of what its synthetic data stands for
    data_folder: str | None  # what --data takes: "cifar10", "pictures", None: nothing
    unit: str  # what one example is
    steps: int  # about ten minutes on a small GPU
    batch: int  # as in the source
    input: tuple[int, ...]  # the shape of one example
    parameters: int  # as the source counts them; a workload without any is a check, which runs once
    forward_macs: int  # multiply-accumulates for one example, in convolutions and matrix products only
    flops_per_example: int  # operations of a training step for one example, in convolutions and matrix products only
    frameworks: tuple[str, ...]
    vary: str | None = None  # what a comparison of it varies; None: CPU against GPU
    trains: bool = True  # else it only runs the forward pass
    classes: int | None = None  # how many folders of pictures --data must have
    has_replicas: bool = True  # else it trains on one GPU only
    has_epochs: bool = True  # else it is trained by steps only, and has no epoch's order (--feed resident needs one)
    least_batch: int = 1  # how many examples each replica needs at least
    has_times: bool = False  # it can be trained several times in one run
    teacher: str | None = None  # the workload whose network teaches it
    refuses: tuple[str, ...] = ()  # options that it refuses, as typed: --clip, --feed plain
    because: str | None = None  # why it refuses these, as the rest of a sentence that begins with its name
    what: str | None = None  # what it is, or which question it answers, in fewer words than the summary
    place: int | None = None  # in the list of all, from 1; None: at the end
    whole: str | None = None  # what all of its examples are together, if the question is how long all of them take

    @property
    def image_frameworks(self) -> tuple[str, ...]:
        """NGC's names of the frameworks whose images can run it, the usual one first."""
        of = {"tensorflow": {"tf1", "tf2"}, "pytorch": {"pytorch"}}
        return tuple(name for name, own in of.items() if own & set(self.frameworks))


# In a workload's file a field is its name in capitals, except these.
_WORDS = {
    "forward_macs": "MACS", "flops_per_example": "FLOPS", "has_replicas": "REPLICAS", "has_epochs": "EPOCHS",
    "has_times": "TIMES",
}  # fmt: skip


def names() -> tuple[str, ...]:
    """Return what --train takes: the files in containers/trainer/workloads, with - for _."""
    folder = containers_folder() / "trainer" / "workloads"
    return tuple(sorted(path.stem.replace("_", "-") for path in folder.glob("*.py") if not path.stem.startswith("_")))


def bundled(name: str) -> Bundled:
    """Read the top of a workload's file without running it: it needs numpy, which may be missing here.

    Raise BadOption if there is no such workload, or as `read` does.
    """
    if name not in names():
        near = difflib.get_close_matches(name.lower().replace("_", "-"), names(), 1)
        meant = f"Did you mean --train {near[0]}?\n" if near else ""
        raise BadOption(f"--train {name}: choose one of {', '.join(names())}.", f"{meant}    ngcdl workloads")
    return read(containers_folder() / "trainer" / "workloads" / f"{name.replace('-', '_')}.py")


def read(path: Path) -> Bundled:
    """Read a workload's file. Raise BadOption if it lacks a required word."""
    name, said = path.stem.replace("_", "-"), _literals(path)
    said.setdefault("DATA_FOLDER", "cifar10" if said.get("DATA") == "cifar10" else None)
    words = {one.name: _WORDS.get(one.name, one.name.upper()) for one in fields(Bundled) if one.name != "name"}
    required = {words[one.name] for one in fields(Bundled) if one.name in words and one.default is MISSING}
    if missing := sorted(required - said.keys()):
        raise BadOption(f"--train {name}: its file sets no plain value for {', '.join(missing)}.", f"    {path}")
    return Bundled(name, **{field: said[word] for field, word in words.items() if word in said})


def find(name: str | None) -> Bundled | None:
    """Read the file of a record's workload; return None if this ngcdl has none of that name, or a broken one."""
    with contextlib.suppress(BadOption):
        return bundled(name) if name in names() else None
    return None


def has_replicas(workload: Workload) -> bool:
    """Whether several replicas can train the workload together."""
    known = bundled(workload.name)
    is_taught = known.teacher is not None and workload.teacher != "none"
    return known.trains and known.has_replicas and workload.feed != "input" and not is_taught


def replicas(workload: Workload, gpus: GpuRequest) -> int:
    """Return how many replicas train on a machine: one for each card that was requested by number or name.

    A workload that can't have several replicas has one, however many cards it gets.
    """
    return (gpus.count or len(gpus.devices) or 1) if has_replicas(workload) else 1


def _literals(path: Path) -> dict[str, Any]:
    """Return the module's variables that have plain values. Raise BadOption if the file is not valid Python."""
    try:
        module = ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise BadOption(f"{path}: line {error.lineno}: {error.msg}.", f"    python3 -m py_compile {path}") from error
    found = {}
    for statement in module.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            try:
                found[statement.targets[0].id] = ast.literal_eval(statement.value)
            except ValueError:
                continue  # a computed value is not read
    return found
