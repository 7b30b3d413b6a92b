"""What NVML's codes mean to a user: a few words for a failed reading, an error with a remedy for a failed driver.

Codes and their meaning: https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html (nvmlReturn_t).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar, cast

from ngcdl import waiting
from ngcdl.errors import DriverHangs, LibraryMissing, NgcdlError, NvmlUnavailable
from ngcdl.forked import Forked, meanwhile
from ngcdl.frozen import dataclass
from ngcdl.telemetry import container

INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, NOT_LOADED, LIBRARY_NOT_FOUND = 2, 3, 4, 6, 9, 12
INSUFFICIENT_POWER, IRQ_ISSUE = 8, 11
FUNCTION_NOT_FOUND, GPU_LOST, RESET_REQUIRED, BLOCKED, MISMATCH, UNKNOWN = 13, 15, 16, 17, 18, 999
# A look-up by UUID returns these codes for a healthy card, too, if they hold for any other card of the host:
# https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html (nvmlDeviceGetHandleByUUID)
OF_ANY_CARD = frozenset({INSUFFICIENT_POWER, IRQ_ISSUE, GPU_LOST, UNKNOWN})
# Nothing is wrong: the card, or this driver, does not offer the value (25 and 26: not in this form).
NOT_OFFERED = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND, 25, 26})
# With MIG on, only root may read some values of the whole card, and a MIG device has only what a part of a card has:
# https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html ("In MIG mode, if device handle is provided")
NOT_OFFERED_WITH_MIG = NOT_OFFERED | {INVALID_ARGUMENT, NO_PERMISSION}

T = TypeVar("T")

LIBRARY = "libnvidia-ml.so.1"
INSTALL = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"
WSL_GUIDE = "https://docs.nvidia.com/cuda/wsl-user-guide/"
CARDS = Path("/proc/driver/nvidia/gpus")  # has a folder for each card that the kernel's driver drives
# https://github.com/microsoft/WSL/issues/9952 https://github.com/microsoft/WSL/issues/13027
TCC = "Windows hands on no card in TCC mode, the mode of many data-centre cards: nvidia-smi.exe shows it"
# WSL's access to the cards of every vendor: https://devblogs.microsoft.com/directx/directx-heart-linux/
DXG = Path("/dev/dxg")
# Windows passes it to WSL only if NVIDIA's driver is installed there (WSL_GUIDE).
WSL_LIBRARY = Path("/usr/lib/wsl/lib", LIBRARY)
# Each tells a Jetson, as NVIDIA's own library does it:
# https://github.com/NVIDIA/go-nvlib/blob/main/pkg/nvlib/info/property-extractor.go
TEGRA_RELEASE, SOC_FAMILY = Path("/etc/nv_tegra_release"), Path("/sys/devices/soc0/family")
WITHOUT_NVML = "This Jetson has no NVML, the library that cards are read with; JetPack has it from release 6 on"

_WORDS = {
    1: "NVML is not initialised",
    INVALID_ARGUMENT: "NVML refused the argument",
    NO_PERMISSION: "no permission",
    NOT_FOUND: "not found",
    INSUFFICIENT_POWER: "the card's power cable is not plugged in",
    NOT_LOADED: "the driver is not loaded",
    10: "the driver timed out",
    IRQ_ISSUE: "the card's interrupts do not arrive",
    FUNCTION_NOT_FOUND: "not offered by this driver",
    14: "the card's infoROM is corrupted",
    GPU_LOST: "GPU is lost: it fell off the bus; reboot the host",
    RESET_REQUIRED: "the GPU needs a reset: sudo nvidia-smi --gpu-reset -i {card}",
    BLOCKED: "blocked by the operating system",
    MISMATCH: "the driver was updated: reboot",
    19: "in use by another client",
    20: "not enough memory",
    21: "no data yet",
    23: "not enough resources",
    27: "the driver is not ready",
    28: "there is no such GPU",
    UNKNOWN: "unknown error",
}


def words(code: int, card: int | str | None = None) -> str:
    """Describe a code in a few words, followed by the code. `card` is the index or UUID that the words name, because
    nvidia-smi without it would reset all cards: https://docs.nvidia.com/deploy/nvidia-smi/index.html"""
    return f"{_WORDS.get(code, 'NVML error').format(card='INDEX' if card is None else card)} ({code})"


def no_handle(code: int, card: int | str) -> str:
    """Describe the code for a card that can't be opened, like words(). If a card fell off the bus, the driver often
    returns UNKNOWN:
    https://github.com/koordinator-sh/koordinator/pull/2706"""
    if code != UNKNOWN:
        return words(code, card)
    inside = "" if container.pids_are_the_hosts() else ", or this container has lost it: start it again"
    return f"it may have fallen off the bus: sudo dmesg | grep -i xid{inside} ({code})"


def has_driver() -> bool:
    """Return whether an NVIDIA kernel driver is loaded here, or installed in Windows around WSL. A Jetson has one."""
    return Path("/proc/driver/nvidia").exists() or WSL_LIBRARY.exists() or is_jetson()


def is_jetson(at: Callable[[Path], Path] = Path) -> bool:
    """Return whether this is a Jetson, by its files; `at` says where they are."""
    try:
        family = at(SOC_FAMILY).read_text("utf-8", "replace")
    except OSError:
        family = ""
    return at(TEGRA_RELEASE).exists() or family.lower().startswith("tegra")


def unavailable(code: int) -> NvmlUnavailable:
    """Return the error for an initialisation that returned `code`."""
    if code == LIBRARY_NOT_FOUND:
        return _no_library()
    if code == BLOCKED and DXG.exists():
        what = f"Windows lets WSL have no GPU: {words(code)}."
        hint = f"{TCC}. No NVIDIA driver may be installed inside WSL. Update WSL and start it anew:"
        return NvmlUnavailable(what, f"{hint}\n    wsl.exe --update\n    wsl.exe --shutdown", answered=True)
    what, hint = _STARTS.get(code, (f"The NVIDIA driver can't be queried: {words(code)}.", _LOOK))
    return NvmlUnavailable(what, hint, answered=True)


def patience_seconds() -> float:
    """Return how long the driver may take for its first answer. Without persistence each card wakes up in 1 to 3 s:
    https://docs.nvidia.com/deploy/driver-persistence/overview.html"""
    try:
        cards = len(list(CARDS.iterdir()))
    except OSError:
        cards = 0
    return 20.0 + 4.0 * cards


def within(work: Callable[[], T], seconds: float | None = None) -> T:
    """Run `work`, which calls the driver, in a thread. If it never returns, leave it behind and raise DriverHangs.

    `seconds`: patience_seconds() if None. A thread that is stuck in the kernel keeps this process from ending, too,
    until the driver lets it go: no signal helps. So asking() is better, wherever nothing of the driver is kept."""
    seconds = patience_seconds() if seconds is None else seconds
    try:
        return waiting.within(work, seconds)
    except TimeoutError:
        raise _hangs(seconds) from None


@contextmanager
def asking(work: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """Run `work`, which asks the driver and closes it again, in a process of its own. Yield a function that waits for
    its result, for patience_seconds(), and raises DriverHangs, or what `work` raised.

    In this process, by within(), if no driver is loaded, if other threads run, or if the driver is in use here."""
    if not has_driver() or "pynvml" in sys.modules:
        yield lambda: within(work)
        return
    with meanwhile(lambda: _outcome(work)) as process:
        yield lambda: _result(work, process)


def _result(work: Callable[[], T], process: Forked[_Outcome[T]]) -> T:
    seconds = patience_seconds()
    try:
        outcome = process.result(seconds)
    except TimeoutError:
        raise _hangs(seconds) from None
    if outcome is None:
        return within(work)
    if outcome.error:
        raise outcome.error
    return cast(T, outcome.answer)


@dataclass(frozen=True)
class _Outcome(Generic[T]):
    answer: T | None = None
    error: NgcdlError | None = None


def _outcome(work: Callable[[], T]) -> _Outcome[T]:
    try:
        return _Outcome(work())
    except NgcdlError as error:
        return _Outcome(error=error)


def _hangs(seconds: float) -> DriverHangs:
    return DriverHangs(f"The NVIDIA driver gave no answer within {seconds:g} s.", f"{_LOOK}\n{_AWAKE}")


def wrong_binding(where: str | None) -> NvmlUnavailable:
    """Return the error for another package that is installed under the name of NVIDIA's binding."""
    return NvmlUnavailable(
        f"The module pynvml at {where or 'an unknown place'} is not NVIDIA's: another package has the same name.",
        "    pip uninstall --yes pynvml nvidia-ml-py && pip install nvidia-ml-py",
    )


def _no_library() -> NvmlUnavailable:
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        why = str(error)
    else:
        return NvmlUnavailable("The driver's library was missing, but can be loaded now.", "Try again.")
    if "No such file" not in why:
        return LibraryMissing(
            f"The driver's library can't be loaded: {why}.",
            f"Its file is damaged, or built for another system. Reinstall the driver:\n    {INSTALL}",
        )
    if is_jetson():
        return LibraryMissing(f"{WITHOUT_NVML}.", "Containers get the GPU all the same:\n    ngcdl run IMAGE")
    if has_driver():  # https://github.com/NVIDIA/yum-packaging-nvidia-driver/blob/main/nvidia-driver.spec
        return LibraryMissing(
            f"The NVIDIA driver is loaded, but its library {LIBRARY} is not installed.",
            "On Debian and Ubuntu it is in libnvidia-ml1 or libnvidia-compute-NNN, in NVIDIA's repository for dnf in "
            "libnvidia-ml; in a container, NVIDIA_DRIVER_CAPABILITIES must include 'utility'.",
        )
    what, where = "There is no NVIDIA driver on this host.", f"To use a GPU, install it:\n    {INSTALL}"
    if DXG.exists():
        what = "Windows has no NVIDIA driver for WSL to use, and probably no NVIDIA card."
        where = f"If this machine has one, install its driver in Windows, and none inside WSL:\n    {WSL_GUIDE}"
    return LibraryMissing(what, f"{where}\nTo train on the CPU:\n    ngcdl run --train cifar10 --gpus none")


_LOOK = "See what the kernel logged:\n    sudo dmesg | grep -iE 'nvrm|xid'"
_AWAKE = (
    "If it only wakes its cards slowly, nvidia-persistenced keeps them awake:\n    systemctl status nvidia-persistenced"
)

_STARTS = {
    NOT_LOADED: (
        "The NVIDIA driver is installed but not loaded.",
        "Does this host have an NVIDIA card? If so, load the driver; if that fails, it was not built for the running "
        "kernel:\n    lspci -d 10de:\n    sudo modprobe nvidia\n    dkms status\n"
        "If not, train on the CPU:\n    ngcdl run --train cifar10 --gpus none",
    ),
    MISMATCH: (
        "The NVIDIA driver was updated while the old one was in use: its library and its kernel module differ.",
        "    sudo reboot",
    ),
    NO_PERMISSION: (
        "This user may not use the NVIDIA driver.",
        "Compare the owner and mode of its devices with `id`:\n    ls -l /dev/nvidia*",
    ),
    GPU_LOST: (
        "A GPU is lost: it fell off the bus.",
        "Reboot the host; if this recurs, check the card's power and temperature:\n    sudo dmesg | grep -i xid",
    ),
    # https://github.com/NVIDIA/nvidia-container-toolkit/issues/48
    UNKNOWN: (
        "The NVIDIA driver answered 'Unknown Error' (999).",
        "In a container that had a GPU before: `systemctl daemon-reload` on the host removed its devices; start it "
        "again. On the host:\n    sudo dmesg | grep -iE 'nvrm|xid'",
    ),
}
