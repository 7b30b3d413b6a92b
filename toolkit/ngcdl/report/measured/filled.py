"""A run completed with what its trainer and its samples report. Pure: lines in, a record out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ngcdl.record import Run
from ngcdl.report.measured.bottleneck import diagnose
from ngcdl.report.measured.case import is_command
from ngcdl.report.measured.figures import summary
from ngcdl.report.measured.lines import Line, last_start, text


def filled(run: Run, events: Sequence[Line], samples: Iterable[Line]) -> Run:
    """Return `run` with its dataset, device, summary and findings, as far as `events` and `samples` report them."""
    if start := last_start(events):
        run = replace(run, dataset=text(start.get("dataset")), device=text(start.get("device")))
        run = replace(run, dataset_note=run.dataset_note or text(start.get("dataset_note")))
    run = replace(run, summary=summary(events, samples, run.machine.cores, is_command(run)))
    return replace(run, findings=diagnose(run, events))
