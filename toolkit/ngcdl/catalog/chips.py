"""Which GPUs are on one chip with an ARM processor, and use the machine's memory: they have none of their own.

Jetsons up to Orin, Thor, and GB10 (DGX Spark), by compute capability: https://developer.nvidia.com/cuda-gpus
"""

from __future__ import annotations

ON_ARM_CHIPS = frozenset(("5.3", "6.2", "7.2", "8.7", "11.0", "12.1"))
