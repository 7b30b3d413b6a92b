"""The architecture of each compute capability, and the last drivers for it. https://developer.nvidia.com/cuda-gpus"""

from __future__ import annotations

from dataclasses import dataclass

from ngcdl.catalog.rows import address_of, is_recalled, rows


@dataclass(frozen=True)
class Family:
    capability: str
    architecture: str  # Turing
    last_branch: int | None  # of the drivers that support it; None: today's do, or those of JetPack
    source_of_last: str
    recalled: bool


def family(capability: str) -> Family | None:
    """Return the family of a compute capability such as 7.5."""
    for row in rows("gpu_families"):
        if row["capability"] == capability:
            last = int(row["last_branch"]) if row["last_branch"] else None
            source = address_of(row["source"], "last_branch")
            return Family(capability, row["architecture"], last, source, is_recalled(row))
    return None
