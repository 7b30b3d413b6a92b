"""The NVIDIA driver: its kernel module, its library, and whether the two are of one version."""

from __future__ import annotations

from ngcdl.doctor.chain import Finding, Link, Step, broken, from_error, ok, unchecked, warning
from ngcdl.doctor.sight import Kernel, Sight, Trouble
from ngcdl.errors import DriverHangs, LibraryMissing, NvmlUnavailable
from ngcdl.telemetry.card import Driver
from ngcdl.telemetry.driver import INSTALL, WSL_GUIDE

NAME = "driver"
REBOOT = Step("sudo reboot", by_hand=True)


def judge(sight: Sight) -> Finding:
    if not sight.has_gpu:
        return _without(sight.kernel)
    if isinstance(sight.gpus, Trouble):
        if sight.gpus.why.startswith("no answer"):
            return _hanging(f"the driver gave {sight.gpus.why}")
        return unchecked(NAME, sight.gpus.why)
    error, driver = sight.gpus.error, sight.gpus.driver
    if error is not None:
        return _silent(error, sight.kernel)
    if not sight.gpus.cards:
        found = "the driver shows no GPU"
        return broken(NAME, found, "The kernel log says why a card was not taken", *_LOOK, source=INSTALL)
    assert driver is not None
    return _answering(driver, sight.kernel)


_LOOK = (Step("sudo dmesg | grep -iE 'nvrm|xid'", by_hand=True),)


def _without(kernel: Kernel) -> Finding:
    if not kernel.has_dxg:
        return ok(NAME, "no NVIDIA card in this machine: trainings run on the CPU")
    hint = f"If this machine has an NVIDIA card, install its driver in Windows: {WSL_GUIDE}"
    return ok(NAME, "Windows has no NVIDIA driver: trainings run on the CPU", hint, source=WSL_GUIDE)


def _hanging(found: str) -> Finding:
    return broken(NAME, found, "A call of the driver hangs in the kernel; see what it logged", *_LOOK, REBOOT)


def _answering(driver: Driver, kernel: Kernel) -> Finding:
    found = f"{driver.version or 'version unknown'}, for CUDA up to {driver.cuda or 'unknown'}"
    if kernel.module and driver.version and kernel.module != driver.version:
        cause = (
            f"The loaded kernel module is {kernel.module}, the library says {driver.version}: an update is half done"
        )
        return warning(NAME, found, cause, REBOOT)
    if kernel.has_dxg and not kernel.is_loaded:
        return ok(NAME, f"{found}, Windows' own (WSL)")
    return ok(NAME, found)


def _silent(error: NvmlUnavailable, kernel: Kernel) -> Finding:
    """The driver can't be asked; say which of its parts is missing."""
    if isinstance(error, DriverHangs):
        return _hanging(error.message)
    is_missing = isinstance(error, LibraryMissing)
    if kernel.has_nouveau and not kernel.is_loaded:
        how, steps = _install(kernel)
        cause = f"The kernel's own driver nouveau holds the card, and it can't compute: NVIDIA's replaces it. {how}"
        return broken(NAME, "nouveau is loaded in place of NVIDIA's driver", cause, *steps, source=INSTALL)
    if kernel.has_dxg and not kernel.is_loaded and (is_missing or error.answered):
        cause = "Under WSL the driver is Windows' own: install it there, and none inside of WSL"
        return broken(NAME, error.message, cause, Step("wsl.exe --update", by_hand=True), source=WSL_GUIDE)
    if is_missing and not kernel.is_loaded:
        cards = len(kernel.pci or ())
        found = f"{cards or 'an'} NVIDIA card{'s' if cards > 1 else ''}, but no driver"
        how, steps = _install(kernel)
        return broken(NAME, found, f"The driver is not installed. {how}", *steps, source=INSTALL)
    if is_missing and kernel.module:
        return broken(NAME, error.message, f"Its kernel module is {kernel.module}", *_library(kernel), source=INSTALL)
    return from_error(NAME, "broken", error)


def _install(kernel: Kernel) -> tuple[str, tuple[Step, ...]]:
    """Say how the driver is installed here, and with which steps; () where NVIDIA's guide has to be followed."""
    # https://documentation.ubuntu.com/server/how-to/graphics/install-nvidia-drivers/
    if "ubuntu" in kernel.distribution:
        return "A reboot ends its installation", (Step("sudo ubuntu-drivers install"), REBOOT)
    if "debian" in kernel.distribution:
        # https://wiki.debian.org/NvidiaGraphicsDrivers
        how = (
            "It is in Debian's components contrib, non-free and, from bookworm on, non-free-firmware: name them in "
            "apt's sources first. A reboot ends its installation"
        )
        return how, (Step("sudo apt-get update && sudo apt-get install nvidia-driver"), REBOOT)
    return "NVIDIA's guide says how it is installed on this distribution", ()


def _library(kernel: Kernel) -> tuple[Step, ...]:
    major = (kernel.module or "").partition(".")[0]
    if "ubuntu" in kernel.distribution:
        return (Step(f"sudo apt-get install --reinstall libnvidia-compute-{major}"),)
    if "debian" in kernel.distribution:
        return (Step("sudo apt-get install --reinstall libnvidia-ml1"),)
    return ()


LINKS = (Link(10, NAME, judge),)
