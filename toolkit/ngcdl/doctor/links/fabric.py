"""The NVLink fabric: has the fabric manager set up the cards of a server with NVSwitches? Before that CUDA fails, or
works without NVLink: https://github.com/Dstack-TEE/dstack/pull/1167"""

from __future__ import annotations

from collections.abc import Sequence

from ngcdl.doctor import packages
from ngcdl.doctor.chain import Finding, Link, Step, ok, warning
from ngcdl.doctor.sight import Sight
from ngcdl.telemetry.card import Card

NAME = "fabric"
_URL = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/"
# "can be deployed on managed NVL5 switches or dedicated head nodes"
_TRAYS = "https://docs.nvidia.com/networking/display/nmxcv130"
# Without it the fabric manager does not start on an HGX or DGX with NVLink 5:
# https://github.com/spectrocloud/CanvOS/pull/700 https://github.com/siderolabs/extensions/pull/717
UMAD = "sudo modprobe ib_umad && echo ib_umad | sudo tee /etc/modules-load.d/ib_umad.conf"


def judge(sight: Sight) -> Finding | None:
    late = [card for card in sight.cards if card.waits_for_fabric]
    if not late:
        is_there = any(card.fabric is not None for card in sight.cards)
        return ok(NAME, "the NVLink fabric is set up") if is_there else None
    found = "; ".join(f"GPU {card.index}: {card.fabric}" for card in late)
    cause = (
        "Until the fabric manager has set up these cards, CUDA fails with error 802, 'system not yet initialized', or "
        "works without NVLink between them. "
    )
    if _is_on_trays(sight, late):
        cause += (
            "In a GB200 or GB300 NVL72 it runs on the rack's NVLink switch trays or on a head node, not here: ask "
            "whoever manages these whether it does. This tray runs nvidia-imex"
        )
        state = Step("nvidia-smi -q | grep -i -A4 fabric", by_hand=True)
        imex = Step("systemctl status nvidia-imex", by_hand=True)
        return warning(NAME, found, cause, state, imex, source=_TRAYS)
    cause += "Its version must be the driver's; its log may say why it fails"
    steps = _installed(sight)
    if _has_nvlink_5(late):
        cause += ". With B200 and B300 it also needs the package nvlsm and the kernel's module ib_umad"
        steps = (*steps, *packages.subnet_manager(sight.programs), Step(UMAD))
    log = Step("sudo journalctl -u nvidia-fabricmanager -n 50", by_hand=True)
    start = Step("sudo systemctl enable --now nvidia-fabricmanager")
    return warning(NAME, found, cause, *steps, start, log, source=_URL)


def _installed(sight: Sight) -> tuple[Step, ...]:
    """Return the step that installs the fabric manager, if it is missing and its package is known."""
    driver = sight.kernel.module
    if driver is None or "nv-fabricmanager" in sight.programs.names:
        return ()
    return packages.fabric_manager(sight.programs, driver)


def _has_nvlink_5(late: Sequence[Card]) -> bool:
    return all(card.compute_capability in ("10.0", "10.3") for card in late)


def _is_on_trays(sight: Sight, late: Sequence[Card]) -> bool:
    """Whether the fabric manager runs on other machines than this one: in racks of Grace and Blackwell."""
    is_blackwell = all((card.compute_capability or "").startswith("10.") for card in late)
    return is_blackwell and sight.kernel.machine in ("aarch64", "arm64")


LINKS = (Link(22, NAME, judge),)
