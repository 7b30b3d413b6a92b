"""NVIDIA's cards on this machine's PCI bus, which is there whether a driver is or not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

DEVICES = Path("/sys/bus/pci/devices")
_NVIDIA, _DISPLAY = "0x10de", "0x03"  # PCI vendor, and the first byte of the class: https://pci-ids.ucw.cz/


def cards(at: Callable[[Path], Path] = Path) -> tuple[str, ...] | None:
    """List the addresses of NVIDIA's display devices, but those that are a virtual machine's; None if the bus can't be
    seen at all. `at` says where its files are."""
    try:
        devices = sorted(at(DEVICES).iterdir())
    except OSError:
        return None
    if not devices:
        return None
    return tuple(device.name for device in devices if _is_card(device))


def _is_card(device: Path) -> bool:
    with contextlib.suppress(OSError):
        vendor, kind = (device / "vendor").read_text().strip(), (device / "class").read_text().strip()
        return vendor == _NVIDIA and kind.startswith(_DISPLAY) and driver(device) != "vfio-pci"
    return False


def driver(device: Path) -> str:
    return (device / "driver").resolve().name
