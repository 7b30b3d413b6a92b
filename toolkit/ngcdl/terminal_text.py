"""Text as a terminal shows it: without control characters, cut or folded to a width, and in tables."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

# The last two ranges change the direction of the text that follows: gpj.exe would look like exe.jpg.
# https://www.unicode.org/reports/tr9/#Explicit_Directional_Embeddings
_CONTROL = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b\[[0-?]*[ -/]*[@-~]|"
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)
_BELOW = "    "
CUT = "..."  # at the end of a text that was cut
_FILLER, JOINT = "\0", "\1"  # `plain` leaves none; at a joint, which is shown as a space, no line ends


def plain(text: str, kept: str = "") -> str:
    """Remove control characters and escape sequences, but not newlines, tabs and the characters in `kept`."""
    return _CONTROL.sub(lambda found: found[0] if found[0] in kept else "", text) if kept else _CONTROL.sub("", text)


def folded(line: str, width: int, indent: int) -> str:
    """Fold `line` to `width` columns between its words, with continuation lines indented. A word that is longer than an
    indented line, such as an address, has a line of its own, not indented."""
    import textwrap

    first, *more = textwrap.wrap(
        _filled(line), width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    ) or [""]
    words = [one.strip() for one in more]
    lines = [first, *(word if len(one) > width else one for one, word in zip(more, words, strict=True))]
    return "\n".join(lines).replace(_FILLER, "").replace(JOINT, " ")


def _filled(text: str) -> str:
    """Put a filler after each character that is two columns wide, because textwrap counts characters."""
    return text if text.isascii() else "".join(one + _FILLER * (cells(one) - 1) for one in text)


def cells(text: str) -> int:
    """Return how many columns of a terminal `text` fills: Chinese characters, for example, are two wide."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """Cut `text`, with a mark, if it is wider than `width` columns of a terminal."""
    if cells(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, width - len(CUT)).rstrip() + CUT


def table(rows: Sequence[Sequence[str]], width: int | None = None, right: Container[int] = ()) -> list[str]:
    """Return the lines of a table of `rows`, the head first. Columns that don't fit into `width` go on an indented line
    below; of the last one, only the cells that don't fit, if they are few. `right` has the indices of the right-aligned
    columns. Newlines in a cell become spaces."""
    rows = [[plain(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(cells(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = []
    beside = _beside(rows, widths, width)
    for row in rows:
        room = [" " * (w - cells(cell)) for cell, w in zip(row, widths, strict=True)]
        padded = [r + cell if at in right else cell + r for at, (cell, r) in enumerate(zip(row, room, strict=True))]
        for first, end in _spans([*widths[:-1], min(widths[-1], max(beside, cells(row[-1])))], width):
            line = ((_BELOW if first else "") + "  ".join(padded[first:end])).rstrip()
            lines += (
                [line] if width is None or cells(line) <= width else folded(line, width, len(_BELOW) + 2).split("\n")
            )
    return lines


def _beside(rows: Sequence[Sequence[str]], widths: Sequence[int], width: int | None) -> int:
    """Return how wide a cell of the last column may be that stays beside the others: any one may if all fit, or if so
    many don't that a line for each would look torn."""
    room = widths[-1] if width is None else width - sum(widths[:-1]) - 2 * len(widths[:-1])
    fit = [cells(row[-1]) <= room for row in rows]
    return room if fit[0] and 2 * sum(fit[1:]) > len(fit[1:]) else widths[-1]


def _spans(widths: Sequence[int], width: int | None) -> list[tuple[int, int]]:
    """Return which columns share a line, as (first, end)."""
    spans, first, used = [], 0, 0
    for at, wide in enumerate(widths):
        if width is not None and at > first and used + wide > width:
            spans.append((first, at))
            first, used = at, len(_BELOW)
        used += wide + 2
    return [*spans, (first, len(widths))]
