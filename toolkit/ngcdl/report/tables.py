"""The figures of runs side by side, and the conditions they were measured under, as rows of text. n/a is unknown."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal

from ngcdl import __version__
from ngcdl.console import NOT_AVAILABLE, measured, milliseconds, number, operations, size
from ngcdl.record import Run
from ngcdl.report import naming, raced, tuned
from ngcdl.report.story import Story
from ngcdl.report.verdict import duration, rate
from ngcdl.spec import USED_BY

Row = tuple[str, tuple[str, ...]]


def figures(stories: Sequence[Story]) -> list[Row]:
    """Give a row for each figure, a cell for each run. What no run has is left out, but for what everybody asks."""
    has_training = any(story.is_training for story in stories)
    kept = []
    for name, cell, asked in _FIGURES:
        cells = tuple(cell(story) for story in stories)
        wanted = asked == "always" or (asked == "of a training" and has_training)
        if wanted or any(one != NOT_AVAILABLE for one in cells):
            kept.append((name, cells))
    return kept


def outcome(run: Run) -> str:
    words = [run.status]
    words += [f"exit code {run.exit_code}"] if run.exit_code else []
    words += ["out of memory"] if run.oom_killed and run.status != "finished" else []
    words += [duration(run.seconds)] if run.seconds is not None else []
    return ", ".join(words)


def data(run: Run) -> str:
    if not run.dataset:
        return NOT_AVAILABLE
    if not naming.is_synthetic(run):
        return run.dataset
    return "SYNTHETIC" if run.dataset == "synthetic" else f"SYNTHETIC ({run.dataset})"


def _losses(story: Story) -> str:
    summary = story.run.summary
    if summary.loss_first is None:
        return NOT_AVAILABLE
    return f"{measured(summary.loss_first, 2)} → {measured(summary.loss_last, 2)}"


def _computed(story: Story) -> str:
    summary = story.run.summary
    if summary.flops_per_second is None:
        return NOT_AVAILABLE
    peak = (summary.peak_share, summary.peak_source, summary.peak_recalled)
    return operations(summary.flops_per_second, *peak)


def _watts(story: Story) -> str:
    known = [gpu.watts_mean for gpu in story.run.summary.gpus if gpu.watts_mean is not None]
    return measured(sum(known) if known else None, 0, " W")


def _cores(story: Story) -> str:
    cores = story.run.summary.container_cpu_percent_mean
    return number(None if cores is None else cores / 100, 1, " cores")


def _energy(story: Story) -> str:
    summary = story.run.summary
    if summary.energy_joules is None:
        return NOT_AVAILABLE
    return f"{measured(summary.energy_joules, 0)} J ({summary.energy_from or 'source unknown'})"


def _held(story: Story) -> str:
    shares = story.run.summary.throttled_share
    if shares is None:
        return NOT_AVAILABLE
    told = [f"{measured(share * 100, 0)} % of the time ({reason})" for reason, share in shares.items()]
    return ", ".join(told) or "never"


SPEED = "examples/s (median)"
# name, cell, and whether it is shown also where no run has it
_FIGURES: tuple[tuple[str, Callable[[Story], str], Literal["always", "of a training", "where known"]], ...] = (
    ("outcome", lambda it: outcome(it.run), "always"),
    ("computed on", lambda it: naming.device(it.run), "of a training"),
    ("hardware", lambda it: naming.hardware(it.run) or NOT_AVAILABLE, "of a training"),
    ("data", lambda it: data(it.run), "of a training"),
    ("steps", lambda it: number(it.run.summary.steps, 0), "of a training"),
    (SPEED, lambda it: rate(it.run.summary.examples_per_second), "of a training"),
    ("s/batch (median)", lambda it: measured(it.run.summary.seconds_per_batch, 4), "of a training"),
    (
        "teacher's time a batch (median)",
        lambda it: milliseconds(it.run.summary.teacher_seconds_per_batch),
        "where known",
    ),
    ("latency of a batch, p50", lambda it: milliseconds(it.run.summary.latency_p50_seconds), "where known"),
    ("latency of a batch, p95", lambda it: milliseconds(it.run.summary.latency_p95_seconds), "where known"),
    ("examples/s up to each stage", lambda it: naming.stages(it.training.stages) or NOT_AVAILABLE, "where known"),
    ("computed (convolutions and matrix products)", _computed, "where known"),
    ("trained from nothing", lambda it: raced.told(it.training.raced) or NOT_AVAILABLE, "where known"),
    ("loss, first → last", _losses, "where known"),
    ("precision @ 1", lambda it: measured(it.run.summary.precision_at_1, 3), "where known"),
    ("CPU use, all cores", lambda it: number(it.run.summary.cpu_percent_mean, 0, " %"), "always"),
    ("CPU use of the run", _cores, "where known"),
    ("memory at most", lambda it: size(it.run.summary.memory_bytes_max), "where known"),
    ("GPU use", lambda it: number(it.run.summary.gpu_percent_mean, 0, " %"), "always"),
    ("GPU memory at most", lambda it: size(it.run.summary.gpu_memory_bytes_max), "always"),
    ("GPU power (mean)", _watts, "where known"),
    ("GPU clock (mean)", lambda it: number(it.run.summary.sm_mhz_mean, 0, " MHz"), "where known"),
    ("clocks held down", _held, "where known"),
    ("GPU energy while it trained", _energy, "where known"),
    ("examples/J", lambda it: measured(it.run.summary.examples_per_joule, 1), "where known"),
)


def _busy(story: Story) -> str:
    known = [value for value in story.measured.cores if value is not None]
    if known:
        ends = dict.fromkeys(f"{value:.0f}" for value in (min(known), max(known)))
        return f"{' to '.join(ends)} %"
    mean = story.run.summary.cpu_percent_mean
    return NOT_AVAILABLE if mean is None else f"{mean:.0f} % (mean)"


def _last_loss(story: Story) -> str:
    summary = story.run.summary
    if summary.loss_last is None:
        return NOT_AVAILABLE
    return f"{measured(summary.loss_last, 2)} at the end" + (
        f", {summary.steps:,} steps" if summary.steps is not None else ""
    )


# What stands in others' tables, as far as it is measured here too.
COUNTERPARTS: dict[str, Callable[[Story], str]] = {
    "examples/s": lambda it: rate(it.run.summary.examples_per_second),
    "s/batch": lambda it: measured(it.run.summary.seconds_per_batch, 4),
    "CPU, each core": _busy,
    "GPU use": lambda it: number(it.run.summary.gpu_percent_mean, 0, " %"),
    "GPU memory": lambda it: size(it.run.summary.gpu_memory_bytes_max),
    "loss": _last_loss,
    "test accuracy": lambda it: number(it.run.summary.precision_at_1, 4),
}


RUN = "run"
_OF_A_TRAINING = (
    *("framework", "data", "training images, sha256", "asked for", "batch", "seed", "threads", "computed in"),
    "parameters",
)


def conditions(story: Story) -> list[tuple[str, str]]:
    """Say under what all of it was measured, down to the line that asks for the same."""
    run, machine, start = story.run, story.run.machine, story.training.start
    training = naming.workload(run)
    there = None if machine.gpus is None else [gpu.name or gpu.uuid for gpu in machine.gpus]
    rows = [
        (RUN, run.id),
        (
            "started",
            time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(run.started)) if _is_date(run.started) else None,
        ),
        ("image", run.image.reference or ("none: this host's own Python" if run.engine == "local" else None)),
        ("image digest", run.image.digest or ("none" if run.engine == "local" else None)),
        ("framework", _framework(story)),
        ("engine", _words(run.engine, run.engine_version)),
        ("GPUs handed on by", run.gpu_way),
        ("NVIDIA driver", machine.driver or ("none" if machine.gpus == () else None)),
        ("GPUs of the machine", _cards(there)),
        ("GPUs of the run", _cards(_used(run))),
        ("machine", _words(machine.hostname, machine.cpu, f"{machine.cores} cores" if machine.cores else None)),
        ("memory of the machine", size(machine.memory_bytes)),
        ("kernel", machine.kernel),
        ("data", f"{data(run)}{f': {run.dataset_note}' if run.dataset_note else ''}"),
        ("training images, sha256", start.get("dataset_sha256")),
        ("asked for", naming.length(run, start)),
        ("batch", naming.computed(run, start)["batch"]),
        ("seed", training.get("seed") if training.get("seed") is not None else start.get("seed")),
        ("threads", start.get("threads") or "all"),
        ("computed in", naming.way(run, start)),
        *([("chosen by trial", text)] if (text := tuned.told(start)) else []),
        ("parameters", f"{value:,}" if isinstance(value := start.get("parameters"), int) else None),
        ("samples that lack a reading", _gaps(run)),
        ("recorded by ngcdl", run.ngcdl),
        ("this page made by ngcdl", __version__),
        ("to repeat it", f"ngcdl runs replay {run.id}" if run.spec else "n/a: ngcdl did not start it"),
        ("as a command", naming.command(run)),
    ]
    shown = [(name, NOT_AVAILABLE if value in (None, "") else str(value)) for name, value in rows]
    return [(name, value) for name, value in shown if story.is_training or name not in _OF_A_TRAINING]


def _cards(named: Sequence[str | None] | None) -> str | None:
    return None if named is None else ", ".join(one or NOT_AVAILABLE for one in named) or "none"


def _used(run: Run) -> Sequence[str | None] | None:
    """Give the UUIDs of the run's cards: which they are of a cluster's, only those that were read on its nodes tell."""
    if run.gpus is None and run.engine in USED_BY and run.device == "gpu":
        return [gpu.uuid for gpu in run.summary.gpus] or None
    return run.gpus


def _framework(story: Story) -> str | None:
    start = story.training.start
    names = {"tf1": "TensorFlow", "tf2": "TensorFlow", "pytorch": "PyTorch"}
    name = names.get(str(start.get("framework")), start.get("framework"))
    python = start.get("python")
    return _words(
        f"{name} {start.get('framework_version') or ''}".strip() if name else None, python and f"Python {python}"
    )


def _words(*values: object) -> str | None:
    return ", ".join(str(value) for value in values if value not in (None, "")) or None


def _gaps(run: Run) -> str | None:
    if run.summary.samples is None:
        return None
    return f"{run.summary.gaps or 0} of {run.summary.samples}"


def _is_date(seconds: float) -> bool:
    return 0 <= seconds < 253_402_300_800  # to the year 9999, which is as far as dates are written
