"""Versions with known security holes, as published on the date that each row records.

Holes that do not affect Docker according to their own advisory (runc's CVE-2026-41579) are left out.
"""

from __future__ import annotations

import re

from ngcdl.catalog.rows import address, is_recalled, rows
from ngcdl.frozen import dataclass

# 1.17.8, v1.4.0-rc.3, 1.0.0-rc93; and 1.17.8-1, as in NVIDIA's own packages
_VERSION = re.compile(r"v?(\d{1,6})\.(\d{1,6})\.(\d{1,6})(?:-rc\.?(\d{1,6}))?(?:-1)?", re.ASCII)
_FINAL = 1 << 30  # a release is newer than all its release candidates


@dataclass(frozen=True)
class Hole:
    """`fixed_in` has one version for each branch that was fixed, ascending. `read` is the month the source was read.
    `cvss` is the base score of https://github.com/CVEProject/cvelistV5: CVSS 3.1, or 4.0 where it has only that."""

    cve: str
    fixed_in: tuple[str, ...]
    cvss: float | None
    read: str  # 2026-11
    source: str
    recalled: bool
    notes: str


def known(component: str, version: str) -> tuple[Hole, ...] | None:
    """Return the known holes of nvidia-container-toolkit, runc or docker at `version`: unscored first, then the worst.

    () = no hole is known. None = unknown: a distribution's package, as its version does not show which fixes it has
    (1.1.5+ds1-1+deb12u1), text that is not a version, or a component that is not in the table.
    """
    table = [row for row in rows("known_holes") if row["component"] == component]
    parsed = parse(version)
    if parsed is None or not table:
        return None
    found = [_hole(row) for row in table if _is_open(parsed, row)]
    return tuple(sorted(found, key=lambda hole: -(10 if hole.cvss is None else hole.cvss)))


def parse(version: str) -> tuple[int, ...] | None:
    """Parse a version as the project itself writes it; None for any other text."""
    match = _VERSION.fullmatch(version)
    return (*(int(match[n]) for n in (1, 2, 3)), int(match[4]) if match[4] else _FINAL) if match else None


def _is_open(version: tuple[int, ...], row: dict[str, str]) -> bool:
    since = parse(row["since"]) if row["since"] else None
    fixed = sorted(one for one in map(parse, row["fixed_in"].split()) if one)
    if (since and version < since) or version >= fixed[-1]:
        return False
    own_branch = [one for one in fixed if one[:2] == version[:2]]
    return version < own_branch[0] if own_branch else True  # a branch that was never fixed


def _hole(row: dict[str, str]) -> Hole:
    cvss = float(row["cvss"]) if row["cvss"] else None
    return Hole(
        row["cve"], tuple(row["fixed_in"].split()), cvss, row["read"], address(row["source"]), is_recalled(row),
        row["notes"],
    )  # fmt: skip
