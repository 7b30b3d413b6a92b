"""The CSV tables in tables/, and how their cells are read. `scripts/catalog --check` checks them.

An empty cell is an unknown value. Columns that no code reads are for maintainers: `notes` (except in known_holes,
where the doctor prints them); `excluded` of forward_compat, the branches that NVIDIA lists as not compatible;
`ubuntu` and `docs_min_driver` of releases, what NVIDIA's prose says and its images sometimes contradict.
In forward_compat, `branches` that are also `unverified` are those that were seen to work; the list itself was not read.
`source` is an address, sometimes with a note on where it was read, and with addresses of single columns. `confidence`:
seen          read at the source
seen-secondary  read in a secondary source
mixed, partly-recalled   some fields of the row were read; the column `unverified` names those that were not
inferred, recalled       not read anywhere
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
    # not importlib.resources: it adds 10 ms to start-up, to support packages in archives, and ngcdl is never in one
    path = Path(__file__).with_name("tables") / f"{table}.csv"
    with path.open(encoding="utf-8", newline="") as lines:
        return tuple(csv.DictReader(lines))


@cache
def comparable(text: str) -> tuple[int, ...]:
    """535.104.05 -> (535, 104, 5). Raise ValueError if it is not a version."""
    return tuple(int(part) for part in text.split("."))


def known(text: str | None) -> tuple[int, ...] | None:
    """Return a version in comparable form, None if the text is not a version."""
    try:
        return comparable(text) if text else None
    except ValueError:
        return None


def minor(text: str) -> tuple[int, ...]:
    """12.4.1.003 -> (12, 4)."""
    return (*comparable(text), 0)[:2]


def address(source: str) -> str:
    """Return the first address in a source, or the whole text if it has none."""
    found = _ADDRESS.search(source)
    return found[0].rstrip("/") if found else source


def address_of(source: str, field: str) -> str:
    """Return the address at which one field was read: a part `field: address` of the source, else its first part."""
    parts = source.split(" ; ")
    own = [part.removeprefix(f"{field}: ") for part in parts if part.startswith(f"{field}: ")]
    return address((own or parts)[0])


def is_recalled(row: dict[str, str]) -> bool:
    """Return whether this row was not read anywhere."""
    return row["confidence"] in ("inferred", "recalled")
