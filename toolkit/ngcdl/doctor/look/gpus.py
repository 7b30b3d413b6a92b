"""What NVML reports about the cards, through ngcdl's only access to it."""

from __future__ import annotations

from ngcdl.doctor.hands import Hands
from ngcdl.telemetry import gpu
from ngcdl.telemetry.card import Probe


def look(_: Hands) -> Probe:
    return gpu.probe()
