"""Famous failures: by which words one is known in a log or in a daemon's answer, its cause and its remedy.

The rows are in tables/failures.toml. A row is known by plain texts, whatever their case, and never by an expression:
logs are hostile, and a search for texts takes the same few milliseconds whatever stands in them.

Which one counts where a log has several: the lowest rank, then the earliest, then the longest text. So what names the
cause comes before what follows from it, and an image's banner, which warns of much that does no harm, comes last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

Rank = Literal["cause", "symptom", "warning", "harmless"]
RANKS: tuple[Rank, ...] = ("cause", "symptom", "warning", "harmless")


@dataclass(frozen=True)
class Failure:
    """One row. `cause` is a sentence; `remedy` has lines, in which a command stands on its own, four blanks in.

    `beside`: it counts only where one of these stands, too. `needs_gpu`: it is none in a run that asked for no GPU.
    `matters_at_exit_0`: also a run that ended well is told of it. `exit_code`: a run that ended with it and without a
    word of any row most likely failed of it. `confidence`: seen (at `source`), recalled (read nowhere).
    """

    name: str
    texts: tuple[str, ...]
    cause: str
    remedy: str
    source: str
    confidence: Literal["seen", "recalled"]
    rank: Rank = "cause"
    beside: tuple[str, ...] = ()
    needs_gpu: bool = False
    matters_at_exit_0: bool = False
    exit_code: int | None = None

    @property
    def advice(self) -> str:
        """Cause and remedy, as a hint."""
        return f"{self.cause}\n{self.remedy}".rstrip()


@dataclass(frozen=True)
class Recognised:
    failure: Failure
    text: str  # which of its texts it was


@cache
def table() -> tuple[Failure, ...]:
    """Give all rows; they are read once, at the first question."""
    import tomllib

    text = (Path(__file__).with_name("tables") / "failures.toml").read_text("utf-8")
    return tuple(_row(row) for row in tomllib.loads(text)["failure"])


def _row(row: dict[str, Any]) -> Failure:
    """Raises TypeError where a row lacks a field, or has one that is none."""
    lists = {name: tuple(row.get(name, ())) for name in ("texts", "beside")}
    return Failure(**(row | lists | {"remedy": str(row["remedy"]).strip("\n")}))


def find(text: str) -> Failure | None:
    """Give the famous failure that `text` tells of, None where it tells of none."""
    found = recognise(text, table())
    return found.failure if found else None


def recognise(text: str, among: Iterable[Failure]) -> Recognised | None:
    """Give the one of `among` that counts in `text`, with the words it was known by."""
    lower = text.lower()
    hits = []
    for failure in among:
        if failure.beside and not any(words.lower() in lower for words in failure.beside):
            continue
        for words in failure.texts:
            position = lower.find(words.lower())
            if position >= 0:
                order = (RANKS.index(failure.rank), position, -len(words))
                hits.append((order, Recognised(failure, words)))
    return min(hits, key=lambda hit: hit[0])[1] if hits else None
