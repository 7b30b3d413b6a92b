"""The arms of a comparison as bars: the median examples/s of each, with whiskers from its slowest to fastest round."""

from __future__ import annotations

from ngcdl.report.charts import COLOURS
from ngcdl.report.comparison import Comparison, Reached
from ngcdl.report.markup import Markup, tag
from ngcdl.report.spread import figure

_WIDE = 1000.0


def bars(it: Comparison) -> Markup | None:
    """Draw the bars on one scale from 0; None with fewer than two arms to compare."""
    known = [arm.examples_per_second.max for arm in it.arms if arm.examples_per_second]
    if len(known) < 2 or not max(known):
        return None
    rows = [cell for at, arm in enumerate(it.arms) for cell in _row(arm, at, max(known))]
    caption = tag("figcaption", tag("strong", "Speed"), " ", tag("span", "examples/s", class_="unit"))
    return tag("figure", caption, tag("div", *rows, class_="bars"))


def _row(arm: Reached, at: int, most: float) -> tuple[Markup, Markup, Markup]:
    """Draw one arm. Its figure is beside the bar as text, so a screen reader needs no other description."""
    speed = arm.examples_per_second
    shown = []
    if speed:
        middle, low, high = (value / most * _WIDE for value in (speed.median, speed.min, speed.max))
        ends = f"M{low:.1f} 10H{high:.1f}M{low:.1f} 0V20M{high:.1f} 0V20"
        shown = [
            tag("rect", class_=f"c{at % COLOURS}", x="0", y="3", width=f"{middle:.1f}", height="14"),
            tag("path", class_="whisker", d=ends),
        ]
    picture = tag("svg", *shown, viewBox=f"0 0 {_WIDE:g} 20", preserveAspectRatio="none", aria_hidden="true")
    return tag("span", arm.name), picture, tag("span", figure(speed), class_="value")
