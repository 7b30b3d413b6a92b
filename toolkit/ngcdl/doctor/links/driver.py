"""The NVIDIA driver: its kernel module, its library, and whether the two are of one version."""

from __future__ import annotations

from ngcdl.doctor.chain import Finding, Link, Step, broken, from_error, ok, unchecked, warning
from ngcdl.doctor.sight import Kernel, Sight, Trouble
from ngcdl.errors import NvmlUnavailable
from ngcdl.telemetry.card import Driver

NAME = "driver"
# https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/
INSTALL = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"
_WSL = "https://docs.nvidia.com/cuda/wsl-user-guide/"
REBOOT = Step("sudo reboot", by_hand=True)


def judge(sight: Sight) -> Finding:
    if not sight.has_gpu:
        return ok(NAME, "no NVIDIA card in this machine: trainings run on the CPU")
    if isinstance(sight.gpus, Trouble):
        if sight.gpus.why.startswith("no answer"):
            why = f"the driver gave {sight.gpus.why}"
            return broken(NAME, why, "A call of the driver hangs in the kernel; see what it logged", *_LOOK, REBOOT)
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
    if kernel.has_nouveau and not kernel.is_loaded:
        cause = (
            "The kernel's own driver nouveau holds the card, and it can't compute. NVIDIA's replaces it, after a reboot"
        )
        return broken(
            NAME, "nouveau is loaded in place of NVIDIA's driver", cause, *_install(kernel), REBOOT, source=INSTALL
        )
    if kernel.has_dxg and not kernel.is_loaded:
        cause = "Under WSL the driver is Windows' own: install it there, and none inside of WSL"
        return broken(NAME, error.message, cause, Step("wsl.exe --update", by_hand=True), source=_WSL)
    if not error.answered and not kernel.is_loaded:
        cards = len(kernel.pci or ())
        found = f"{cards or 'an'} NVIDIA card{'s' if cards > 1 else ''}, but no driver"
        return broken(
            NAME,
            found,
            "The driver is not installed; a reboot ends its installation",
            *_install(kernel),
            REBOOT,
            source=INSTALL,
        )
    if not error.answered and kernel.module:
        return broken(NAME, error.message, f"Its kernel module is {kernel.module}", *_library(kernel), source=INSTALL)
    return from_error(NAME, "broken", error)


def _install(kernel: Kernel) -> tuple[Step, ...]:
    # Ubuntu: https://documentation.ubuntu.com/server/how-to/graphics/install-nvidia-drivers/
    # Debian (non-free): https://wiki.debian.org/NvidiaGraphicsDrivers
    if "ubuntu" in kernel.distribution:
        return (Step("sudo ubuntu-drivers install"),)
    if "debian" in kernel.distribution:
        return (Step("sudo apt-get install nvidia-driver"),)
    return ()


def _library(kernel: Kernel) -> tuple[Step, ...]:
    major = (kernel.module or "").partition(".")[0]
    if "ubuntu" in kernel.distribution:
        return (Step(f"sudo apt-get install --reinstall libnvidia-compute-{major}"),)
    if "debian" in kernel.distribution:
        return (Step("sudo apt-get install --reinstall libnvidia-ml1"),)
    return ()


LINKS = (Link(10, NAME, judge),)
