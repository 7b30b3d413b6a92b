"""The arms of a comparison as bars: the median of each, with whiskers from its slowest to fastest round."""

from __future__ import annotations

from ngcdl.report.compared.comparison import Comparison
from ngcdl.report.measured.spread import Spread, figure
from ngcdl.report.shown.charts import COLOURS
from ngcdl.report.shown.markup import Markup, tag

_WIDE = 1000.0


def bars(it: Comparison) -> Markup | None:
    """Draw the bars on one scale from 0; None with fewer than two arms to compare."""
    found = [(arm.name, arm.run_seconds if it.by_duration else arm.examples_per_second) for arm in it.arms]
    known = [speed.max for _, speed in found if speed]
    if len(known) < 2 or not max(known):
        return None
    rows = [cell for at, (name, speed) in enumerate(found) for cell in _row(name, speed, at, max(known))]
    what, unit = ("Time", "s, start-up included: shorter is faster") if it.by_duration else ("Speed", "examples/s")
    caption = tag("figcaption", tag("strong", what), " ", tag("span", unit, class_="unit"))
    return tag("figure", caption, tag("div", *rows, class_="bars"))


def _row(name: str, speed: Spread | None, at: int, most: float) -> tuple[Markup, Markup, Markup]:
    """Draw one arm. Its figure is beside the bar as text, so a screen reader needs no other description."""
    shown = []
    if speed:
        middle, low, high = (value / most * _WIDE for value in (speed.median, speed.min, speed.max))
        ends = f"M{low:.1f} 10H{high:.1f}M{low:.1f} 0V20M{high:.1f} 0V20"
        shown = [
            tag("rect", class_=f"c{at % COLOURS}", x="0", y="3", width=f"{middle:.1f}", height="14"),
            tag("path", class_="whisker", d=ends),
        ]
    picture = tag("svg", *shown, viewBox=f"0 0 {_WIDE:g} 20", preserveAspectRatio="none", aria_hidden="true")
    return tag("span", name), picture, tag("span", figure(speed), class_="value")
