"""How long a comparison will probably take: estimated from runs here before, else from assumptions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ngcdl.record import Run, Summary
from ngcdl.report.measured.expected import ASSUMED_FLOPS, ASSUMED_SECONDS, LEAST_SECONDS, Pace, Work, pace, seconds

FLOPS = {"cifar10": 100e6, "lstm": 50e6}


def ran(workload: str, rate: float | None, device: str | None = "cpu", status: str = "finished") -> Run:
    """A run of 100 steps of 0.1 s each, plus 7 s of other time."""
    figures = Summary(steps=100, examples_per_second=rate, seconds_per_batch=0.1)
    return Run("r", status, 0.0, 17.0, device=device, spec={"workload": {"name": workload}}, summary=figures)


def test_what_trained_here_says_how_fast_its_workload_is_and_its_device() -> None:
    at = pace([ran("cifar10", 1000.0), ran("cifar10", 3000.0), ran("lstm", 100.0), ran("lstm", 9e5, "gpu")], FLOPS)
    assert (at.flops("cifar10", "cpu"), at.flops("lstm", "cpu"), at.flops("lstm", "gpu")) == (200e9, 5e9, 45e12)
    assert at.flops("catdog", "cpu") == pytest.approx((200e9 + 5e9) / 2)
    assert at.is_measured


def test_what_a_run_takes_beside_its_steps_is_its_workload_s_and_of_another_at_least_what_an_import_takes() -> None:
    long = replace(ran("lstm", 100.0), finished=40.0)
    resumed = replace(ran("cifar10", 9.0), spec={"workload": {"name": "cifar10", "resume": "r"}}, finished=10.0)
    at = pace([ran("cifar10", 1000.0), resumed, long], FLOPS)
    assert (at.start("cifar10"), at.start("lstm"), at.start("catdog")) == pytest.approx((7.0, 30.0, 18.5))
    assert pace([ran("cifar10", 1000.0)], FLOPS).start("catdog") == LEAST_SECONDS


def test_where_nothing_trained_here_something_is_assumed() -> None:
    silent = [
        ran("cifar10", None), ran("cifar10", 5.0, status="failed"), ran("cifar10", 5.0, None), ran("mine", 5.0)
    ]  # fmt: skip
    elsewhere = [replace(ran("cifar10", 5.0), engine=engine) for engine in ("slurm", "kubernetes")]
    at = pace([*silent, *elsewhere, replace(ran("cifar10", 5.0), spec=None)], FLOPS)
    assert at == Pace()
    assert not at.is_measured
    assert (at.flops("cifar10", "cpu"), at.flops("cifar10", "gpu")) == (ASSUMED_FLOPS["cpu"], ASSUMED_FLOPS["gpu"])
    assert at.start("cifar10") == ASSUMED_SECONDS


def test_an_estimate_is_of_all_arms_and_rounds() -> None:
    work = Work("cifar10", (("cpu", 1e12), ("gpu", 1e12)), 3)
    at = Pace({("cifar10", "cpu"): 1e11, ("cifar10", "gpu"): 1e12}, {}, {"cifar10": 5.0}, 99.0)
    assert seconds(work, at) == pytest.approx(3 * (5 + 10 + 5 + 1))
