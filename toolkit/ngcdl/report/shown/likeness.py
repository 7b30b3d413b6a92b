"""Why two runs shown side by side can't be compared, and what differs between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ngcdl.figures import size
from ngcdl.record import Run
from ngcdl.report.compared.unlike import Entry, MeasuredRun, Refusal, refusals, written
from ngcdl.report.measured import naming, tuned
from ngcdl.report.measured.case import is_command
from ngcdl.report.shown.story import Story

# Fields that `ngcdl compare` keeps the same, but that two runs of different days rarely share. Alone they don't change
# what a step is, so a difference in them refuses nothing, and is only listed beside the figures (_LOOKED_AT).
_NAMED_ONLY = frozenset({
    "steps", "epochs", "seconds", "evaluate", "resume", "gpu_way", "gpus", "mounts", "environment", "ports", "user",
    "workdir", "shm_bytes", "ulimits", "memory_bytes", "machine", "driver", "engine", "ngcdl",
})  # fmt: skip
_COMPUTED = ("feed", "precision", "compiled", "channels_last", "teacher", "clip")
# Parts of the spec and of the placement.
_ASKED = (
    "environment", "mounts", "ports", "shm_bytes", "ulimits", "cpu_limit", "memory_bytes", "nodes", "partition",
    "container", "cpus", "options", "patches",
)  # fmt: skip

SIZES = {"shm_bytes": "size of /dev/shm", "memory_bytes": "memory limit"}


def _computed(name: str) -> Callable[[Story], Any]:
    return lambda it: naming.computed(it.run, it.training.start)[name] if it.is_training else None


def _asked(name: str) -> Callable[[Story], Any]:
    def value(it: Story) -> Any:
        found = {**(it.run.spec or {}), **it.run.placement}.get(name)
        if isinstance(found, Mapping):
            found = [f"{key}={one}" for key, one in found.items() if key not in naming.PLANNED]
        if name in SIZES and isinstance(found, int):
            return size(found)
        return ", ".join(map(str, found)) or "none" if isinstance(found, list | tuple) else found

    return value


def _cards(run: Run) -> str | None:
    """Name the cards of a command, which rarely reports its device; None for a training: "hardware" names its cards."""
    if run.gpus is None or not is_command(run):
        return None
    return ", ".join(run.gpus) or "none"


_LOOKED_AT: tuple[tuple[str, Callable[[Story], Any]], ...] = (
    ("workload", lambda it: it.run.workload.get("name") or it.training.start.get("workload")),
    ("dataset", lambda it: it.run.dataset),
    ("training images", lambda it: it.training.start.get("dataset_images")),
    ("training images, sha256", lambda it: it.training.start.get("dataset_sha256")),
    ("command", lambda it: naming.typed(it.run)),
    ("program", lambda it: it.run.program),
    ("folder", lambda it: naming.folder(it.run)),
    *((SIZES.get(name, name.replace("_", " ")), _asked(name)) for name in _ASKED),
    ("image", lambda it: it.run.image.reference),
    ("image digest", lambda it: it.run.image.identity),
    ("packages added", lambda it: ", ".join(it.run.packages or ()) or None),
    ("framework", lambda it: it.training.start.get("framework")),
    ("framework's version", lambda it: it.training.start.get("framework_version")),
    ("batch", lambda it: it.training.start.get("batch", it.run.workload.get("batch"))),
    ("seed", lambda it: it.training.start.get("seed", it.run.workload.get("seed"))),
    ("requested", lambda it: naming.length(it.run, it.training.start)),
    ("threads", lambda it: (it.training.start.get("threads") or "all") if it.is_training else None),
    *((name.replace("_", " "), _computed(name)) for name in _COMPUTED),
    ("oneDNN", lambda it: tuned.onednn(it.training.start)),
    ("resumed from step", lambda it: it.training.start.get("resumed_from_step")),
    ("computed on", lambda it: it.run.device),
    ("GPUs of the run", lambda it: _cards(it.run)),
    ("GPUs of each node", lambda it: _asked("gpus")(it) if it.run.placement else None),
    ("GPU access", lambda it: it.run.gpu_way),
    ("hardware", lambda it: naming.hardware(it.run)),
    ("machine", lambda it: it.run.machine.hostname),
    ("engine", lambda it: it.run.engine),
    ("NVIDIA driver", lambda it: it.run.machine.driver),
    ("ngcdl's version", lambda it: it.run.ngcdl),
)


def differences(stories: Sequence[Story]) -> list[tuple[str, tuple[str, ...]]]:
    """Return what differs between the runs: names, each with a value for every run; n/a is unknown."""
    found = []
    for name, value in _LOOKED_AT:
        values = tuple(written(value(story)) for story in stories)
        if len(set(values)) > 1:
            found.append((name, values))
    # The same image may be named by its tag and by its digest.
    digests = {story.run.image.identity for story in stories}
    return [one for one in found if one[0] != "image" or len(digests) > 1 or None in digests]


def refused(one: Story, other: Story) -> list[str]:
    """Return why two runs can't be compared; [] if they can."""
    return kept_apart({it.letter: MeasuredRun(it.run, it.training.start, it.training.error) for it in (one, other)})


def kept_apart(two: Mapping[str, MeasuredRun]) -> list[str]:
    """Return why two runs, by name, can't be compared; [] if they can."""
    entries = [Entry(name, 1, measured) for name, measured in two.items()]
    vary = "device" if len({entry.run.device for entry in entries}) > 1 else ""
    return [_said(refusal) for refusal in refusals(entries, vary) if refusal.field not in _NAMED_ONLY]


def _said(refusal: Refusal) -> str:
    if refusal.kind != "differ":
        return f"{' and '.join(label.partition(',')[0] for label in refusal.values)}: {refusal.text}"
    shown = " / ".join(map(written, refusal.values.values()))
    return f"different {refusal.name}{f' ({shown})' if len(shown) < 60 else ''}"
