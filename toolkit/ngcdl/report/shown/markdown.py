"""The verdict and the figures as Markdown, for a pull request."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ngcdl.report.compared import in_words
from ngcdl.report.compared.comparison import Comparison
from ngcdl.report.shown import likeness, tables
from ngcdl.report.shown.story import Story
from ngcdl.report.shown.verdict import verdict

# Characters that Markdown, or HTML in it, could interpret; @ and # would mention people and issues.
_SPECIAL = re.compile(r"[\\`*_\[\]<>|~!&$]|[@#](?=\w)")
_BLANK = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029]+")


def markdown(stories: Sequence[Story], comparison: Comparison | None = None) -> str:
    arms = [f"{story.arm}, " if story.arm else "" for story in stories]
    head = [f"{story.letter}: {arm}{story.run.id}" for story, arm in zip(stories, arms, strict=True)]
    head = [stories[0].run.id] if len(stories) == 1 else head
    parts = [f"**{plain(verdict(stories, comparison))}**"]
    if comparison:
        parts.append(_table(*in_words.table(comparison)))
        parts += [plain(line) for line in (*in_words.ratios(comparison), *comparison.diagnosis)]
    parts.append(_table(["", *head], tables.figures(stories)))
    if rows := likeness.differences(stories):
        parts.append(_table(["differs", *(story.letter for story in stories)], rows))
    for story in stories:
        said = [
            f"{name}: {value}" for name, value in tables.conditions(story) if value != "n/a" and name in _CONDITIONS
        ]
        parts.append(plain(f"{story.letter + ': ' if len(stories) > 1 else ''}{'; '.join(said)}."))
    return "\n\n".join(parts) + "\n"


_CONDITIONS = (
    *("as of", "image", "image digest", "framework", "engine", "NVIDIA driver", "machine", "data", "batch", "seed"),
    "compute settings",
    "chosen by trial",
)


def plain(text: str) -> str:
    """Return `text` on one line, escaped so that it shows literally."""
    return _SPECIAL.sub(lambda found: f"&#{ord(found[0])};", _BLANK.sub(" ", text))


def _table(head: Sequence[str], rows: Sequence[tables.Row]) -> str:
    lines = [[plain(cell) for cell in head], ["---"] * len(head)]
    lines += [[plain(name), *(plain(cell) for cell in cells)] for name, cells in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
