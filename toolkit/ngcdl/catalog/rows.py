"""The tables as they lie in tables/, and how their cells are read. `scripts/catalog --check` checks them.

An empty cell is an unknown value. Columns that no code reads are for those who mend a row: `notes` (but those of
known_holes, which the doctor tells), and of releases `ubuntu` and `docs_min_driver`: what NVIDIA's prose says, which
its images contradict at times.
`source` is an address, sometimes with a word on where it was read; `confidence`:
seen          read at the source
seen-secondary  read at somebody's who had read it
mixed, partly-recalled   some fields of the row; the column `unverified` names those that were not read
inferred, recalled       read nowhere
"""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path

CONFIDENCES = ("seen", "seen-secondary", "mixed", "partly-recalled", "inferred", "recalled")
_ADDRESS = re.compile(r"https?://[^\s;,(]+")


@cache
def rows(table: str) -> tuple[dict[str, str], ...]:
    """Read one table; `table` is its name without .csv."""
    # not importlib.resources: it costs 10 ms of a start, for packages in archives, which this one never is
    path = Path(__file__).with_name("tables") / f"{table}.csv"
    with path.open(encoding="utf-8", newline="") as lines:
        return tuple(csv.DictReader(lines))


@cache
def comparable(text: str) -> tuple[int, ...]:
    """535.104.05 -> (535, 104, 5). Raises ValueError where it is not a version."""
    return tuple(int(part) for part in text.split("."))


def minor(text: str) -> tuple[int, ...]:
    """12.4.1.003 -> (12, 4)."""
    return (*comparable(text), 0)[:2]


def address(source: str) -> str:
    """Give the first address in a source, or its words where it has none."""
    found = _ADDRESS.search(source)
    return found[0].rstrip("/") if found else source


def is_recalled(row: dict[str, str]) -> bool:
    """Was this row read nowhere?"""
    return row["confidence"] in ("inferred", "recalled")
