"""The architecture of each compute capability, and the drivers for it. https://developer.nvidia.com/cuda-gpus"""

from __future__ import annotations

from ngcdl.catalog.rows import address_of, is_recalled, rows
from ngcdl.frozen import dataclass


@dataclass(frozen=True)
class Family:
    capability: str
    architecture: str  # Turing
    first_branch: int | None  # of the drivers that support these cards; None: not in the table
    last_branch: int | None  # of the drivers that support these cards; None: today's drivers do, or JetPack's
    source_of_branch: str
    recalled: bool


def family(capability: str | None) -> Family | None:
    """Return the family of a compute capability such as 7.5; None if it is not in the table."""
    for row in rows("gpu_families"):
        if row["capability"] == capability:
            first, last = (int(row[end]) if row[end] else None for end in ("first_branch", "last_branch"))
            source = address_of(row["source"], "last_branch" if last else "first_branch")
            return Family(capability, row["architecture"], first, last, source, is_recalled(row))
    return None
