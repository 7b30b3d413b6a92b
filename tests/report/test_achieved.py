"""The share of its card's peak that a training achieved, and shares that are impossible."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_summaries import summary

from ngcdl.figures import operations
from ngcdl.record import Finding, Run, Summary
from ngcdl.report.measured.bottleneck import diagnose
from ngcdl.report.measured.told import Told
from ngcdl.report.shown.story import SampledCurves, Story, Training
from ngcdl.report.shown.tables import figures

START = {
    "event": "start", "device": "gpu", "devices": ["NVIDIA A100-SXM4-80GB"], "precision": "tf32",
    "flops_per_example": 31_026_327_552, "share_of_3x3": 0.0,
}  # fmt: skip
RUN = Run("x", "finished", 1.0, device="gpu")


def steps(rate: float) -> list[dict[str, Any]]:
    return [{"event": "step", "step": k, "t": float(k), "examples_per_second": rate if k else None} for k in range(9)]


def trained(rate: float, mhz: float | None = None, **start: Any) -> Summary:
    card = {"index": 0, "uuid": "GPU-1", "name": "NVIDIA A100-SXM4-80GB", "gpu_percent": 95, "sm_mhz": mhz}
    samples = [{"t": 0.5 + k, "host_cpu_percent": None, "gpus": [card]} for k in range(8)]
    return summary([{**START, **start}, *steps(rate)], samples)


def found(rate: float, **start: Any) -> list[Finding]:
    run = replace(RUN, summary=trained(rate, **start))
    return [one for one in diagnose(run, Told([{**START, **start}])) if one.rule == "above-peak"]


def test_the_operations_are_those_of_an_example_times_the_rate() -> None:
    summed = trained(2500.0)
    assert summed.flops_per_second == pytest.approx(77.57e12, rel=1e-3)
    assert summed.peak_share == pytest.approx(77.57 / 155.9, rel=1e-3)
    assert operations(77.57e12, 0.4975) == "77.57 TFLOP/s, 50 % of the card's peak"
    assert operations(819.18e9, 0.00153) == "819.18 GFLOP/s, 0.15 % of the card's peak", (
        "as on an H100 that waits; not 0"
    )


@pytest.mark.parametrize(("card", "source", "recalled", "said"), [
    ("NVIDIA A100-SXM4-80GB", "https://developer.nvidia.com/blog/nvidia-ampere-architecture-in-depth", False,
     "[https://developer.nvidia.com/blog/nvidia-ampere-architecture-in-depth]"),
    ("TITAN RTX", "https://images.nvidia.com/", True, "[from memory: no source]"),
])  # fmt: skip
def test_beside_the_share_stands_where_the_peak_is_from(card: str, source: str, recalled: bool, said: str) -> None:
    summed = trained(2500.0, devices=[card])
    assert (summed.peak_source or "").startswith(source)
    assert summed.peak_recalled is recalled
    run = replace(RUN, summary=summed)
    (row,) = (
        cells
        for name, cells in figures([Story(run, Training(), SampledCurves())])
        if name.startswith("compute throughput")
    )
    assert row[0].endswith(f" % of the card's peak {said}")


def test_the_tensor_cores_of_a_hopper_are_rated_at_their_own_clock() -> None:
    at = {mhz: trained(2500.0, mhz, devices=["NVIDIA H100 80GB HBM3"]).peak_share for mhz in (1830.0, 1980.0)}
    assert at[1830.0] == pytest.approx(77.57 / 494.7, rel=1e-3)
    assert at[1980.0] == pytest.approx(77.57 / 494.7 * 1830 / 1980, rel=1e-3)


@pytest.mark.parametrize(
    ("precision", "tflops"), [("float32", 19.49), (None, 19.49), ("bfloat16", 311.9), ("float16", 311.9)]
)
def test_the_peak_is_that_of_the_precision_which_was_computed_in(precision: str | None, tflops: float) -> None:
    assert trained(100.0, precision=precision).peak_share == pytest.approx(3.1026 / tflops, rel=1e-3)


def test_the_peak_of_several_cards_is_that_of_all() -> None:
    assert trained(2500.0, replicas=2).peak_share == pytest.approx(77.57 / 155.9 / 2, rel=1e-3)


def test_a_card_that_ran_faster_than_rated_could_do_more() -> None:
    assert trained(2500.0, mhz=1551).peak_share == pytest.approx(77.57 / 155.9 / 1.1, rel=1e-3)
    assert trained(2500.0, mhz=705).peak_share == trained(2500.0).peak_share


@pytest.mark.parametrize("start", [{"device": "cpu"}, {"devices": ["NVIDIA of 2040"]}])
def test_of_a_cpu_or_an_unknown_card_only_the_operations_are_told(start: dict[str, Any]) -> None:
    bare = summary([{**START, **start}, *steps(10.0)], [])
    assert bare.flops_per_second == pytest.approx(310e9, rel=1e-2)
    assert bare.peak_share is None
    assert operations(310.26e9, None) == "310.26 GFLOP/s"


def test_a_mig_device_has_no_peak_though_its_card_has() -> None:
    assert trained(100.0, devices=["NVIDIA A100-SXM4-80GB MIG 1g.10gb"]).peak_share is None
    mig = {"index": 0, "uuid": "MIG-1", "name": "NVIDIA A100-SXM4-80GB MIG 1g.10gb", "gpu_percent": None}
    samples = [{"t": 0.5 + k, "host_cpu_percent": None, "gpus": [mig]} for k in range(8)]
    # TensorFlow 1 reports the name of the whole card, the only one that NVML has.
    assert summary([START, *steps(100.0)], samples).peak_share is None


def test_where_the_framework_has_a_name_of_its_own_for_its_card_the_driver_s_is_taken() -> None:
    for name in ("/job:localhost/replica:0/task:0/device:GPU:0", "/physical_device:GPU:0"):
        assert trained(2500.0, devices=[name]).peak_share == trained(2500.0).peak_share


def test_older_records_tell_nothing_of_it() -> None:
    assert trained(10.0, flops_per_example=None).flops_per_second is None
    assert summary(steps(10.0), []).flops_per_second is None


@pytest.mark.parametrize(
    ("share", "small", "rule"),
    [(0.99, 0.0, False), (1.02, 0.0, True), (1.02, None, True), (2.2, 0.9, False), (2.3, 0.9, True), (1.02, 0.4, True)],
)
def test_more_than_the_card_can_do_is_flagged_but_for_what_winograd_spares(
    share: float, small: float | None, rule: bool
) -> None:
    rate = share * 155.9e12 / 31_026_327_552
    assert bool(found(rate, share_of_3x3=small)) is rule


def test_the_flag_says_what_is_wrong() -> None:
    (flag,) = found(10_000.0)
    assert flag.text == ("310.3 TFLOP/s is 2.0 times what the card can do: the timing or the amount of work is wrong.")
    assert flag.numbers["allowed"] == 1.0
