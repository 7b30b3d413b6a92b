"""What each of NVIDIA's clock event reasons means, and what to do about it.

Reasons: https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html. Options of nvidia-smi:
https://docs.nvidia.com/deploy/nvidia-smi/index.html.
"""

from __future__ import annotations

from collections.abc import Mapping

from ngcdl.frozen import dataclass

# The share of the samples during training. A card slowed down by half in a tenth of them loses a twentieth; less than
# that is within the difference between two runs.
SHARE = 0.1
IDLE = "gpu_idle"  # clocks are low because there is nothing to do, which is not throttling


@dataclass(frozen=True)
class ClockReason:
    """One reason. `is_damage`: the card is protecting itself, which is not normal operation."""

    name: str
    meaning: str
    advice: str
    is_damage: bool = False


# Without persistence mode, which a record does not tell, a power limit is gone as soon as no program uses the card:
# https://docs.nvidia.com/deploy/driver-persistence/data-persistence.html
# INDEX is replaced by the UUID, which nvidia-smi's -i takes, too, because the index of the run's card may have changed.
_LIMIT = "    sudo nvidia-smi -i INDEX -pm 1\n    sudo nvidia-smi -i INDEX -pl WATTS"
_COOLER = "Check its cooling: fans, dust, distance to its neighbours, the room. Less power makes less heat:\n"
_COOLER += f"    nvidia-smi -q -d TEMPERATURE,PERFORMANCE\n{_LIMIT}"
_SET = "See what is set, and give the clocks back to the driver:\n"
_SET += "    nvidia-smi -q -d CLOCK\n    sudo nvidia-smi -rgc && sudo nvidia-smi -rac"
_SUPPLY = "Check the power supply and its cables:\n    nvidia-smi -q -d POWER,PERFORMANCE"
_POWER = (
    "This is normal at full load. If card and cooling allow it, raise the power limit, up to its maximum:\n"
    f"    nvidia-smi -q -d POWER\n{_LIMIT}"
)

# The most specific comes first: hw_slowdown accompanies the two that name the cause.
REASONS = (
    ClockReason("hw_thermal_slowdown", "the card is too hot", _COOLER, is_damage=True),
    ClockReason("sw_thermal_slowdown", "the card or its memory is too hot", _COOLER, is_damage=True),
    ClockReason("hw_power_brake_slowdown", "the power supply demanded less load", _SUPPLY, is_damage=True),
    ClockReason("hw_slowdown", "the card protects itself from heat or too much power", _SUPPLY, is_damage=True),
    ClockReason("board_limit", "a limit of the board", _POWER),
    ClockReason("reliability", "the chip's voltage limit", _POWER),
    ClockReason("sw_power_cap", "its power limit", _POWER),
    ClockReason("applications_clocks_setting", "its applications clocks, set by somebody or its default ones", _SET),
    ClockReason("display_clock_setting", "its display's clock setting", _SET),
    ClockReason("sync_boost", "the slowest card of its sync boost group", "    nvidia-smi -q -d PERFORMANCE"),
)


def strongest(share: Mapping[str, float], is_damage: bool) -> tuple[ClockReason, float] | None:
    """Return the most specific reason of that kind that held clocks down often enough, and its share; None if none did.

    An unknown reason is reported, too, by its number."""
    table = [one for one in REASONS if one.is_damage == is_damage]
    if not is_damage:
        strange = sorted(share.keys() - {one.name for one in REASONS})
        table += [
            ClockReason(name, "a reason that this version of ngcdl does not know", "    nvidia-smi -q -d PERFORMANCE")
            for name in strange
        ]
    return next(((one, share[one.name]) for one in table if share.get(one.name, 0.0) >= SHARE), None)
