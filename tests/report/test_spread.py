"""How the figures of several rounds are written: with as many digits as the smallest needs."""

from __future__ import annotations

import pytest

from ngcdl.report.measured.spread import Spread, figure, percent


@pytest.mark.parametrize(("shares", "text"), [
    ((0.86, 0.88, 0.90), "88 % (86..90)"),
    ((0.098, 0.2, 0.3), "20.0 % (9.8..30.0)"),
    ((0.0038, 0.0042, 0.0047), "0.42 % (0.38..0.47)"),
    ((0.0, 0.0042, 0.01), "0.42 % (0.00..1.00)"),
    ((-0.01, 0.0, 0.02), "0 % (-1..2)"),
    ((1e-9, 1e-9, 1e-9), "0.0000 % (0.0000..0.0000)"),
])  # fmt: skip
def test_a_share_has_two_digits_of_its_least(shares: tuple[float, ...], text: str) -> None:
    spread = Spread.of(shares)
    assert spread
    assert percent(spread) == text


@pytest.mark.parametrize(("values", "text"), [
    ((590.1, 599.9, 605.0), "599.9 (590.1..605.0)"),
    ((0.93, 0.95, 1.04), "0.95 (0.93..1.04)"),
    ((0.0998, 0.0999, 0.1001), "0.100 (0.100..0.100)"),
    ((0.0, 0.004, 0.01), "0.0040 (0.0000..0.0100)"),
    ((0.93, 0.93), "0.93"),
    ((0.0, 0.0), "0.0"),
    ((-1.0, 0.0), "-0.5 (-1.0..0.0)"),
])  # fmt: skip
def test_both_ends_of_a_range_have_the_digits_of_the_figure(values: tuple[float, ...], text: str) -> None:
    assert figure(Spread.of(values)) == text
