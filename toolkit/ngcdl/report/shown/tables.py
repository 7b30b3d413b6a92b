"""The figures of runs side by side, and the conditions of measurement, as rows of text. n/a is unknown."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal

from ngcdl import __version__
from ngcdl.figures import NOT_AVAILABLE, measured, number, size
from ngcdl.record import ACTIVITY, Run
from ngcdl.report.measured import naming, raced, retyped, tuned
from ngcdl.report.measured.lines import known_values
from ngcdl.report.measured.words import HELD_DOWN, called, card_memory, computed, formatted, outcome
from ngcdl.report.shown.story import Story
from ngcdl.report.shown.verdict import rate
from ngcdl.trainings import WRITTEN

Row = tuple[str, tuple[str, ...]]


def figures(stories: Sequence[Story]) -> list[Row]:
    """Return a row for each figure, with a cell for each run. A figure that no run has is left out, unless readers
    always expect it."""
    has_training = any(story.is_training for story in stories)
    has_several = any(len(story.run.summary.gpus) > 1 for story in stories)
    kept = []
    for name, cell, asked in _FIGURES:
        if has_several:
            name = _OF_SEVERAL.get(name, name)
        cells = tuple(cell(story) for story in stories)
        wanted = asked == "always" or (asked == "of a training" and has_training)
        if wanted or any(one != NOT_AVAILABLE for one in cells):
            kept.append((name, cells))
    return kept


def data(run: Run) -> str:
    if not run.dataset:
        return NOT_AVAILABLE
    if not run.is_synthetic:
        return run.dataset
    return "SYNTHETIC" if run.dataset == "synthetic" else f"SYNTHETIC ({run.dataset})"


def _losses(story: Story) -> str:
    summary = story.run.summary
    if summary.loss_first is None:
        return NOT_AVAILABLE
    return f"{formatted(summary, 'loss_first')} → {formatted(summary, 'loss_last')}"


def _watts(story: Story) -> str:
    gpus = story.run.summary.used_gpus
    each = known_values(gpu.watts_mean for gpu in gpus)
    return measured(sum(each) if each and len(each) == len(gpus) else None, 0, " W")


def _energy(story: Story) -> str:
    summary = story.run.summary
    if summary.energy_joules is None:
        return NOT_AVAILABLE
    span = "" if summary.energy_seconds is None else f" in {measured(summary.energy_seconds, 0, ' s')}"
    return f"{formatted(summary, 'energy_joules')}{span} ({summary.energy_from or 'source unknown'})"


def _gpu_use(story: Story) -> str:
    return "none" if story.run.gpus == () else formatted(story.run.summary, "gpu_percent_mean", digits=0)


def _gpu_memory(story: Story) -> str:
    """Say it of the card that had most in use."""
    run = story.run
    if run.gpus == ():
        return "none"
    full = max(run.summary.used_gpus, key=lambda card: card.memory_bytes_max or 0, default=None)
    if full is None or full.memory_bytes_max != run.summary.gpu_memory_bytes_max:
        return formatted(run.summary, "gpu_memory_bytes_max")
    return card_memory(run, full)


def _held(story: Story) -> str:
    shares = story.run.summary.throttled_share
    if shares is None:
        return NOT_AVAILABLE
    said = [f"{measured(share * 100, 0)} % of the time ({reason})" for reason, share in shares.items()]
    return ", ".join(said) or "never"


Wanted = Literal["always", "of a training", "where known"]  # when a row is shown even if no run has the figure
Figure = tuple[str, Callable[[Story], str], Wanted]


def _figure(name: str, wanted: Wanted = "where known", **digits: int) -> Figure:
    """Return the row for a field of the summary."""
    return called(name), lambda it: formatted(it.run.summary, name, **digits), wanted


# Of a run with several cards these figures need a word more.
_OF_SEVERAL = {"GPU power (mean)": "GPU power (mean, its cards together)", "GPU use": "GPU use (mean of its cards)"}
SPEED = called("examples_per_second")
_FIGURES: tuple[Figure, ...] = (
    ("outcome", lambda it: outcome(it.run), "always"),
    ("computed on", lambda it: naming.device(it.run), "of a training"),
    ("hardware", lambda it: naming.hardware(it.run) or NOT_AVAILABLE, "of a training"),
    ("data", lambda it: data(it.run), "of a training"),
    _figure("steps", "of a training"),
    (SPEED, lambda it: rate(it.run.summary.examples_per_second), "of a training"),
    _figure("seconds_per_batch", "of a training"),
    _figure("teacher_seconds_per_batch"),
    _figure("latency_p50_seconds"),
    _figure("latency_p95_seconds"),
    ("examples/s up to each stage", lambda it: naming.stages(it.training.stages) or NOT_AVAILABLE, "where known"),
    (called("flops_per_second"), lambda it: computed(it.run.summary), "where known"),
    ("trained from scratch", lambda it: raced.in_words(it.training.raced) or NOT_AVAILABLE, "where known"),
    ("loss, first → last", _losses, "where known"),
    _figure("precision_at_1"),
    _figure("cpu_percent_mean", "always", digits=0),
    _figure("container_cpu_percent_mean"),
    _figure("memory_bytes_max"),
    (called("gpu_percent_mean"), _gpu_use, "always"),
    *(_figure(f"{name}_mean") for name in ACTIVITY),
    (called("gpu_memory_bytes_max"), _gpu_memory, "always"),
    ("GPU power (mean)", _watts, "where known"),
    _figure("sm_mhz_mean"),
    (HELD_DOWN, _held, "where known"),
    (called("energy_joules"), _energy, "where known"),
    _figure("examples_per_joule"),
)


def _busy(story: Story) -> str:
    if known := known_values(story.measured.cores):
        ends = dict.fromkeys(f"{value:.0f}" for value in (min(known), max(known)))
        return f"{' to '.join(ends)} %"
    mean = story.run.summary.cpu_percent_mean
    return NOT_AVAILABLE if mean is None else f"{mean:.0f} % (mean)"


def _last_loss(story: Story) -> str:
    summary = story.run.summary
    if summary.loss_last is None:
        return NOT_AVAILABLE
    return f"{formatted(summary, 'loss_last')} at the end" + (
        f", {summary.steps:,} steps" if summary.steps is not None else ""
    )


# The figures in others' tables that are measured here, too.
COUNTERPARTS: dict[str, Callable[[Story], str]] = {
    "examples/s": lambda it: rate(it.run.summary.examples_per_second),
    "s/batch": lambda it: formatted(it.run.summary, "seconds_per_batch"),
    "CPU, each core": _busy,
    "GPU use": _gpu_use,
    "GPU memory": _gpu_memory,
    "loss": _last_loss,
    "test accuracy": lambda it: number(it.run.summary.precision_at_1, 4),
}


RUN = "run"
_OF_A_TRAINING = (
    *("framework", "data", "training images, sha256", "requested", "batch", "seed", "threads", "compute settings"),
    "parameters",
)


def conditions(story: Story) -> list[tuple[str, str]]:
    """Return the conditions of measurement, down to the command that repeats the run."""
    run, machine, start = story.run, story.run.machine, story.training.start
    training = run.workload
    no_image = (None, None) if run.kind.has_containers else (naming.NO_IMAGE[bool(training)], "none")
    there = None
    if machine.gpus is not None:
        there = naming.counted(gpu.name or gpu.uuid or NOT_AVAILABLE for gpu in machine.gpus)
    rows = [
        (RUN, run.id),
        ("started", _date(run.started)),
        # a page is kept or mailed, so how far a run had come says nothing without a date
        *([("as of", _date(time.time()))] if run.status == "running" else []),
        ("image", run.image.reference or no_image[0]),
        ("image digest", run.image.digest or no_image[1]),
        *([("image id", run.image.id)] if run.image.id else []),
        *([("packages added", ", ".join(run.packages) or "none")] if run.packages is not None else []),
        ("framework", _framework(story)),
        ("engine", _words(run.engine, run.engine_version)),
        ("GPU access", run.gpu_way),
        ("NVIDIA driver", machine.driver or ("none" if machine.gpus == () else None)),
        ("GPUs of the machine", _cards(there)),
        ("GPUs of the run", _cards(_used(run))),
        ("machine", _words(machine.hostname, machine.cpu, naming.cores(run))),
        ("memory of the machine", size(machine.memory_bytes)),
        ("kernel", machine.kernel),
        ("data", ": ".join(filter(None, (data(run), naming.about_data(run))))),
        ("training images, sha256", start.get("dataset_sha256")),
        ("requested", naming.length(run, start)),
        ("batch", naming.computed(run, start)["batch"]),
        ("seed", training.get("seed") if training.get("seed") is not None else start.get("seed")),
        ("threads", start.get("threads") or "all"),
        ("compute settings", naming.way(run, start)),
        *([("chosen by trial", text)] if (text := tuned.in_words(start)) else []),
        ("parameters", f"{value:,}" if isinstance(value := start.get("parameters"), int) else None),
        ("incomplete samples", _gaps(run)),
        ("recorded by ngcdl", run.ngcdl),
        ("page made by ngcdl", __version__),
        ("repeat with", _again(run)),
        ("full command", retyped.command(run)),
    ]
    shown = [(name, NOT_AVAILABLE if value in (None, "") else str(value)) for name, value in rows]
    return [(name, value) for name, value in shown if story.is_training or name not in _OF_A_TRAINING]


def _again(run: Run) -> str:
    if not run.spec:
        return f"{NOT_AVAILABLE}: ngcdl did not start it"
    if run.kind.has_containers and not run.image.identity:  # as of docker compose, which has only tags
        return f"{NOT_AVAILABLE}: the digest of its image was not recorded"
    return f"ngcdl runs replay {run.id}"


def _cards(named: Sequence[str | None] | None) -> str | None:
    return None if named is None else ", ".join(one or NOT_AVAILABLE for one in named) or "none"


def _used(run: Run) -> Sequence[str | None] | None:
    """Return the UUIDs of the run's cards, which on a cluster are known only from readings on the nodes."""
    if run.gpus is None and run.kind.is_cluster and run.device == "gpu":
        return [gpu.uuid for gpu in run.summary.gpus] or None
    return run.gpus


def _framework(story: Story) -> str | None:
    start = story.training.start
    name, python = start.get("framework"), start.get("python")
    name = WRITTEN.get(str(name), "").partition(" ")[0] or name  # without its number, which begins its version
    return _words(
        f"{name} {start.get('framework_version') or ''}".strip() if name else None, python and f"Python {python}"
    )


def _words(*values: object) -> str | None:
    return ", ".join(str(value) for value in values if value not in (None, "")) or None


def _gaps(run: Run) -> str | None:
    if run.summary.samples is None:
        return None
    return f"{run.summary.gaps or 0} of {run.summary.samples}"


def _date(seconds: float) -> str | None:
    if not 0 <= seconds < 253_402_300_800:  # through the year 9999, the last that strftime writes
        return None
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
