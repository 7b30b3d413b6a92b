"""The NVLink fabric: has the fabric manager set up the cards of a server with NVSwitches? Before that CUDA fails."""

from __future__ import annotations

from collections.abc import Sequence

from ngcdl.doctor.chain import Finding, Link, Step, ok, warning
from ngcdl.doctor.sight import Sight
from ngcdl.telemetry.card import Card

NAME = "fabric"
_URL = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/"


def judge(sight: Sight) -> Finding | None:
    late = [card for card in sight.cards if card.waits_for_fabric]
    if not late:
        is_there = any(card.fabric is not None for card in sight.cards)
        return ok(NAME, "the NVLink fabric is set up") if is_there else None
    found = "; ".join(f"GPU {card.index}: {card.fabric}" for card in late)
    cause = "CUDA fails with error 802, 'system not yet initialized', until the fabric manager has set up these cards. "
    if _is_on_trays(sight, late):
        cause += (
            "In a GB200 or GB300 NVL72 (from memory: no source) it runs on the rack's NVLink switch trays, not here: "
            "ask whoever manages these whether it does. This tray runs nvidia-imex"
        )
        state = Step("nvidia-smi -q | grep -i -A4 fabric", by_hand=True)
        return warning(NAME, found, cause, state, Step("systemctl status nvidia-imex", by_hand=True))
    cause += "Its version must be the driver's; its log may say why it fails"
    log = Step("sudo journalctl -u nvidia-fabricmanager -n 50", by_hand=True)
    return warning(NAME, found, cause, Step("sudo systemctl enable --now nvidia-fabricmanager"), log, source=_URL)


def _is_on_trays(sight: Sight, late: Sequence[Card]) -> bool:
    """Whether the fabric manager runs on other machines than this one: in racks of Grace and Blackwell."""
    is_blackwell = all((card.compute_capability or "").startswith("10.") for card in late)
    return is_blackwell and sight.kernel.machine in ("aarch64", "arm64")


LINKS = (Link(22, NAME, judge),)
