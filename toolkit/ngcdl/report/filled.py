"""A run completed with what its trainer and its samples report. Pure: lines in, a record out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ngcdl.record import Run
from ngcdl.report import figures
from ngcdl.report.bottleneck import diagnose
from ngcdl.report.case import is_command
from ngcdl.report.lines import last_start


def filled(run: Run, events: Sequence[figures.Line], samples: Iterable[figures.Line]) -> Run:
    """Return `run` with its dataset, device, summary and findings, as far as `events` and `samples` report them."""
    if start := last_start(events):
        run = replace(run, dataset=figures.text(start.get("dataset")), device=figures.text(start.get("device")))
        run = replace(run, dataset_note=run.dataset_note or figures.text(start.get("dataset_note")))
    run = replace(run, summary=figures.summary(events, samples, run.machine.cores, is_command(run)))
    return replace(run, findings=diagnose(run, run.summary, events))
