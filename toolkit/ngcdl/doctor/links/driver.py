"""The NVIDIA driver: are its kernel module and its library there, and of the same version?"""

from __future__ import annotations

import re

from ngcdl.doctor.chain import Finding, Link, Step, broken, from_error, ok, unchecked, warning
from ngcdl.doctor.sight import Kernel, Programs, Sight, Trouble
from ngcdl.errors import DriverHangs, LibraryMissing, NvmlUnavailable
from ngcdl.telemetry.card import Driver
from ngcdl.telemetry.driver import INSTALL, TCC, WITHOUT_NVML, WSL_GUIDE

NAME = "driver"
REBOOT = Step("sudo reboot", by_hand=True)
# Debian's and Ubuntu's packages with NVML, and those with the kernel module, with or without the branch in the name:
# https://packages.ubuntu.com/libnvidia-compute-535-server https://packages.debian.org/libnvidia-ml1
_LIBRARY = re.compile(r"libnvidia-compute(?:-(?P<branch>\d{3,4})(?:-server)?)?|libnvidia-(?:tesla-(?:\d{3,4}-)?)?ml1")
_UBUNTU_S = re.compile(r"(?:nvidia-dkms|linux-modules-nvidia)-(?P<branch>\d{3,4})(?P<server>-server)?(?:-.*)?")
_NVIDIA_S = re.compile(r"nvidia-dkms(?:-open)?")
_DEBIAN_S = re.compile(r"nvidia-(?P<tesla>tesla-(?:\d{3,4}-)?)?(?:open-)?kernel-(?:open-)?dkms")


def judge(sight: Sight) -> Finding:
    if not sight.has_gpu:
        return _without(sight.kernel)
    if isinstance(sight.gpus, Trouble):
        if sight.gpus.is_late:
            return _hanging(f"the driver gave {sight.gpus.why}")
        return unchecked(NAME, sight.gpus.why)
    error, driver = sight.gpus.error, sight.gpus.driver
    if error is not None:
        return _silent(error, sight.kernel, sight.programs)
    if not sight.gpus.cards and _is_windows_s(sight.kernel):
        return broken(NAME, "Windows' driver shows WSL no GPU", TCC, source=WSL_GUIDE)
    if not sight.gpus.cards:
        cause = f"The kernel log says why the driver rejected a card{undriven(sight.kernel)}"
        return broken(NAME, "the driver shows no GPU", cause, *_LOOK, source=INSTALL)
    assert driver is not None
    return _answering(driver, sight.kernel)


_LOOK = (Step("sudo dmesg | grep -iE 'nvrm|xid'", by_hand=True),)


def undriven(kernel: Kernel) -> str:
    """Return a sentence, after a period, about the cards that the loaded kind of NVIDIA's kernel module never drives.

    https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/kernel-modules.html
    https://github.com/NVIDIA/open-gpu-kernel-modules/issues/872 (Blackwell)"""
    if kernel.is_open is None:
        return ""
    kinds = ("proprietary", "open", "Blackwell (RTX 50, RTX PRO Blackwell, B200)")
    kind, other, cards = ("open", "proprietary", "Maxwell, Pascal or Volta") if kernel.is_open else kinds
    return f". Its kernel module is NVIDIA's {kind} one, which drives no {cards}: these need the {other} one"


def _without(kernel: Kernel) -> Finding:
    if not kernel.has_dxg:
        return ok(NAME, "no NVIDIA card in this machine: trainings run on the CPU")
    hint = f"If this machine has an NVIDIA card, install its driver in Windows: {WSL_GUIDE}"
    return ok(NAME, "Windows has no NVIDIA driver: trainings run on the CPU", hint, source=WSL_GUIDE)


def _hanging(found: str) -> Finding:
    return broken(NAME, found, "A driver call hangs in the kernel; see what the kernel logged", *_LOOK, REBOOT)


def _answering(driver: Driver, kernel: Kernel) -> Finding:
    found = f"{driver.version or 'version unknown'}, for CUDA up to {driver.cuda or 'unknown'}"
    if kernel.module and driver.version and kernel.module != driver.version:
        cause = (
            f"The loaded kernel module is {kernel.module}, but the library is {driver.version}: an update is half done"
        )
        return warning(NAME, found, cause, REBOOT)
    found += ", Windows' own (WSL)" if _is_windows_s(kernel) else ""
    return ok(NAME, f"{found} ({driver.error})" if driver.error else found)


def _is_windows_s(kernel: Kernel) -> bool:
    return kernel.has_dxg and not kernel.is_loaded


def _silent(error: NvmlUnavailable, kernel: Kernel, programs: Programs) -> Finding:
    """Judge a driver that can't be queried: which part of it is missing?"""
    if isinstance(error, DriverHangs):
        return _hanging(error.message)
    is_missing = isinstance(error, LibraryMissing)
    if kernel.is_tegra and is_missing:
        cause = "Runs in containers get the GPU all the same, but it is not measured, and images are not judged for it"
        return warning(NAME, WITHOUT_NVML, cause)
    if kernel.has_nouveau and not kernel.is_loaded:
        how, steps = _install(kernel)
        cause = f"The kernel's own driver nouveau has the card, but can't compute: NVIDIA's replaces it. {how}"
        return broken(NAME, "nouveau is loaded instead of NVIDIA's driver", cause, *steps, source=INSTALL)
    if _is_windows_s(kernel) and (is_missing or error.answered):
        cause = "Under WSL the driver is the one in Windows: install it there, and none inside WSL"
        cause += "" if is_missing else f". {TCC}"
        return broken(NAME, error.message, cause, Step("wsl.exe --update", by_hand=True), source=WSL_GUIDE)
    if is_missing and not kernel.is_loaded:
        cards = len(kernel.pci or ())
        found = f"{cards or 'an'} NVIDIA card{'s' if cards > 1 else ''}, but no driver"
        how, steps = _install(kernel)
        return broken(NAME, found, f"The driver is not installed. {how}", *steps, source=INSTALL)
    if is_missing and kernel.module:
        library = _library(kernel.module, programs)
        cause = f"Its kernel module is {kernel.module}" + ("" if library else ". NVIDIA's guide covers its library too")
        steps = (Step(f"sudo apt-get install --reinstall {library}"),) if library else ()
        return broken(NAME, error.message, cause, *steps, source=INSTALL)
    return from_error(NAME, error)


def _install(kernel: Kernel) -> tuple[str, tuple[Step, ...]]:
    """Return how the driver is installed here, and the steps for it: () if NVIDIA's guide has to be followed."""
    # https://documentation.ubuntu.com/server/how-to/graphics/install-nvidia-drivers/
    if "ubuntu" in kernel.distribution:
        # minimal and server images come without ubuntu-drivers
        tool = Step("sudo apt-get update && sudo apt-get install ubuntu-drivers-common")
        return "A reboot completes its installation", (tool, Step("sudo ubuntu-drivers install"), REBOOT)
    if "debian" in kernel.distribution:
        # https://wiki.debian.org/NvidiaGraphicsDrivers https://packages.debian.org/nvidia-driver
        # https://docs.nvidia.com/datacenter/tesla/drivers/615/supported-drivers-and-cuda-toolkit-versions.html
        how = (
            "Debian's own (535 in bookworm, which NVIDIA supported until June 2026, and 550 in trixie) is in its "
            "components contrib, non-free and, from bookworm on, non-free-firmware: add them to apt's sources first. "
            "nvidia-detect says whether it drives the card. "
            "Newer cards, such as Blackwell (RTX 50, RTX PRO, B200), need 570 or newer, which is nvidia-open in "
            "NVIDIA's repository, as its guide describes. A reboot completes the installation"
        )
        detect = Step("sudo apt-get update && sudo apt-get install nvidia-detect")
        # nvidia-detect exits with 0 whatever it recommends, so its text is searched
        is_driven = Step("nvidia-detect | tee /dev/stderr | grep -qx ' *nvidia-driver'")
        return how, (detect, is_driven, Step("sudo apt-get install nvidia-driver"), REBOOT)
    if {"rhel", "fedora", "amzn", "azurelinux"} & set(kernel.distribution):
        how = (
            "It is in NVIDIA's repository, which its guide says how to add first, and drives cards from Turing on "
            "(older ones need branch 580 or older). A reboot completes the installation"
        )
        return how, (_MODULE, Step("sudo dnf install nvidia-open", by_hand=True), REBOOT)
    return "NVIDIA's guide says how to install it on this distribution", ()


# https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/620/kernel-modules.html
_MODULE = Step(
    "sudo dnf module enable nvidia-driver:open-dkms    # not on RHEL 10, its derivatives, Fedora and Azure Linux",
    by_hand=True,
)


def _library(module: str, programs: Programs) -> str | None:
    """Return the name of the package that has the loaded module's library, None if unknown."""
    branch, packages = module.partition(".")[0], sorted(programs.driver_packages)
    libraries = [found for name in packages if (found := _LIBRARY.fullmatch(name))]
    if own := [found[0] for found in libraries if found["branch"] in (None, branch)]:
        return own[0]
    for name in packages:
        found = _UBUNTU_S.fullmatch(name)
        if found and found["branch"] == branch:
            return f"libnvidia-compute-{branch}{found['server'] or ''}"
        if _NVIDIA_S.fullmatch(name):
            return "libnvidia-compute"
        if found := _DEBIAN_S.fullmatch(name):
            return f"libnvidia-{found['tesla'] or ''}ml1"
    return None


LINKS = (Link(10, NAME, judge),)
