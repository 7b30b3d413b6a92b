"""What can be known about a GPU, as plain values. None: the driver does not offer the value."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import cache
from typing import TypeVar

from ngcdl.errors import NvmlUnavailable
from ngcdl.frozen import dataclass

T = TypeVar("T", "Card", "GpuReading")

IDLE_PERCENT = 5  # the most that a desktop may use of a free card, and of its memory

# Who may compute on a card, by NVML's number, in nvidia-smi's words:
# https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html
DEFAULT, PROHIBITED = "Default", "Prohibited"  # any number of programs, none
EXCLUSIVE = ("Exclusive_Thread", "Exclusive_Process")  # one
COMPUTE_MODES = {0: DEFAULT, 1: EXCLUSIVE[0], 2: PROHIBITED, 3: EXCLUSIVE[1]}
# An MPS server's clients compute through it, and NVML lists them separately:
# https://docs.nvidia.com/deploy/topics/topic_5_1_2.html
_MPS_SERVER = "nvidia-cuda-mps"  # -server is cut off: Linux keeps 15 characters of a program's name

# Why clocks are limited, by bit, in the terms of `nvidia-smi --query-gpu=clocks_event_reasons...`:
# https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}


@cache
def reasons(mask: int) -> tuple[str, ...]:
    """Name the bits that are set; a bit of a later driver is shown as a number, 0x800."""
    bits = (1 << place for place in range(mask.bit_length()))
    return tuple(REASONS.get(bit, f"{bit:#x}") for bit in bits if mask & bit)


@dataclass(frozen=True)
class Driver:
    """`cuda` is the newest CUDA version that this driver runs, such as 12.2. `error`: why a version is not known."""

    version: str | None
    nvml_version: str | None
    cuda: str | None
    error: str | None = None


@dataclass(frozen=True)
class GpuProcess:
    """A process on a GPU. `name` and container are None if /proc hides them. `draws`: the process draws on the screen,
    too, as many programs of a desktop do (nvidia-smi: type C+G); without `computes` it only draws (type G).
    `lists_clients`: the process is an MPS server whose clients the driver listed, too."""

    pid: int
    memory_bytes: int | None = None
    name: str | None = None
    container_id: str | None = None
    draws: bool = False
    computes: bool = True
    lists_clients: bool = False

    @property
    def is_mps_server(self) -> bool:
        return (self.name or "").startswith(_MPS_SERVER)

    @property
    def hides_clients(self) -> bool:
        """Whether processes that are not listed may compute through this one."""
        return self.is_mps_server and not self.lists_clients


@dataclass(frozen=True)
class Card:
    """What a GPU or a MIG device is; a MIG device's `index` is that on its card, whose own is `card_index`. `mig`: MIG
    is on, so programs compute on the `mig_devices`, which are the existing ones that this user may see."""

    index: int | None
    uuid: str | None = None
    name: str | None = None
    compute_capability: str | None = None
    memory_total_bytes: int | None = None
    brand: int | None = None
    mig: bool | None = None
    mig_devices: tuple[Card, ...] = ()
    persistence: bool | None = None  # the driver stays awake between two programs
    error: str | None = None
    fabric: str | None = None  # its set-up in the NVLink fabric: not started, in progress, failed or completed
    compute_mode: str | None = None  # one of COMPUTE_MODES
    card_index: int | None = None

    @property
    def waits_for_fabric(self) -> bool:
        """Whether CUDA fails on this card with error 802 until the fabric manager has set it up."""
        return self.fabric not in (None, "completed")


@dataclass(frozen=True)
class GpuReading:
    """What a GPU or a MIG device does now. Percents are 0..100, over the driver's last sample period (1/6 s to 1 s).
    If a card uses the machine's memory, `memory_total_bytes` is None, and `memory_used_bytes` what its processes take.

    The four percents at the end say how much of the card worked, on average since the reading before (gpm.py): of its
    SMs; of the warps that its SMs have room for; of its tensor cores; of its memory's bandwidth.
    `energy_joules` counts since the driver was loaded (Volta and newer); `throttle_reasons` is () if nothing limits
    the clocks."""

    index: int | None
    uuid: str | None = None
    name: str | None = None
    compute_capability: str | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    gpu_percent: int | None = None
    memory_percent: int | None = None
    watts: float | None = None
    watts_limit: float | None = None
    energy_joules: float | None = None
    celsius: int | None = None
    sm_mhz: int | None = None
    sm_mhz_max: int | None = None
    memory_mhz: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    processes: tuple[GpuProcess, ...] | None = None
    mig: bool | None = None
    mig_devices: tuple[GpuReading, ...] = ()
    error: str | None = None
    compute_mode: str | None = None
    sm_active_percent: float | None = None
    sm_occupancy_percent: float | None = None
    tensor_active_percent: float | None = None
    dram_bandwidth_percent: float | None = None
    card_index: int | None = None  # of a MIG device's card

    @property
    def is_out_of_order(self) -> bool:
        return self.uuid is None or (self.error is not None and self.memory_used_bytes is None)

    @property
    def is_free(self) -> bool:
        """Whether the card works and nothing computes on it. Without a list of processes (WSL), or if all processes
        draw or are MPS servers, the card's use decides; if the use is unknown, too, its memory decides. If nothing is
        known, the card counts as free."""
        if self.is_out_of_order:
            return False
        if self.processes == ():
            return True
        processes = self.processes or ()
        if not all(one.draws or one.is_mps_server for one in processes):
            return False
        if self.compute_mode in EXCLUSIVE and any(one.computes for one in processes):
            return False
        percent: float | None = self.gpu_percent
        if percent is None and self.memory_used_bytes is not None and self.memory_total_bytes:
            percent = 100 * self.memory_used_bytes / self.memory_total_bytes
        return percent is None or percent <= IDLE_PERCENT

    @property
    def is_too_busy(self) -> bool:
        """Whether the card is not free only because it is too busy."""
        return self.gpu_percent is not None and not self.is_free and replace(self, gpu_percent=0).is_free

    @property
    def why_busy(self) -> str:
        """Say how busy the card is, and whether with a desktop, if it is not free only because of that; else ""."""
        if not self.is_too_busy:
            return ""
        draws = bool(self.processes) and not any(one.is_mps_server for one in self.processes or ())
        return f"{'a desktop, ' if draws else ''}{self.gpu_percent} % busy"

    @property
    def capability(self) -> tuple[int, ...]:
        """Return the compute capability as numbers; (0, 0) if it is unknown."""
        return tuple(int(part) for part in (self.compute_capability or "0.0").split("."))

    @property
    def weakness(self) -> tuple[int, ...]:
        """Return the sort key for the strongest card, as CUDA too puts the fastest first: the newest generation, then
        the most memory, in GiB. So a strong card that a desktop uses comes before an idle weak one."""
        return *(-part for part in self.capability), -((self.memory_total_bytes or 0) >> 30)

    @property
    def use(self) -> tuple[int, int, int]:
        """Return the sort key for the least used card."""
        return self.gpu_percent or 0, self.memory_used_bytes or 0, self.index or 0


def is_mig(uuid: str) -> bool:
    """Return whether this is a MIG device's UUID: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/"""
    return uuid.startswith("MIG-")


def whole_cards(uuids: Collection[str], cards: Iterable[Card]) -> frozenset[str]:
    """Return `uuids` with the card in place of each MIG device that one of `cards` has."""
    of_card = {part.uuid: card.uuid for card in cards for part in card.mig_devices}
    return frozenset(of_card.get(uuid) or uuid for uuid in uuids)


def compute_devices(cards: Iterable[T]) -> dict[str, T]:
    """Return what programs compute on, by its name in NVIDIA's container toolkit: 0 is a card, 0:1 its MIG device.

    A card with MIG on is not included, because programs in a container with only that card see no device. A Prohibited
    card is not included either, because programs see it, but CUDA refuses to use it."""
    found: dict[str, T] = {}
    for card in cards:
        parts = {f"{card.index}:{one.index}": one for one in card.mig_devices}
        found |= parts if card.mig else {} if is_prohibited(card) else {str(card.index): card}
    return found


def is_prohibited(card: Card | GpuReading) -> bool:
    """Return whether a card is set to let no program compute, as display cards often are. With MIG on the answer is
    False, because the MIG devices count."""
    return card.compute_mode == PROHIBITED and not card.mig


def prohibited(index: int | str | None) -> str:
    """Say that the card `index` lets no program compute, with the command that changes that:
    https://docs.nvidia.com/deploy/nvidia-smi/index.html"""
    return f"its compute mode is {PROHIBITED} (to let programs compute: sudo nvidia-smi -i {index} -c 0)"


@dataclass(frozen=True)
class Probe:
    """What this host has: its cards, or why none can be seen. `absent`: it has no driver at all."""

    cards: tuple[Card, ...] = ()
    driver: Driver | None = None
    error: NvmlUnavailable | None = None
    absent: bool = False

    @property
    def usable(self) -> tuple[Card, ...]:
        """The cards on which programs may compute, including cards of which only the MIG devices compute."""
        return tuple(card for card in self.cards if not is_prohibited(card))

    @property
    def why_none(self) -> str:
        """Why this host has no usable card: it has none, all are Prohibited, or the driver can't tell."""
        if self.cards:
            return "; ".join(f"GPU {card.index} may not compute: {prohibited(card.index)}" for card in self.cards)
        if self.absent or self.error is None:
            return "this host has no NVIDIA driver" if self.absent else "the NVIDIA driver shows no GPU"
        return f"the NVIDIA driver can't be asked ({self.error.message.rstrip('.')})"
