"""Made-up measurements of a run on a GPU or CPU with a given load, and the bottleneck that ngcdl names for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ngcdl.record import Finding, GpuSummary, Machine, Run, Summary
from ngcdl.report.measured import figures
from ngcdl.report.measured import filled as measured
from ngcdl.report.measured.bottleneck import diagnose
from ngcdl.report.measured.lines import Line
from ngcdl.report.measured.told import Told

SPEC: dict[str, Any] = {"workload": {"device": "gpu", "batch": 128}}
GPU_RUN = Run("x", "finished", 1.0, device="gpu", spec=SPEC, machine=Machine(cores=8, memory_bytes=1 << 34))
CPU_RUN = replace(GPU_RUN, device="cpu", spec={"workload": {"device": "cpu", "batch": 128}})
OOM = {"event": "error", "kind": "out_of_memory", "message": "ResourceExhaustedError"}


def summary(
    events: Iterable[Line], samples: Iterable[Line], cores: int | None = None, is_command: bool = False
) -> Summary:
    return figures.summary(Told(events), samples, cores, is_command)


def filled(run: Run, events: Iterable[Line], samples: Iterable[Line]) -> Run:
    return measured.filled(run, Told(events), samples)


def gpu(percent: float | None, **more: Any) -> Summary:
    """Return the measurements of a run on one GPU with this load, and on a CPU with little to do."""
    card = GpuSummary("GPU-1", "a card", percent, index=0)
    calm = Summary(training_samples=20, gpus=(card,), gpu_percent_mean=percent, seconds_per_batch=0.1,
                   cpu_percent_mean=20.0, cores_busy=1.6, cpu_busiest_core_percent_mean=50.0)  # fmt: skip
    return replace(calm, **more)


def cpu(percent: float | None, **more: Any) -> Summary:
    busy = None if percent is None else percent / 100 * 8
    return replace(Summary(training_samples=20, cpu_percent_mean=percent, cores_busy=busy), **more)


def findings(summary: Summary, run: Run = GPU_RUN, *events: dict[str, Any]) -> tuple[Finding, ...]:
    return diagnose(replace(run, summary=summary), Told(events))


def rules(summary: Summary, run: Run = GPU_RUN, *events: dict[str, Any]) -> list[str]:
    return [found.rule for found in findings(summary, run, *events)]


def only(summary: Summary, run: Run = GPU_RUN, *events: dict[str, Any]) -> Finding:
    (found,) = findings(summary, run, *events)
    return found
