"""The architecture and the cards of each compute capability. https://developer.nvidia.com/cuda-gpus"""

from __future__ import annotations

from dataclasses import dataclass

from ngcdl.catalog.rows import address, address_of, is_recalled, rows


@dataclass(frozen=True)
class Family:
    capability: str
    architecture: str  # Turing
    gpus: str  # for display: T4; Quadro RTX 8000..3000; ...
    last_branch: int | None  # of the drivers that support it; None: today's do, or those of JetPack
    source: str
    source_of_last: str
    recalled: bool


def family(capability: str) -> Family | None:
    """Return the cards of a compute capability such as 7.5."""
    for row in rows("gpu_families"):
        if row["capability"] == capability:
            last = int(row["last_branch"]) if row["last_branch"] else None
            source = row["source"]
            sources = address(source), address_of(source, "last_branch")
            return Family(capability, row["architecture"], row["gpus"], last, *sources, is_recalled(row))
    return None
