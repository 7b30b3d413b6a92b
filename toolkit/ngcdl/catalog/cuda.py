"""CUDA toolkits: the driver that each wants, the cards that it knows, the older drivers that its compat package takes.

https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/ and https://docs.nvidia.com/deploy/cuda-compatibility/
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from ngcdl.catalog.rows import address, comparable, is_recalled, minor, rows

# "CUDA Toolkit and Minimum Required Driver Version for CUDA Minor Version Compatibility"
_FLOORS = "https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/index.html"


@dataclass(frozen=True)
class Toolkit:
    """`driver` is the oldest Linux driver that runs it natively; `minor_floor` None where there is no such way."""

    cuda: str
    driver: str
    branch: int
    minor_floor: str | None
    source: str
    recalled: bool


@dataclass(frozen=True)
class Capabilities:
    """The compute capabilities that a toolkit can compile for, ascending."""

    listed: tuple[str, ...]
    source: str
    recalled: bool

    @property
    def lowest(self) -> str:
        return self.listed[0]


@dataclass(frozen=True)
class Compat:
    """The driver branches over which an image's cuda-compat package may stand; None where no list is known.

    `likely` are then those of the last list before.
    `brands` in the spelling of preflight.facts.BRANDS. `recalled` is of the branches, `brands_recalled` of the brands.
    """

    branches: tuple[int, ...] | None
    brands: tuple[str, ...]
    source: str
    recalled: bool
    brands_recalled: bool
    likely: tuple[int, ...] = ()


def driver_for(cuda: str) -> Toolkit | None:
    """Find a toolkit's row: its own, else the nearest below it of the same major.minor. `cuda` may have a build number.

    None for texts that are no version, too.
    """
    try:
        asked, near = comparable(cuda), _toolkits_of(minor(cuda))
    except ValueError:
        return None
    for toolkit, names in near:
        if any(asked[: len(name)] == name for name in names):
            return toolkit
    # (9, 0) is below (9, 0, 76), the only row: 9.0 then means that one
    below = [toolkit for toolkit, names in near if names[0] <= asked] or [toolkit for toolkit, _ in near[-1:]]
    return below[0] if below else None


def newest_cuda(driver: str) -> str | None:
    """Name the CUDA version that a driver runs, as nvidia-smi shows it (12.2): that of its branch, or at least so much.

    None for drivers before the table, and for texts that are no version.
    """
    try:
        branch = comparable(driver)[0]
    except ValueError:
        return None
    found = next((toolkit for toolkit, _ in _toolkits() if toolkit.branch <= branch), None)
    return ".".join(str(number) for number in minor(found.cuda)) if found else None


def minor_floor(cuda: str) -> tuple[str, str] | None:
    """Give the oldest driver of minor-version compatibility with this CUDA version, and the source. None for <= 10."""
    try:
        major = comparable(cuda)[0]
    except ValueError:
        return None
    floors = {comparable(toolkit.cuda)[0]: toolkit.minor_floor for toolkit, _ in _toolkits()}
    floor = floors.get(major)
    return (floor, _FLOORS) if floor else None


def capabilities(cuda: str) -> Capabilities | None:
    """Give the cards that a toolkit knows; None for majors that are not in the table."""
    try:
        asked = comparable(cuda)
    except ValueError:
        return None
    known = [row for row in rows("cuda_compute_capability") if comparable(row["cuda_from"]) <= asked]
    if not known or asked[0] > comparable(rows("cuda_driver")[0]["cuda"])[0]:
        return None
    row = max(known, key=lambda one: comparable(one["cuda_from"]))
    return Capabilities(tuple(row["capabilities"].split()), address(row["source"]), is_recalled(row))


def compat(release: str | None = None, cuda: str | None = None) -> Compat | None:
    """Find what the compat package of a container release, or of a CUDA version, may stand over.

    With both, the row is the release's if its CUDA is this one, else the CUDA's. Of a CUDA that is newer than the table
    no list is known. None where no row is.
    """
    try:
        month = comparable(release) if release else None
        asked = minor(cuda) if cuda else None
    except ValueError:
        return None
    table = rows("forward_compat")
    own = [row for row in table if month and comparable(row["first"]) <= month <= comparable(row["last"])]
    if own and (asked is None or _has(own[0], asked)):
        return _compat(own[0])
    if asked and asked > comparable(table[-1]["cuda_last"]):
        return replace(_compat(table[-1]), branches=None, likely=_likely(len(table)))
    # the first of several rows has the fewest branches: those that every release of that CUDA allows
    return next((_compat(row) for row in table if asked and _has(row, asked)), None)


def _likely(place: int) -> tuple[int, ...]:
    """Give the branches of the last list before a place in the table."""
    return next((_branches(row) for row in rows("forward_compat")[:place][::-1] if row["branches"]), ())


def _branches(row: dict[str, str]) -> tuple[int, ...]:
    excluded = row["excluded"].split()  # one page both allows and excludes 545: then it is not allowed
    return tuple(int(branch) for branch in row["branches"].split() if branch not in excluded)


def _has(row: dict[str, str], cuda: tuple[int, ...]) -> bool:
    return comparable(row["cuda_first"]) <= cuda <= comparable(row["cuda_last"])


def _compat(row: dict[str, str]) -> Compat:
    branches = _branches(row)
    return Compat(
        branches=branches or None,
        likely=() if branches else _likely(rows("forward_compat").index(row)),
        brands=tuple(row["brands"].split()),
        source=address(row["source"]),
        recalled=is_recalled(row),
        brands_recalled="brands" in row["unverified"].split(),
    )


@cache
def _toolkits() -> tuple[tuple[Toolkit, tuple[tuple[int, ...], ...]], ...]:
    """Every toolkit, newest first, with the versions that it goes by; the first one is its own."""
    return tuple(
        (
            Toolkit(
                row["cuda"],
                row["driver"],
                int(row["branch"]),
                row["minor_floor"] or None,
                address(row["source"]),
                is_recalled(row),
            ),
            tuple(comparable(name) for name in (row["cuda"], *row["also_called"].split())),
        )
        for row in rows("cuda_driver")
    )


def _toolkits_of(cuda: tuple[int, ...]) -> list[tuple[Toolkit, tuple[tuple[int, ...], ...]]]:
    return [(toolkit, names) for toolkit, names in _toolkits() if minor(toolkit.cuda) == cuda]
