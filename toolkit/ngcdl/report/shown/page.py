"""The report as a single HTML page: no scripts, no external resources, light and dark, for a phone and for paper."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ngcdl.report.compared import in_words, theirs
from ngcdl.report.compared.comparison import Comparison
from ngcdl.report.measured import diagnosis, naming
from ngcdl.report.shown import likeness, tables
from ngcdl.report.shown.bars import bars
from ngcdl.report.shown.markup import Markup, joined, tag
from ngcdl.report.shown.pictures import pictures
from ngcdl.report.shown.story import Story
from ngcdl.report.shown.verdict import verdict

_COLUMNS = 8  # in a table: more don't fit beside each other on paper or in a picture, which nobody can scroll
# The terminal's heads, which are in capitals, that lower case would make another unit or no name.
_HEADS = {"EXAMPLES/J": "examples/J", "CPU": "CPU use", "GPU": "GPU use"}
_SHADES = "Where values are too many to draw, a line is their mean, in a shade from the least to the greatest."
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(stories: Sequence[Story], comparison: Comparison | None = None) -> str:
    """Return the whole document. `comparison` is given if the stories are the runs of one.

    Every text from a record is escaped, as it may come from a container."""
    title = f"{naming.what(stories[0].run)} · {len(stories)} runs" if len(stories) > 1 else naming.what(stories[0].run)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · ngcdl"),
        tag("style", Markup(Path(__file__).with_name("page.css").read_text(encoding="utf-8"))),
    )
    body = tag("body", tag("main", *_sections(stories, title, comparison)))
    return f'<!doctype html>\n<html lang="en">{head}{body}</html>\n'


def _sections(stories: Sequence[Story], title: str, comparison: Comparison | None) -> list[Markup | None]:
    drawn = pictures(stories)
    left_out = {"Not measured, so not drawn": drawn.missing, "Too few values to draw": drawn.short}
    notes = [f"{why}: {', '.join(titles)}." for why, titles in left_out.items() if titles]
    notes += [_SHADES] if drawn.has_shades else []
    found = verdict(stories, comparison, title).replace(" = ", "\u00a0=\u00a0")  # no line begins with =
    return [
        tag("header", tag("h1", title), tag("p", found, class_="verdict"), _warning(stories)),
        _compared(comparison),
        *_recognised(stories),
        _findings(stories) if comparison is None else _diagnosis(comparison),
        tag("section", tag("h2", "Figures"), _legend_of_runs(stories, comparison), _figures(stories),
            _differences(stories, is_compared=comparison is not None)),
        tag("section", tag("h2", "Over time"), tag("div", *drawn.shown, class_="charts"),
            tag("p", " ".join(notes), class_="note") if notes else None),
        _theirs(stories, comparison),
        tag("section", tag("h2", "Conditions"), *_conditions(stories)),
    ]  # fmt: skip


def _warning(stories: Sequence[Story]) -> Markup | None:
    named = [story for story in stories if story.run.is_synthetic]
    if not named:
        return None
    who = "" if len(named) == len(stories) else f"{', '.join(story.letter for story in named)}: "
    note = (named[0].run.dataset_note or "").removeprefix("synthetic images, ")
    why = f" ({note})" if note else ""
    return tag("p", f"{who}SYNTHETIC data{why}: loss and accuracy say nothing about real data.", class_="warning")


def _recognised(stories: Sequence[Story]) -> list[Markup]:
    """Show each known failure once, with the runs in whose output it was seen."""
    found: dict[tuple[str, str], list[str]] = {}
    for story in stories:
        if known := story.run.diagnosis:
            # a known failure may also be recognised in a run that did not fail
            title = "Why {} failed" if story.run.status == "failed" else "Recognised in {}"
            who = story.letter if len(stories) > 1 else story.run.id
            found.setdefault((title, diagnosis.as_text(known)), []).append(who)
    return [
        tag("section", tag("h2", title.format(", ".join(runs))), tag("pre", text))
        for (title, text), runs in found.items()
    ]


def _findings(stories: Sequence[Story]) -> Markup | None:
    """Show what set the pace, by the findings made when each run ended."""
    items = []
    for story in stories:
        for one in story.run.findings or ():
            who = tag("strong", f"{story.letter} ") if len(stories) > 1 else None
            items.append(joined(who, one.text, _advice(one.advice)))
    return tag("section", tag("h2", "What set the pace"), _notes(items)) if items else None


def _diagnosis(comparison: Comparison) -> Markup | None:
    """Show what was found about a comparison: first what is missing, then each finding once for all rounds."""
    items = []
    for note in comparison.notes:
        advice = "\n".join(line.strip() for line in note.advice.splitlines())
        items.append(joined(*(tag("div", line) for line in note.lines), _advice(advice)))
    return tag("section", tag("h2", "What was found"), _notes(items)) if items else None


def _advice(text: str | None) -> Markup | None:
    return tag("div", text, class_="advice") if text else None


def _table(head: Sequence[str], rows: Sequence[tables.Row], caption: str) -> Markup:
    """Make a table; with many columns several, one below the other, each with the names of the rows."""
    count = max(1, -(-len(head) // _COLUMNS))
    each = -(-len(head) // count)
    parts = []
    for number in range(count):
        part = slice(number * each, (number + 1) * each)
        named = f"{caption} ({number + 1} of {count})" if count > 1 else caption
        parts.append(_part(head[part], [(name, row[part]) for name, row in rows], named))
    return joined(*parts)


def _part(head: Sequence[str], rows: Sequence[tables.Row], caption: str) -> Markup:
    cells = [tag("tr", tag("th", name, scope="row"), *(tag("td", one or "–") for one in row)) for name, row in rows]
    columns = tag("tr", tag("td"), *(tag("th", name, scope="col") for name in head))
    table = tag("table", tag("caption", caption), tag("thead", columns), tag("tbody", *cells))
    return tag("div", table, class_="wide", tabindex="0", role="region", aria_label=caption)


def _figures(stories: Sequence[Story]) -> Markup:
    head = [stories[0].run.id] if len(stories) == 1 else [_name(story) for story in stories]
    return _table(head, tables.figures(stories), "What was measured")


def _name(story: Story) -> str:
    return f"{story.letter}: {story.arm}" if story.arm else story.letter


def _legend_of_runs(stories: Sequence[Story], comparison: Comparison | None) -> Markup | None:
    if len(stories) == 1:
        return None
    arms = {run: f"{arm.name}: " for arm in (comparison.arms if comparison else ()) for run in arm.runs}
    named = [(story.letter, f" {arms.get(story.run.id, '')}{story.run.id} ") for story in stories]
    return tag("p", *(tag("span", tag("strong", letter), text, class_="run") for letter, text in named))


def _compared(comparison: Comparison | None) -> Markup | None:
    if comparison is None:
        return None
    head, rows = in_words.table(comparison)
    # the terminal's columns are narrow
    rows = [(name, tuple(re.sub(r"(?<=\d)%", " %", cell) for cell in cells)) for name, cells in rows]
    table = _table([_HEADS.get(name, name.lower()) for name in head[1:]], rows, "Medians over the rounds (min..max)")
    return tag("section", tag("h2", "Compared"), bars(comparison), table, _notes(in_words.ratios(comparison)))


def _differences(stories: Sequence[Story], *, is_compared: bool) -> Markup | None:
    if len(stories) == 1:
        return None
    refused: dict[str, list[str]] = {}
    for story in () if is_compared else stories[1:]:
        if reasons := likeness.refused(stories[0], story):
            refused.setdefault(", ".join(reasons), []).append(story.letter)
    parts = [
        tag("p", f"{stories[0].letter} can't be compared with {', '.join(letters)}: {why}.", class_="warning")
        for why, letters in refused.items()
    ]
    rows = likeness.differences(stories)
    same = tag("p", "Besides what was measured, no difference was found.")
    parts.append(_table([_name(story) for story in stories], rows, "What differs") if rows else same)
    return joined(*parts)


def _theirs(stories: Sequence[Story], comparison: Comparison | None) -> Markup | None:
    """Show what others published about these workloads, with our figures in separate columns.

    Return None for a comparison of something that they did not compare, and where no speed is a training's."""
    if comparison and not theirs.beside(_bundled(stories[0]), comparison.vary):
        return None
    stories = [story for story in stories if not naming.without_result(story.run, story.training.start)]
    names = dict.fromkeys(_bundled(story) for story in stories)
    parts = [part for name in names for part in _published(name, [one for one in stories if _bundled(one) == name])]
    return tag("section", tag("h2", "What others measured"), *parts) if parts else None


def _bundled(story: Story) -> str:
    return str(story.run.workload.get("name") or "").replace("_", "-")


def _published(name: str, stories: Sequence[Story]) -> list[Markup]:
    table = theirs.published(name)
    if not table:
        return []
    notes = [tag("p", note, class_="note") for note in (f"Source: {table.source}.", *table.notes)]
    here = [_here(story, len(stories) > 1) for story in stories]
    known = tables.COUNTERPARTS
    if not any(figure in known for figure, _ in table.rows):
        ours = "; ".join(
            f"{head}: {known['s/batch'](story)} s/batch" for head, story in zip(here, stories, strict=True)
        )
        shown = _table(table.columns, table.rows, f"{name}: theirs, on their hardware")
        return [shown, tag("p", f"Ours: {ours}."), *notes]
    rows = [
        (figure, (*(known[figure](story) if figure in known else "" for story in stories), *cells))
        for figure, cells in table.rows
    ]
    head = [*here, *(f"theirs: {column}" for column in table.columns)]
    return [_table(head, rows, f"{name}: ours here, theirs on their hardware"), *notes]


def _here(story: Story, is_one_of_several: bool) -> str:
    synthetic = ", SYNTHETIC data" if story.run.is_synthetic else ""
    who = f", {story.letter}" if is_one_of_several else ""
    batch = naming.computed(story.run, story.training.start)["batch"]
    size = f", batch {batch}" if batch is not None else ""
    return f"here{who}: {naming.hardware(story.run) or naming.device(story.run)}{size}{synthetic}"


def _conditions(stories: Sequence[Story]) -> list[Markup]:
    """Show the conditions of measurement: what several runs share once, then for each run what differs."""
    rows = [dict(tables.conditions(story)) for story in stories]
    if len(stories) == 1:
        return [_listed(rows[0], stories[0].run.notes)]
    shared = {name: value for name, value in rows[0].items() if all(one.get(name) == value for one in rows)}
    noted = [note for note in stories[0].run.notes if all(note in story.run.notes for story in stories)]
    alike = "The same in both runs" if len(stories) == 2 else f"The same in all {len(stories)} runs"
    parts = [tag("h3", alike), _listed(shared, noted)] if shared or noted else []
    for story, own in zip(stories, rows, strict=True):
        differing = {name: value for name, value in own.items() if name not in shared and name != tables.RUN}
        notes = [note for note in story.run.notes if note not in noted]
        parts += [tag("h3", f"{story.letter}: {story.run.id}"), _listed(differing, notes)]
    return parts


def _listed(rows: Mapping[str, str], notes: Sequence[str]) -> Markup:
    pairs = [part for name, value in rows.items() for part in (tag("dt", name), tag("dd", value))]
    return joined(tag("dl", *pairs) if pairs else None, _notes(notes))


def _notes(texts: Iterable[str | Markup]) -> Markup | None:
    items = [tag("li", one) for one in texts]
    return tag("ul", *items, class_="notes") if items else None
