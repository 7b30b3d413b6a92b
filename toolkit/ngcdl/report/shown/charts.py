"""A chart as an HTML element: SVG for the drawing, HTML for the labels, so that it fits a phone as well as a page.

The SVG is written by hand: a line, an area and a grid take forty lines here, in the page's own colours, light and dark,
sharp at every size. A plotting library would cost 60 MB and a second of start-up, and its labels shrink with the image.
"""

from __future__ import annotations

from collections.abc import Sequence

from ngcdl.frozen import dataclass
from ngcdl.report.shown.curves import Curve, ranges, thinned
from ngcdl.report.shown.markup import Markup, joined, tag
from ngcdl.report.shown.scale import LONGEST, PERCENT, Axis

COLOURS, DASHES = 8, 4  # in the page's palette; a ninth line has the first colour again, with another dash pattern
_WIDE, _HIGH = 1000.0, 1000.0


@dataclass(frozen=True)
class Line:
    """One line. `colour` counts from 0; `dash`, from 0, tells lines of one colour apart; `dots`: its points are marked;
    `soft`: it is drawn muted, behind the others; `breaks`: a pause is shown as a gap."""

    label: str
    curve: Curve
    colour: int = 0
    dots: bool = False
    soft: bool = False
    breaks: bool = True
    dash: int = 0


@dataclass(frozen=True)
class Band:
    """The area between two curves with the same x, in a line's `colour`."""

    label: str
    low: Curve
    high: Curve
    colour: int = 0


@dataclass(frozen=True)
class Marks:
    """Shaded ranges of x, in order and apart from each other, and what they mean."""

    label: str
    spans: Sequence[tuple[float, float]]
    colour: int


@dataclass(frozen=True)
class Chart:
    """A chart; `said` describes it in words, `of` says of what it is. `letters` name runs whose lines look like those
    of others: the legend leaves these letters out, and has one key for lines that look alike."""

    title: str
    x: Axis
    y: Axis
    lines: Sequence[Line]
    said: str
    bands: Sequence[Band] = ()
    marks: Sequence[Marks] = ()
    note: str = ""
    of: str = ""
    letters: Sequence[str] = ()


def drawn(chart: Chart, name: str) -> Markup:
    """Return the chart as a <figure>; `name` is unique on its page."""
    parts = [_grid(chart, chart.x.ticks), *_marks(chart), *(_band(chart, band) for band in chart.bands)]
    parts += [_line(chart, line) for line in sorted(chart.lines, key=lambda line: not line.soft)]
    return _figure(chart, name, parts)


def bars(title: str, values: Sequence[float | None], said: str, note: str, name: str) -> Markup:
    """Draw a bar for each of `values`, 0..100, side by side and numbered from 0."""
    step = _WIDE / len(values)
    width = min(step * 0.8, _WIDE / 10)
    rects = [
        tag("rect", class_="bar", x=f"{(at + 0.5) * step - width / 2:.1f}", y=f"{_HIGH - value * 10:.1f}",
            width=f"{width:.1f}", height=f"{value * 10:.1f}")
        for at, value in enumerate(values) if value is not None
    ]  # fmt: skip
    numbers = tuple(float(at) for at in range(0, len(values), max(1, -(-len(values) // 8))))
    x = Axis(-0.5, len(values) - 0.5, numbers, "logical processor")
    chart = Chart(title, x, PERCENT, (), said, note=note)
    return _figure(chart, name, [_grid(chart, ()), *rects])


def _figure(chart: Chart, name: str, parts: Sequence[Markup]) -> Markup:
    unit = " · ".join(filter(None, (chart.y.unit, chart.of)))
    picture = tag(
        "svg",
        tag("title", chart.title, id=f"{name}-t"),
        tag("desc", chart.said, id=f"{name}-d"),
        *parts,
        viewBox=f"0 0 {_WIDE:g} {_HIGH:g}",
        preserveAspectRatio="none",
        role="img",
        aria_labelledby=f"{name}-t {name}-d",
    )
    return tag(
        "figure",
        tag("figcaption", tag("strong", chart.title), " ", tag("span", unit, class_="unit")),
        _legend(chart),
        tag(
            "div",
            _ticks(chart.y, "ys"),
            picture,
            _ticks(chart.x, "xs", tag("em", chart.x.unit)),
            class_="plot",
            style=_room(chart.y),
        ),
        tag("p", chart.note, class_="note") if chart.note else None,
    )


def _room(y: Axis) -> str | None:
    """Return the room beside the chart if the labels of `y` need more than all charts have, so that none is cut off."""
    return f"--ys:{y.longest / 2:g}rem" if y.longest > LONGEST else None


def _x(chart: Chart, value: float) -> float:
    return chart.x.at(value) * _WIDE


def _y(chart: Chart, value: float) -> float:
    return _HIGH - chart.y.at(value) * _HIGH


def _grid(chart: Chart, xs: Sequence[float]) -> Markup:
    words = [f"M0 {_y(chart, tick):.1f}H{_WIDE:g}" for tick in chart.y.ticks]
    words += [f"M{_x(chart, tick):.1f} 0V{_HIGH:g}" for tick in xs]
    return tag("path", class_="grid", d="".join(words))


def _marks(chart: Chart) -> list[Markup]:
    least = (chart.x.high - chart.x.low) / 400  # keep a range of a single sample visible
    return [
        tag("rect", class_=f"mark c{marks.colour % COLOURS}", x=f"{_x(chart, start):.1f}", y="0", height=f"{_HIGH:g}",
            width=f"{max(_x(chart, max(end, start + least)) - _x(chart, start), 2):.1f}")
        for marks in chart.marks for start, end in marks.spans
    ]  # fmt: skip


def _band(chart: Chart, band: Band) -> Markup:
    low = thinned(band.low, chart.x.low, chart.x.high)
    high = thinned(band.high, chart.x.low, chart.x.high)
    words = []
    for under, over in zip(low, high, strict=False):
        words.append("M" + _through(chart, over) + "L" + _through(chart, under[::-1]) + "Z")
    return tag("path", class_=f"band c{band.colour % COLOURS}", d="".join(words))


def _through(chart: Chart, points: Sequence[tuple[float, float]]) -> str:
    return "L".join(f"{_x(chart, x):.1f} {_y(chart, y):.0f}" for x, y in points)


def is_shaded(chart: Chart, line: Line) -> bool:
    """Whether the line is a mean in a shade, which reaches from the least to the greatest value: it is too dense to be
    drawn whole. A line with a band of its own is inside that."""
    return line.curve.is_dense and not line.dots and all(band.colour != line.colour for band in chart.bands)


def _line(chart: Chart, line: Line) -> Markup:
    if line.curve.is_dense and not line.dots:
        return _mean(chart, line)
    words = []
    for points in thinned(line.curve, chart.x.low, chart.x.high, line.breaks):
        # A single point is a dot: a line of zero length with round ends.
        words.append("M" + _through(chart, points) + ("h0" if len(points) == 1 else ""))
    path = _stroke(chart, line, "".join(words))
    if not line.dots:
        return path
    points = [point for part in thinned(line.curve, chart.x.low, chart.x.high, False) for point in part]
    dots = "".join(f"M{_x(chart, x):.1f} {_y(chart, y):.1f}h0" for x, y in points)
    return joined(path, tag("path", class_=f"dots {_style(line.colour, len(chart.lines) == 1, line.dash)}", d=dots))


def _mean(chart: Chart, line: Line) -> Markup:
    shades, means = [], []
    for part in ranges(line.curve, chart.x.low, chart.x.high, line.breaks):
        over, under = [(x, most) for x, _, _, most in part], [(x, least) for x, least, _, _ in reversed(part)]
        shades.append(f"M{_through(chart, over)}L{_through(chart, under)}Z")
        means.append("M" + _through(chart, [(x, mean) for x, _, mean, _ in part]) + ("h0" if len(part) == 1 else ""))
    path = _stroke(chart, line, "".join(means))
    if not is_shaded(chart, line):
        return path
    return joined(tag("path", class_=f"shade c{line.colour % COLOURS}", d="".join(shades)), path)


def _stroke(chart: Chart, line: Line, d: str) -> Markup:
    style = _style(line.colour, len(chart.lines) == 1, line.dash)
    return tag("path", class_=f"line{' soft' if line.soft else ''} {style}", d=d)


def _style(colour: int, alone: bool, dash: int = 0) -> str:
    """Return the classes for colour and dash pattern. Dashes help readers who can't tell the colours apart."""
    dash = (colour + colour // COLOURS + dash) % DASHES
    return f"c{colour % COLOURS}" + (f" d{dash}" if dash and not alone else "")


def _legend(chart: Chart) -> Markup | None:
    shown = [(_key(chart, line.label), _stroke(chart, line, "M1 6H21")) for line in chart.lines]
    areas = [(_key(chart, band.label), f"band c{band.colour % COLOURS}") for band in chart.bands]
    areas += [(marks.label, f"mark c{marks.colour % COLOURS}") for marks in chart.marks]
    shown += [(label, tag("rect", class_=one, x="0", y="2", width="22", height="8")) for label, one in areas]
    keys = [
        (tag("svg", key, viewBox="0 0 22 12", class_="key", aria_hidden="true"), label)
        for label, key in dict.fromkeys(shown)
        if label
    ]
    return tag("ul", *(tag("li", *both) for both in keys), class_="legend") if keys else None


def _key(chart: Chart, label: str) -> str:
    letter, _, rest = label.partition(": ")
    return rest if letter in chart.letters else label


def _ticks(axis: Axis, kind: str, *more: Markup) -> Markup:
    edge = "left" if kind == "xs" else "bottom"
    labels = [tag("span", axis.label(tick), style=f"{edge}:{axis.at(tick) * 100:.2f}%") for tick in axis.ticks]
    return tag("div", *labels, *more, class_=kind, aria_hidden="true")
