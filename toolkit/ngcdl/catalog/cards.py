"""The architecture and the cards of each compute capability. https://developer.nvidia.com/cuda-gpus"""

from __future__ import annotations

from dataclasses import dataclass

from ngcdl.catalog.rows import address, is_recalled, rows


@dataclass(frozen=True)
class Family:
    capability: str
    architecture: str  # Turing
    gpus: str  # for display: T4; Quadro RTX 8000..3000; ...
    source: str
    recalled: bool


def family(capability: str) -> Family | None:
    """Return the cards of a compute capability such as 7.5."""
    for row in rows("gpu_families"):
        if row["capability"] == capability:
            return Family(capability, row["architecture"], row["gpus"], address(row["source"]), is_recalled(row))
    return None
