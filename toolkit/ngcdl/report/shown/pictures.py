"""The charts of a report: speed, CPU, GPUs and learning, with a line for each run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from ngcdl.frozen import dataclass
from ngcdl.report.measured import naming
from ngcdl.report.measured.attempts import merged
from ngcdl.report.measured.lines import known_values
from ngcdl.report.shown import charts
from ngcdl.report.shown.charts import Band, Chart, Line, Marks
from ngcdl.report.shown.curves import together
from ngcdl.report.shown.markup import Markup
from ngcdl.report.shown.scale import PERCENT, Axis, axis, bytes_axis, seconds_axis
from ngcdl.report.shown.story import LETTERS, Story

Upright = Callable[[float, float], Axis]  # makes the y axis for curves with this minimum and maximum


@dataclass(frozen=True)
class Pictures:
    """`shown` are the drawn charts; `missing` are the titles of those that were not drawn, for lack of measurements,
    and `short` of those whose lines would be specks. `has_shades`: a line is a mean in a shade."""

    shown: tuple[Markup, ...]
    missing: tuple[str, ...]
    short: tuple[str, ...]
    has_shades: bool


def pictures(stories: Sequence[Story]) -> Pictures:
    shown, missing, short = [], [], []
    has_shades = False
    has_gpus = any(story.run.gpus != () for story in stories)  # None: unknown
    in_arms = [story.letter for story in stories if story.arm]  # the lines of an arm look alike
    for number, (title, made) in enumerate(_all(stories)):
        if made is None:
            missing += [title] if has_gpus or not title.startswith("GPU") else []
        elif isinstance(made, Chart) and not any(map(_is_visible, made.lines)):
            short.append(title)
        elif isinstance(made, Markup):
            shown.append(made)
        else:
            shown.append(charts.drawn(replace(made, letters=in_arms), f"chart{number}"))
            has_shades = has_shades or any(charts.is_shaded(made, line) for line in made.lines)
    return Pictures(tuple(shown), tuple(missing), tuple(short), has_shades)


def _is_visible(line: Line) -> bool:
    return len(line.curve.drawable[0]) >= (2 if line.dots else 3)


def _all(stories: Sequence[Story]) -> Iterator[tuple[str, Chart | Markup | None]]:
    throughput = _throughput(stories)
    if throughput or any(story.is_training for story in stories):  # a command need not report a speed, nor a loss
        yield "throughput", throughput
    if len(stories) == 1:
        yield "CPU use", _use(stories[0])
        yield from _by_core(stories[0])
    else:
        lines = [Line(_label(story, stories), story.measured.host, _colour(story)) for story in stories]
        yield "CPU use", _chart("CPU use, mean of all cores", _time(stories), lines, lambda *_: PERCENT)
        yield "GPU use", _cards(stories, "GPU use", "gpu_percent", lambda *_: PERCENT)
    yield "GPU memory", _cards(stories, "GPU memory", "memory_used_bytes", lambda _, high: bytes_axis(high))
    yield "GPU power", _cards(stories, "GPU power", "watts", lambda _, high: axis(0.0, high, "W"))
    yield "GPU clocks", _clocks(stories)
    trained = any(story.is_training and not _trains_nothing(story) for story in stories)
    loss, lines = _loss(stories), _accuracies(stories)
    if loss or trained:
        yield "loss", loss
    tested = sum(len(line.curve.xs) for line in lines)
    # a single point, as after a short training, needs no chart: the table has it
    if tested > 1 or (trained and not tested):
        title, note = "Accuracy (precision @ 1)", _synthetic(stories)
        yield "accuracy", _chart(title, _steps(lines), lines, lambda *_: axis(0.0, 1.0, "share"), note=note)


def _trains_nothing(story: Story) -> bool:
    """Return whether the run finished without a loss: inference only, or batches that are made but not trained on."""
    return story.run.status == "finished" and not story.training.losses.known


def _label(story: Story, stories: Sequence[Story]) -> str:
    what = f": {story.arm}" if story.arm else f" on {naming.device(story.run)}" if story.run.device else ""
    return f"{story.letter}{what}" if len(stories) > 1 else ""


def _time(stories: Sequence[Story]) -> Axis:
    """Return the time axis of all charts: as long as the longest run, or up to its last reported value."""
    ends, queued = [1.0], [story.run.kind.is_cluster for story in stories]
    for story, has_waited in zip(stories, queued, strict=True):
        curves = [story.training.rates, story.measured.host]
        curves += [curve for card in story.measured.cards.values() for curve in card.curves.values()]
        told = max((curve.xs[-1] for curve in curves if curve.xs), default=0.0)
        seconds = None if has_waited else story.run.seconds
        ends.append(told if seconds is None else max(seconds, 1.0))
    return seconds_axis(max(ends), "the first report" if all(queued) else "the start")


Ranges = list[tuple[str, tuple[float, float]]]


def _ranges(lines: Sequence[Line], bands: Sequence[Band]) -> Ranges:
    """Return the minimum and maximum of each line and band that has known values."""
    spans = [(line.label or "The line", line.curve.span, line.curve.span) for line in lines]
    spans += [(band.label, band.low.span, band.high.span) for band in bands]
    return [(name, (low[0], high[1])) for name, low, high in spans if low and high]


def _said(ranges: Ranges, marks: Sequence[Marks], x: Axis, y: Axis) -> str:
    """Describe a chart for readers who can't see it: the range of each line and band, and what is shaded."""
    said = []
    for name, span in ranges:
        low, high = (f"{value / y.divisor:,.4g}" for value in span)
        said.append(f"{name} ranges from {low} to {high} {y.unit}".rstrip())
    for one in marks:
        first, last = (f"{value / x.divisor:,.4g}" for value in (one.spans[0][0], one.spans[-1][1]))
        said.append(f"{one.label}, {'several times ' if len(one.spans) > 1 else ''}from {first} to {last} {x.unit}")
    return " ".join(f"{one}." for one in said)


def _chart(
    title: str,
    x: Axis,
    lines: Sequence[Line],
    upright: Upright,
    bands: Sequence[Band] = (),
    marks: Sequence[Marks] = (),
    note: str = "",
    of: str = "",
) -> Chart | None:
    lines = [line for line in lines if line.curve.span]
    bands = [band for band in bands if band.low.span]
    ranges = _ranges(lines, bands)
    if not lines:
        return None
    y = upright(min(low for _, (low, _) in ranges), max(high for _, (_, high) in ranges))
    return Chart(title, x, y, lines, _said(ranges, marks, x, y), bands, marks, note, of)


def _throughput(stories: Sequence[Story]) -> Chart | None:
    lines = [Line(_label(story, stories), story.training.rates, _colour(story)) for story in stories]
    return _chart(
        "Throughput", _time(stories), lines, lambda _, high: axis(0.0, high, "examples/s"), note=_synthetic(stories)
    )


def _colour(story: Story) -> int:
    return LETTERS.index(story.letter) if story.colour is None else story.colour


def _synthetic(stories: Sequence[Story]) -> str:
    named = [story.letter for story in stories if story.run.is_synthetic]
    if not named:
        return ""
    who = f" ({', '.join(named)})" if len(named) < len(stories) else ""
    return f"SYNTHETIC data{who}: the speed is meaningful, what was learned is not."


def _use(story: Story) -> Chart | None:
    measured = story.measured
    cards, bands = _card_lines([story], "gpu_percent")
    lines = [Line("CPU, mean of all cores", measured.host, 0)]
    lines += [replace(line, label=line.label or "GPU") for line in cards]  # beside the CPU's line, one needs a name
    bands.append(Band("CPU, least to most busy core", measured.least, measured.most))
    title = "CPU and GPU use" if measured.cards else "CPU use"
    return _chart(title, _time([story]), lines, lambda *_: PERCENT, bands, of=_model([story]))


def _model(stories: Sequence[Story]) -> str:
    """Name the card of a single run, or its cards if they are of one model, as 8 × MODEL."""
    names = [card.name for card in stories[0].measured.cards.values()]
    if len(stories) > 1 or len(set(names)) != 1 or not names[0]:
        return ""
    return f"{len(names)} × {names[0]}" if len(names) > 1 else names[0]


def _numbers(story: Story) -> list[str]:
    """Return what comes after "GPU" for each card: its index, and its node, else the begin of its UUID, if cards of
    several nodes have the same; "" if that is unknown."""
    cards = story.measured.cards
    places = [card.place for card in cards.values()]
    nodes = {gpu.uuid: gpu.node for gpu in story.run.summary.gpus}

    def which(uuid: str, place: str) -> str:
        if places.count(place) == 1:
            return ""
        return f" of {node}" if (node := nodes.get(uuid)) else f" ({uuid[:12]})"

    return ["" if card.place is None else f" {card.place}{which(uuid, card.place)}" for uuid, card in cards.items()]


def _by_core(story: Story) -> Iterator[tuple[str, Markup]]:
    known = known_values(story.measured.cores)
    if not known:
        return
    said = f"{len(known)} logical processors, the least busy {min(known):.0f} %, the most busy {max(known):.0f} %."
    steps = "while it trained" if story.is_training else "over its steps"
    over = steps if story.training.spans else "over the whole run"
    ends = dict.fromkeys(f"{value:.0f} %" for value in (min(known), max(known)))
    note = f"Mean {over}: {'from ' if len(ends) > 1 else ''}{' to '.join(ends)}."
    yield "CPU use of each core", charts.bars("CPU use of each core", story.measured.cores, said, note, "cores")


def _labels(story: Story, stories: Sequence[Story]) -> list[str]:
    """Name the line of each card; the only one of a single run needs no name."""
    cards, who = list(story.measured.cards.values()), _label(story, stories)
    if len(cards) < 2:
        return [who]
    if len(stories) == 1:
        is_alike = bool(_model(stories))
        return [
            f"GPU{number}{f' ({card.name})' if card.name and not is_alike else ''}"
            for card, number in zip(cards, _numbers(story), strict=True)
        ]
    named = who if who.endswith(" on GPU") else f"{who}, GPU"
    return [f"{named}{number}" if number else who for number in _numbers(story)]


def _card_lines(stories: Sequence[Story], name: str) -> tuple[list[Line], list[Band]]:
    """Return a line for each card. A run with too many to tell apart has a line for their mean instead, in a band from
    the least to the greatest: one with more than a colour has dash patterns, or than there are colours if it is alone.
    """
    lines, bands = [], []
    alone = len(stories) == 1
    for story in stories:
        cards = list(story.measured.cards.values())
        colour = 1 if alone else _colour(story)  # 0 is the CPU's
        if len(cards) <= (charts.COLOURS if alone else charts.DASHES):
            lines += [
                Line(label, card.curves[name], colour + at if alone else colour, dash=0 if alone else at)
                for at, (card, label) in enumerate(zip(cards, _labels(story, stories), strict=False))
            ]
        else:
            who, all_of_them = "" if alone else f"{_label(story, stories)}, ", f"of its {len(cards)} GPUs"
            least, mean, most = together([card.curves[name] for card in cards])
            lines.append(Line(f"{who}mean {all_of_them}", mean, colour))
            bands.append(Band(f"{who}least to most {all_of_them}", least, most, colour))
    return lines, bands


def _cards(stories: Sequence[Story], title: str, name: str, upright: Upright) -> Chart | None:
    lines, bands = _card_lines(stories, name)
    return _chart(title, _time(stories), lines, upright, bands, of=_model(stories))


def _clocks(stories: Sequence[Story]) -> Chart | None:
    lines, bands = _card_lines(stories, "sm_mhz")
    marks = [marks for story in stories if (marks := _held_down(story, stories))]
    x, of = _time(stories), _model(stories)
    return _chart("GPU clocks (SM)", x, lines, lambda _, high: axis(0.0, high, "MHz"), bands, marks, of=of)


def _held_down(story: Story, stories: Sequence[Story]) -> Marks | None:
    """Return when any of the run's cards held its clocks down, and why."""
    held = [card.throttled for card in story.measured.cards.values()]
    spans = merged(span for one in held for span in one.spans)
    if not spans:
        return None
    who = f"{_label(story, stories)}, " if len(stories) > 1 else ""
    reasons = ", ".join(sorted({reason for one in held for reason in one.reasons}))
    return Marks(f"{who}held down: {reasons}", spans, _colour(story) if who else 1)  # 1: the colour of its first card


def _steps(lines: Iterable[Line]) -> Axis:
    last = max((max(line.curve.xs) for line in lines if line.curve.xs), default=1.0)  # each training begins at step 0
    return axis(0.0, max(last, 1.0), "steps", steps=5, tight=True)


def _loss(stories: Sequence[Story]) -> Chart | None:
    lines = []
    for story in stories:
        name, told = _label(story, stories), story.training
        of_steps = name if name or not told.epoch_losses.known else "each step"
        of_epochs = f"{name}, mean of each epoch" if name else "mean of each epoch"
        lines += [
            Line(of_steps, told.losses, _colour(story), breaks=False),
            Line(of_epochs, told.epoch_losses, _colour(story), dots=True, soft=True, breaks=False),
        ]
    note = " ".join(filter(None, (_synthetic(stories), _anew(stories))))
    return _chart(
        "Loss", _steps(lines), lines, lambda low, high: axis(0.0 if 0 <= low < high * 0.6 else low, high, ""), note=note
    )


def _anew(stories: Sequence[Story]) -> str:
    often = [sum(event.get("event") == "raced" for event in story.training.raced) for story in stories]
    if max(often) < 2:
        return ""
    many = f"{often[0]} trainings" if len(often) == 1 else "Several trainings in a run"
    return f"{many}, each from scratch: one line for each, overlaid."


def _accuracies(stories: Sequence[Story]) -> list[Line]:
    lines = []
    for story in stories:
        name = _label(story, stories)
        tested = f"{name}, held-out images" if name else "on held-out images"
        trained = f"{name}, training images" if name else "on the training images"
        lines += [
            Line(tested, story.training.accuracies, _colour(story), dots=True, breaks=False),
            Line(trained, story.training.training_accuracies, _colour(story), dots=True, soft=True, breaks=False),
        ]
    return lines
