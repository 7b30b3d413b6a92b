"""The NVLink fabric: has the fabric manager set up the cards of a server with NVSwitches? Before that CUDA fails."""

from __future__ import annotations

from ngcdl.doctor.chain import Finding, Link, Step, ok, warning
from ngcdl.doctor.sight import Sight

NAME = "fabric"
_URL = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/"


def judge(sight: Sight) -> Finding | None:
    late = [card for card in sight.cards if card.waits_for_fabric]
    if not late:
        is_there = any(card.fabric is not None for card in sight.cards)
        return ok(NAME, "the NVLink fabric is set up") if is_there else None
    found = "; ".join(f"GPU {card.index}: {card.fabric}" for card in late)
    cause = (
        "CUDA fails with error 802, 'system not yet initialized', until the fabric manager has set up these cards. Its "
        "version must be the driver's; its log may say why it fails"
    )
    log = Step("sudo journalctl -u nvidia-fabricmanager -n 50", by_hand=True)
    return warning(NAME, found, cause, Step("sudo systemctl enable --now nvidia-fabricmanager"), log, source=_URL)


LINKS = (Link(22, NAME, judge),)
