"""What each of NVIDIA's reasons for low clocks means, and what to do about it.

Reasons: https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html. Options of nvidia-smi:
https://docs.nvidia.com/deploy/nvidia-smi/index.html.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Of the samples while it trained. A card that is slowed down by half in a tenth of them loses one part in twenty; less
# than that is within what two runs differ by.
SHARE = 0.1
IDLE = "gpu_idle"  # clocks are low because there is nothing to do, which is no throttling


@dataclass(frozen=True)
class Reason:
    """`is_damage`: the card protects itself, which is no ordinary way to run it."""

    name: str
    meaning: str
    advice: str
    is_damage: bool = False


_COOLER = "Give it air: fans, dust, distance to its neighbours, the room. Less power makes less heat:\n"
_COOLER += "    nvidia-smi -q -d TEMPERATURE,PERFORMANCE\n    sudo nvidia-smi -pl WATTS"
_SET = "Give the clocks back to the driver:\n    sudo nvidia-smi -rgc && sudo nvidia-smi -rac"
_SUPPLY = "Look at the power supply and its cables:\n    nvidia-smi -q -d POWER,PERFORMANCE"
_POWER = (
    "That is usual at full load. Where card and cooling allow more, raise it, as far as it goes:\n"
    "    nvidia-smi -q -d POWER\n    sudo nvidia-smi -pl WATTS"
)

# The more telling comes first: hw_slowdown stands beside the two that say which.
REASONS = (
    Reason("hw_thermal_slowdown", "the card is too hot", _COOLER, is_damage=True),
    Reason("sw_thermal_slowdown", "the card or its memory is too hot", _COOLER, is_damage=True),
    Reason("hw_power_brake_slowdown", "the power supply called for less", _SUPPLY, is_damage=True),
    Reason("hw_slowdown", "the card protects itself from heat or too much power", _SUPPLY, is_damage=True),
    Reason("board_limit", "a limit of the board", _POWER),
    Reason("reliability", "the voltage that the chip may have", _POWER),
    Reason("sw_power_cap", "its power limit", _POWER),
    Reason("applications_clocks_setting", "somebody has set them", _SET),
    Reason("display_clock_setting", "the clocks of its display", _SET),
    Reason("sync_boost", "the slowest card of its sync boost group", "    nvidia-smi -q -d PERFORMANCE"),
)


def strongest(share: Mapping[str, float], is_damage: bool) -> tuple[Reason, float] | None:
    """Find the most telling reason of that kind that held clocks down often enough. One that is not known is told, too,
    by its number."""
    table = [one for one in REASONS if one.is_damage == is_damage]
    if not is_damage:
        strange = sorted(share.keys() - {one.name for one in REASONS})
        table += [
            Reason(name, "a reason that this ngcdl does not know", "    nvidia-smi -q -d PERFORMANCE")
            for name in strange
        ]
    return next(((one, share[one.name]) for one in table if share.get(one.name, 0.0) >= SHARE), None)
