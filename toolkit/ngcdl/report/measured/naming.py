"""What a run is called, and what it computed on."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ngcdl.record import Run
from ngcdl.report.measured import lines
from ngcdl.spec import Mount

PLANNED = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")  # variables that ngcdl sets for a run by itself
# Feeds that train nothing, or nothing new (containers/trainer/feed.py): their speed is not a training's.
_WITHOUT_RESULT = {
    "input": "batches made and discarded: nothing was trained",
    "constant": "the same batch at every step: not a result",
}
# What a run without an image runs: a command (False), or a training (True).
NO_IMAGE = {False: "none: this host's own programs", True: "none: this host's own Python"}
_LONGEST = 60  # characters of a command in a name


def what(run: Run) -> str:
    """Name what was run: a training, such as cifar10, or a command and where it ran."""
    name = run.workload.get("name")
    if isinstance(name, str) and name:
        return name
    called = typed(run, _LONGEST) or "a command"
    if run.image.reference:
        return f"{called} in {run.image.reference.rpartition('/')[2]}"
    return run.id if run.kind.has_containers else f"{called} on this host"


def typed(run: Run, most: int | None = None) -> str | None:
    """Return the words of a command of the user's own, secrets hidden, cut to `most` characters; None for a training,
    and for what an image starts by itself."""
    words = listed(run.spec or {}, "command")
    if run.workload or not words:
        return None
    said = shlex.join(str(word) for word in words)
    return said if most is None or len(said) <= most else f"{said[: most - 3].rstrip()}..."


def folder(run: Run) -> str | None:
    """Say in which folder a command ran, and which folder of the host was mounted there, if any; None if unknown."""
    spec = run.spec or {}
    inside = spec.get("workdir")
    if run.workload or not isinstance(inside, str):
        return None
    mounts = (Mount.from_text(str(mount)) for mount in listed(spec, "mounts"))
    outside = next((mount.host for mount in mounts if mount.container == inside), None)
    return f"{outside}, at {inside}" if outside else inside


def computed(run: Run, start: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a training was fed and computed, by its `start` event, else as requested. None is unknown or not
    applicable.

    Trainers that did not report all of this made batches ahead, and computed in float32 on a CPU."""
    asked = run.workload
    precision = asked.get("precision")
    if precision in (None, "auto"):
        precision = "float32" if run.device == "cpu" else None
    told = {
        "feed": asked.get("feed") or "ahead",
        "precision": precision,
        "compiled": bool(asked.get("compile")),
        "channels_last": asked.get("channels_last"),
        "teacher": asked.get("teacher"),
        "clip": asked.get("clip"),
        "batch": asked.get("batch"),
    }
    return {name: start.get(name, value) for name, value in told.items()}


def way(run: Run, start: Mapping[str, Any]) -> str | None:
    """Say in words what computed() returns, without the batch: `tf32, compiled, channels last, fed resident`. None:
    unknown."""
    it = computed(run, start)
    words = [str(it["precision"])] if it["precision"] else []
    words += ["compiled"] if it["compiled"] else []
    words += [f"channels {'last' if it['channels_last'] else 'first'}"] if it["channels_last"] is not None else []
    words += ["Winograd"] if start.get("winograd") else []
    words += [f"fed {it['feed']}"] if it["feed"] != "ahead" else []
    words += [f"teacher {it['teacher']}"] if it["teacher"] else []
    words += [f"clipped at {clip:g}"] if (clip := lines.number(it["clip"])) is not None else []
    return ", ".join(words) or None


def without_result(run: Run, start: Mapping[str, Any]) -> str | None:
    """Say why the run's speed is not a training's; None if it is."""
    return _WITHOUT_RESULT.get(str(computed(run, start)["feed"]))


def stages(event: Mapping[str, Any]) -> str | None:
    """Say how fast a pipeline is up to each of its stages, by its `stages` event: `crop 214,496, flip 137,401`."""
    told = lines.lines_in(event.get("stages"))
    rates = [(str(one.get("name")), lines.number(one.get("examples_per_second"))) for one in told]
    return ", ".join(f"{name} {rate:,.0f}" for name, rate in rates if rate is not None) or None


def length(run: Run, start: Mapping[str, Any]) -> str | None:
    """Say how long a training was to be: 1,000 steps; 10 epochs (2,000 steps); 30 s; None if unknown."""
    asked = run.workload
    steps, epochs = start.get("steps", asked.get("steps")), asked.get("epochs")
    words = [f"{steps:,} steps"] if isinstance(steps, int) else []
    if epochs is not None:
        words = [f"{epochs} epochs{f' ({words[0]})' if words else ''}"]
    words += [f"{seconds:g} s"] if (seconds := lines.number(asked.get("seconds"))) is not None else []
    times = f", {many} times" if (many := asked.get("times") or 1) != 1 else ""
    return f"{' or '.join(words)}{times}" if words else None


def place(index: float | None, card_index: float | None) -> str | None:
    """Name a card as --gpus does: 1, or 1:0, the MIG device 0 of card 1; None if its index is unknown."""
    whole = "" if card_index is None else f"{card_index:.0f}:"
    return None if index is None else f"{whole}{index:.0f}"


def device(run: Run) -> str:
    """Return GPU or CPU, or n/a if the framework never reported its device."""
    return run.device.upper() if run.device else "n/a"


def given(run: Run) -> str | None:
    """Return what a command was given to compute on, gpu or cpu; None for a training, or if unknown."""
    if run.workload or not run.spec:
        return None
    if run.gpus is not None:
        return "gpu" if run.gpus else "cpu"
    asked = run.spec.get("gpus")  # on a cluster; auto may have come to nothing
    return {"none": "cpu", "auto": None}.get(str(asked), "gpu") if asked else None


def with_assumed_device(run: Run) -> Run:
    """Return a command's run as if it had computed on the device it was given, any other run unchanged."""
    return replace(run, device=found) if (found := given(run)) else run


def about_data(run: Run) -> str | None:
    """Return what is known of a training's images; None if nothing is."""
    # ngcdl compares a folder that it passes on; Docker Compose, or a cluster's volume, has one that it never saw
    unseen = "not compared with the official files" if run.dataset == "cifar10" else None
    return run.dataset_note or unseen


def counted(names: Iterable[str]) -> list[str]:
    """Return each name once, with its count if it is there several times: 8 × MODEL."""
    return [f"{count} × {name}" if count > 1 else name for name, count in Counter(names).items()]


def hardware(run: Run) -> str | None:
    """Name what the run computed on: its cards, or the processor. None if unknown."""
    if run.device == "gpu":
        names = [gpu.name for gpu in run.machine.gpus or () if run.gpus and gpu.uuid in run.gpus and gpu.name]
        names = names or [gpu.name for gpu in run.summary.gpus if gpu.name]
        return ", ".join(counted(names)) or None
    if run.device == "cpu" and run.machine.cpu:
        return ", ".join(filter(None, (run.machine.cpu, cores(run))))
    return None


def cores(run: Run) -> str | None:
    """Say how many processors the machine had, and how many of them the run was allowed to use; None if unknown."""
    if not run.machine.cores:
        return None
    allowed = "" if run.allowed_cores is None else f"{run.allowed_cores:g} of "
    return f"{allowed}{run.machine.cores} cores"


def on(run: Run) -> str:
    """Say where the run computed: `the GPU (NVIDIA H200)`."""
    if not run.device:
        return "a device that was not recorded"
    there = hardware(run)
    return f"the {device(run)} ({there})" if there else f"the {device(run)}"


def listed(spec: Mapping[str, Any], name: str) -> list[Any]:
    """Return the list of that name in a record's spec; [] if there is none."""
    return value if isinstance(value := spec.get(name), list) else []
