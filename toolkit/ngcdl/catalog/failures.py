"""Well-known failures: the words that identify each in a log or a daemon's reply, its cause and its remedy.

The rows are in tables/failures.toml. A row is matched by plain, case-insensitive texts and never by a regular
expression: logs are hostile input, and a plain search takes the same few milliseconds whatever they contain.

If a log matches several rows, the first rank in RANKS wins, then the earliest match, then the longest text. So a line
that names the cause beats a line about its consequences, and an image's banner, with its mostly harmless warnings,
comes last.

Cause and remedy depend on what ran where. If one of their lines begins with words of WORDS in brackets, that line is
left out unless all these words describe the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from ngcdl.frozen import dataclass

Rank = Literal["cause", "symptom", "warning", "harmless"]
RANKS: tuple[Rank, ...] = ("cause", "symptom", "warning", "harmless")
# The words that describe a run: a bundled training, or the user's own command; in an image, or as a process of this
# host; on this machine, or on a cluster; with folders of this machine, or only with volume claims; with GPUs requested,
# or without (cpu); with a GPU that uses the machine's memory.
WORDS = frozenset(
    ("training", "command", "image", "host", "here", "cluster", "folders", "claims", "gpu", "cpu", "unified")
)
_FOR_SOME = re.compile(r"\[([a-z ]+)\](?: (?! ))?(.*)")


@dataclass(frozen=True)
class Failure:
    """One row. `cause` is a sentence; in `remedy` each command is on a line of its own, indented by four spaces.

    `beside`: the row matches only if one of these texts is present, too. `needs`: the words of WORDS that must describe
    a run for this failure to be possible. `matters_at_exit_0`: the failure is also reported for a run that succeeded.
    `exit_code`: a run that ended with this code and matches no row's text most likely failed for this reason.
    `confidence`: seen (at `source`) or recalled (not read anywhere).
    """

    name: str
    texts: tuple[str, ...]
    cause: str
    remedy: str
    source: str
    confidence: Literal["seen", "recalled"]
    rank: Rank = "cause"
    beside: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    matters_at_exit_0: bool = False
    exit_code: int | None = None

    def about(self, run: frozenset[str]) -> Failure:
        """Return this failure with the lines of cause and remedy that are for a run with these WORDS."""
        return replace(self, cause=" ".join(_told(self.cause, run)), remedy="\n".join(_told(self.remedy, run)))

    @property
    def advice(self) -> str:
        """Return cause and remedy as a hint, for a failure that a container engine on this machine replied with."""
        told = self.about(frozenset(("image", "here")))
        return f"{told.cause}\n{told.remedy}".rstrip()


@dataclass(frozen=True)
class Recognised:
    failure: Failure
    text: str  # the text of `failure` that matched


def _told(text: str, run: frozenset[str]) -> Iterator[str]:
    for line in text.splitlines():
        some = _FOR_SOME.fullmatch(line)
        if not some:
            yield line
        elif run.issuperset(some[1].split()):
            yield some[2]


@cache
def table() -> tuple[Failure, ...]:
    """Return all rows, read once on first use."""
    import tomllib

    text = (Path(__file__).with_name("tables") / "failures.toml").read_text("utf-8")
    return tuple(_row(row) for row in tomllib.loads(text)["failure"])


def _row(row: dict[str, Any]) -> Failure:
    """Raise TypeError if a row lacks a field or has an unknown one."""
    lists = {name: tuple(row.get(name, ())) for name in ("texts", "beside", "needs")}
    written = {name: str(row[name]).strip("\n") for name in ("cause", "remedy")}
    return Failure(**(row | lists | written))


def find(text: str) -> Failure | None:
    """Return the well-known failure that `text` reports, or None."""
    found = recognise(text, table())
    return found.failure if found else None


def recognise(text: str, among: Iterable[Failure]) -> Recognised | None:
    """Return the failure of `among` that best explains `text`, with the words that matched; None without a match."""
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
