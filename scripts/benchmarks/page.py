"""The table of docs/performance.md, generated from the committed figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from conditions import told
from figures import Figure, Spread

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "performance.md"
BEGIN, END = "<!-- scripts/bench --keep -->", "<!-- end -->"
HEAD = "| what | against | goal | reached | ours | theirs | beside theirs | rounds | |"


def written(page: str, figures: Sequence[Figure]) -> str:
    """Return the page with the table of these figures between its markers."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{table(figures)}\n{END}{rest.partition(END)[2]}"


def table(figures: Sequence[Figure]) -> str:
    """Return the table and, below it, the conditions that its last column refers to by letter."""
    under = list(dict.fromkeys(told(one.conditions) for one in figures))
    rows = [_row(one, _letter(under.index(told(one.conditions)))) for one in figures]
    notes = [f"- {_letter(number)}: {text}" for number, text in enumerate(under)]
    return "\n".join([HEAD, "|" + "---|" * HEAD.count(" |"), *rows, "", *notes])


def _row(one: Figure, letter: str) -> str:
    goal = one.goal.told(one.unit) if one.goal else ""
    reached = ("yes" if one.is_met else "**no**") if one.goal else ""
    what = f"{one.what} ({one.note})" if one.note else one.what
    theirs = beside = ""
    if one.theirs:
        is_difference = one.compared == "difference"
        theirs = Spread.of(one.theirs).told(one.unit)
        beside = one.spread(one.compared).told(f"{one.unit} more") if is_difference else one.spread("ratio").told("x")
    cells = (what, one.against or "", goal, reached, one.spread("ours").told(one.unit), theirs, beside)
    return f"| {' | '.join(cells)} | {len(one.ours)} | {letter} |"


def _letter(number: int) -> str:
    return chr(ord("a") + number) if number < 26 else f"a{number}"
