"""CUDA toolkits: the driver each needs, the cards it supports, the older drivers its compat package runs on.

https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/ and https://docs.nvidia.com/deploy/cuda-compatibility/
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from ngcdl.catalog.rows import address, address_of, comparable, is_recalled, known, minor, rows
from ngcdl.frozen import dataclass


@dataclass(frozen=True)
class Toolkit:
    """One CUDA toolkit. `driver` is the oldest Linux driver that runs it natively; `names` are the version numbers that
    mean it, its own first."""

    cuda: str
    driver: str
    branch: int
    source: str
    recalled: bool
    names: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Capabilities:
    """The compute capabilities a toolkit can compile for, ascending."""

    listed: tuple[str, ...]
    source: str
    recalled: bool

    @property
    def lowest(self) -> str:
        return self.listed[0]


@dataclass(frozen=True)
class Compat:
    """The driver branches an image's cuda-compat package supports.

    If no list of branches is known, `branches` is None and `likely` holds the most recent earlier list. If both are
    set, `branches` are only those that were seen to work.
    `brands` uses the spelling of preflight.facts.BRANDS. `recalled` refers to the branches, `brands_recalled` to the
    brands.
    """

    branches: tuple[int, ...] | None
    brands: tuple[str, ...]
    source: str
    recalled: bool
    brands_recalled: bool
    likely: tuple[int, ...] = ()


def driver_for(cuda: str) -> Toolkit | None:
    """Return the row of a CUDA version: its own, else the nearest one below with the same major.minor.

    `cuda` may carry a build number. None without such a row, and for text that is not a version.
    """
    asked = known(cuda)
    if asked is None:
        return None
    near = [toolkit for toolkit in _toolkits() if minor(toolkit.cuda) == minor(cuda)]
    own = [toolkit for toolkit in near if any(asked[: len(name)] == name for name in toolkit.names)]
    below = [toolkit for toolkit in near if toolkit.names[0] <= asked]
    # (9, 0) is below (9, 0, 76), the only 9.0 row: 9.0 then means that row
    return next(iter(own or below or near[-1:]), None)


def newest_cuda(driver: str) -> str | None:
    """Return the CUDA version a driver supports, as nvidia-smi shows it (12.2): its branch's, or that of one below.

    None for drivers older than the table or of a newer branch, and for text that is not a version.
    """
    version = known(driver)
    if version is None or version[0] > _toolkits()[0].branch:
        return None
    found = next((toolkit for toolkit in _toolkits() if toolkit.branch <= version[0]), None)
    return ".".join(str(number) for number in minor(found.cuda)) if found else None


def branch_of(number: int) -> int:
    """Return the branch of a driver, given its first number.

    Windows drivers, which WSL2 shows, count on within a branch: 581 and 582 are of branch 580. NVIDIA pairs 570.172.08
    with 573.48, and 575.57.08 with 576.57: https://docs.nvidia.com/datacenter/tesla/
    """
    return next((toolkit.branch for toolkit in _toolkits() if toolkit.branch <= number), number)


def minor_floor(cuda: str) -> tuple[str, str] | None:
    """Return the oldest driver with minor-version compatibility for this CUDA, and the source. None for CUDA <= 10."""
    version = known(cuda)
    row = next((row for row in rows("cuda_driver") if version and comparable(row["cuda"])[0] == version[0]), None)
    if row is None or not row["minor_floor"]:
        return None
    return row["minor_floor"], address_of(row["source"], "minor_floor")


def capabilities(cuda: str | None) -> Capabilities | None:
    """Return the compute capabilities a toolkit supports; None if the version is unknown, or newer than the table."""
    asked = known(cuda)
    if asked is None or asked[0] > comparable(rows("cuda_driver")[0]["cuda"])[0]:
        return None
    begun = [row for row in rows("cuda_compute_capability") if comparable(row["cuda_from"]) <= asked]
    if not begun:
        return None
    row = max(begun, key=lambda one: comparable(one["cuda_from"]))
    return Capabilities(tuple(row["capabilities"].split()), address(row["source"]), is_recalled(row))


def compat(release: str | None = None, cuda: str | None = None) -> Compat | None:
    """Return the drivers supported by the compat package of a container release, or of a CUDA version.

    If both are given, use the release's row if its CUDA matches, else the CUDA version's row. For a CUDA newer than the
    table the list of branches is unknown. None if no row matches.
    """
    month = known(release)
    asked = minor(cuda) if cuda and known(cuda) else None
    table = rows("forward_compat")
    own = [row for row in table if month and comparable(row["first"]) <= month <= comparable(row["last"])]
    if own and (asked is None or _has(own[0], asked)):
        return _compat(own[0])
    if asked and asked > comparable(table[-1]["cuda_last"]):
        return replace(_compat(table[-1]), branches=None, likely=_likely(len(table)))
    # if several rows match, the first has the fewest branches: those that every release of that CUDA allows
    return next((_compat(row) for row in table if asked and _has(row, asked)), None)


def _likely(place: int) -> tuple[int, ...]:
    """Return the branches of the last complete list before a position in the table."""
    return next((_branches(row) for row in rows("forward_compat")[:place][::-1] if _is_whole(row)), ())


def _branches(row: dict[str, str]) -> tuple[int, ...]:
    return tuple(map(int, row["branches"].split()))


def _is_whole(row: dict[str, str]) -> bool:
    return bool(row["branches"]) and "branches" not in row["unverified"].split()


def _has(row: dict[str, str], cuda: tuple[int, ...]) -> bool:
    return comparable(row["cuda_first"]) <= cuda <= comparable(row["cuda_last"])


def _compat(row: dict[str, str]) -> Compat:
    branches = _branches(row)
    return Compat(
        branches=branches or None,
        likely=() if _is_whole(row) else _likely(rows("forward_compat").index(row)),
        brands=tuple(row["brands"].split()),
        source=address(row["source"]),
        recalled=is_recalled(row) or bool(branches and not _is_whole(row)),
        brands_recalled="brands" in row["unverified"].split(),
    )


@cache
def _toolkits() -> tuple[Toolkit, ...]:
    """Return every toolkit, newest first."""
    return tuple(
        Toolkit(
            row["cuda"], row["driver"], int(row["branch"]), address(row["source"]), is_recalled(row),
            names=tuple(comparable(name) for name in (row["cuda"], *row["also_called"].split())),
        )
        for row in rows("cuda_driver")
    )  # fmt: skip
