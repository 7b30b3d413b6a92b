"""docs/scale.md has its script's tables, and the model is as close to the measurements as the page says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "scripts" / "benchmarks"))

import scale


def test_the_page_has_the_tables_that_the_script_makes() -> None:
    page = scale.DOCUMENT.read_text(encoding="utf-8")
    assert scale.written(page) == page, "scripts/benchmarks/scale.py --write"


def test_the_model_is_within_five_hundredths_of_what_it_was_fitted_to() -> None:
    fit, parameters = scale.fitted(scale.FITTED), scale.bundled("resnet-50").parameters
    for one in scale.FITTED:
        for replicas, measured in one.efficiencies():
            assert fit.efficiency(parameters, one.step_seconds, replicas, one.network) == pytest.approx(
                measured, abs=0.05
            )


def test_a_replica_alone_waits_for_nobody() -> None:
    assert scale.slowest(1) == pytest.approx(0, abs=1e-6)
    assert scale.exchange_seconds(10**6, 1, scale.ETHERNET) == 0
    assert scale.Fit(0.02, 1.0).efficiency(10**6, 0.1, 1, scale.ETHERNET) == pytest.approx(1)


def test_the_slowest_of_two_and_of_three_are_as_far_behind_as_the_tables_of_normal_order_have_it() -> None:
    assert scale.slowest(2) == pytest.approx(0.5642, abs=1e-4)
    assert scale.slowest(3) == pytest.approx(0.8463, abs=1e-4)


def test_more_replicas_and_slower_lines_never_pay_better() -> None:
    fit = scale.Fit(0.02, 0.75)
    for slow, fast in ((scale.ETHERNET, scale.ONE_LINE), (scale.ONE_LINE, scale.EIGHT_LINES)):
        few, many = (fit.efficiency(25 * 10**6, 0.3, replicas, fast) for replicas in (8, 64))
        assert many < few
        assert fit.efficiency(25 * 10**6, 0.3, 64, slow) < many
