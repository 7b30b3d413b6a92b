"""A run completed with what its trainer and its samples report. Pure: lines in, a record out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ngcdl.record import Run
from ngcdl.report.measured.bottleneck import diagnose
from ngcdl.report.measured.case import is_command
from ngcdl.report.measured.figures import summary
from ngcdl.report.measured.lines import Line, text
from ngcdl.report.measured.told import Told


def filled(run: Run, told: Told, samples: Iterable[Line]) -> Run:
    """Return `run` with its dataset, device, summary and findings, as far as its events and `samples` report them."""
    if start := told.start:
        run = replace(run, dataset=text(start.get("dataset")), device=text(start.get("device")))
        run = replace(run, dataset_note=run.dataset_note or text(start.get("dataset_note")))
    run = replace(run, summary=summary(told, samples, run.machine.cores, is_command(run)))
    return replace(run, findings=diagnose(run, told))
