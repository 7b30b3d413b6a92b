"""The bundled trainings, as their files describe them, and where those are."""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngcdl.errors import BadOption, LocalUnavailable


def containers_folder() -> Path:
    """Find containers/ beside the checkout first: an editable install leaves old copies in site-packages."""
    package = Path(__file__).resolve().parent
    for folder in (package.parents[1] / "containers", package / "containers"):
        if (folder / "trainer" / "__main__.py").exists():
            return folder
    raise LocalUnavailable("The trainer is missing from this installation of ngcdl.", "Install ngcdl once more.")


@dataclass(frozen=True)
class Bundled:
    """What the trainer's file says of a workload. `batch` is its source's, `steps` about ten minutes on a small GPU.

    `data` is "cifar10", or the name of what its made-up data stands for; `data_folder` is what --data takes: "cifar10",
    "pictures", or None for nothing. `unit` is what one example is, `input` its shape. `forward_macs` are
    multiply-accumulates of one example, `flops_per_example` the operations of a training step for one: convolutions and
    matrix products alone. `parameters` is as the source counts them. `vary` is what a comparison of it varies, None:
    the CPU against the GPU. One that does not train only computes forward; one without parameters is a check, which is
    run once. `classes`: so many folders of pictures --data must have, None where it takes none. Without `has_replicas`
    it is trained on one GPU alone; without `has_epochs` its examples have no turns to count. `least_batch`: so many
    examples each of its replicas must have. With `has_times` it is trained several times in one run, if asked for.
    """

    name: str
    summary: str
    source: str
    data: str
    data_folder: str | None
    unit: str
    steps: int
    batch: int
    input: tuple[int, ...]
    parameters: int
    forward_macs: int
    flops_per_example: int
    frameworks: tuple[str, ...]
    vary: str | None = None
    trains: bool = True
    classes: int | None = None
    has_replicas: bool = True
    has_epochs: bool = True
    least_batch: int = 1
    has_times: bool = False


def names() -> tuple[str, ...]:
    """What --train takes: the files of containers/trainer/workloads, whose names have - for _."""
    folder = containers_folder() / "trainer" / "workloads"
    return tuple(sorted(path.stem.replace("_", "-") for path in folder.glob("*.py") if not path.stem.startswith("_")))


def bundled(name: str) -> Bundled:
    """Read what a workload's file says at its top, without running it: it wants numpy, which need not be here.

    Raises BadOption where there is no such workload.
    """
    if name not in names():
        near = difflib.get_close_matches(name.lower().replace("_", "-"), names(), 1)
        meant = f"Did you mean --train {near[0]}?\n" if near else ""
        raise BadOption(f"--train {name}: there is {', '.join(names())}.", f"{meant}    ngcdl workloads")
    path = containers_folder() / "trainer" / "workloads" / f"{name.replace('-', '_')}.py"
    said = _literals(path.read_text(encoding="utf-8"))
    return Bundled(
        name=name,
        summary=said["SUMMARY"],
        source=said["SOURCE"],
        data=said["DATA"],
        data_folder=said.get("DATA_FOLDER", "cifar10" if said["DATA"] == "cifar10" else None),
        unit=said["UNIT"],
        steps=said["STEPS"],
        batch=said["BATCH"],
        input=said["INPUT"],
        parameters=said["PARAMETERS"],
        forward_macs=said["MACS"],
        flops_per_example=said["FLOPS"],
        frameworks=said["FRAMEWORKS"],
        vary=said.get("VARY"),
        trains=said.get("TRAINS", True),
        classes=said.get("CLASSES"),
        has_replicas=said.get("REPLICAS", True),
        has_epochs=said.get("EPOCHS", True),
        least_batch=said.get("LEAST_BATCH", 1),
        has_times=said.get("TIMES", False),
    )


def _literals(source: str) -> dict[str, Any]:
    """Give the module's variables that are given plain values."""
    found = {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            try:
                found[statement.targets[0].id] = ast.literal_eval(statement.value)
            except ValueError:
                continue  # computed: not among what is read
    return found
