"""Made-up runs to compare: one record each, as a comparison sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ngcdl.record import Gpu, Image, Machine, Run, Summary
from ngcdl.report.compared import in_words
from ngcdl.report.compared.comparison import Arm, Comparison
from ngcdl.report.compared.unlike import MeasuredRun

CARD = "GPU-1"
MACHINE = Machine("host", "Xeon", 16, gpus=(Gpu(0, "GeForce GTX 1050 Ti", CARD),), driver="390.12")
WORKLOAD = {"name": "cifar10", "steps": 200, "batch": 128, "seed": 0, "data": "auto", "device": "cpu", "threads": None}
OLD_START = {
    "event": "start", "framework": "tf1", "framework_version": "1.4.0", "dataset_sha256": "aa", "parameters": 10,
}  # fmt: skip
START = {**OLD_START, "channels_last": False}


def measured(
    run_id: str, rate: float | None, device: str | None = "cpu", workload: Mapping[str, Any] = {}, **more: Any
) -> MeasuredRun:
    """Return a run that succeeded at `rate`; `more` are other record fields, `start` and `error` the trainer's."""
    start, error = more.pop("start", START), more.pop("error", None)
    asked = {**WORKLOAD, "device": device, **workload}
    spec = {"image": "t:1", "workload": asked, "mounts": ["/a:/b:ro"], "environment": {}, "command": [run_id]}
    run = Run(
        run_id, "finished", 1.0, exit_code=0, engine="docker", gpu_way="runtime", image=Image("t:1", "sha256:1"),
        dataset="cifar10", device=device, gpus=(CARD,), machine=MACHINE, spec=spec, ngcdl="1.0",
        summary=Summary(steps=200, examples_per_second=rate, seconds_per_batch=128 / rate if rate else None),
    )  # fmt: skip
    return MeasuredRun(replace(run, **more), start, error)


def arm(
    name: str, rate: float | None, device: str | None = "cpu", workload: Mapping[str, Any] = {}, **more: Any
) -> Arm:
    """Return an arm of two equal rounds."""
    return Arm(name, tuple(measured(f"{name}{n}", rate, device, workload, **more) for n in (1, 2)))


def arms(cpu: list[float], gpu: list[float], *changed: tuple[int, MeasuredRun]) -> list[Arm]:
    """Return a CPU arm and a GPU arm at these rates; `changed` replaces GPU runs by round."""
    slow = tuple(measured(f"c{n}", rate) for n, rate in enumerate(cpu, 1))
    fast = {n: measured(f"g{n}", rate, "gpu") for n, rate in enumerate(gpu, 1)}
    return [Arm("cpu", slow, "cpu"), Arm("gpu", tuple((fast | dict(changed)).values()), "gpu")]


def refused(it: Comparison) -> list[str]:
    return [refusal.field for refusal in it.refused]


def text(it: Comparison) -> str:
    return "\n".join(in_words.lines(it))
