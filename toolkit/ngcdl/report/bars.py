"""The arms of a comparison as bars: how many examples a second each did, from the least to the most of its rounds."""

from __future__ import annotations

from ngcdl.report.charts import COLOURS
from ngcdl.report.comparison import Comparison, Reached
from ngcdl.report.markup import Markup, tag
from ngcdl.report.spread import figure

_WIDE = 1000.0


def bars(it: Comparison) -> Markup | None:
    """Draw them on one scale from 0 on; None where there is nothing to set side by side."""
    known = [arm.examples_per_second.max for arm in it.arms if arm.examples_per_second]
    if len(known) < 2 or not max(known):
        return None
    rows = [cell for at, arm in enumerate(it.arms) for cell in _row(arm, at, max(known))]
    caption = tag("figcaption", tag("strong", "Speed"), " ", tag("span", "examples/s", class_="unit"))
    return tag("figure", caption, tag("div", *rows, class_="bars"))


def _row(arm: Reached, at: int, most: float) -> tuple[Markup, Markup, Markup]:
    """The figure stands beside the bar as text: a reader of the page aloud needs no other description."""
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
