"""What else a training needs from the host: AVX, shared memory, and settings of SELinux or WSL."""

from __future__ import annotations

from ngcdl.doctor.chain import Finding, Link, Step, ok, unchecked, warning
from ngcdl.doctor.sight import Sight
from ngcdl.engines.values import architecture
from ngcdl.figures import size
from ngcdl.preflight.verdict import AVX
from ngcdl.telemetry.driver import WSL_GUIDE

_SHM_BYTES = 1 << 30  # what NVIDIA's own commands give a container: --shm-size=1g
_SHM_URL = "https://docs.nvidia.com/deeplearning/frameworks/user-guide/index.html#setincshmem"
_SELINUX_URL = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html"


def cpu(sight: Sight) -> Finding:
    kernel = sight.kernel
    if architecture(kernel.machine) != "amd64":
        return ok("cpu", f"{kernel.machine or 'unknown architecture'}: use images that are made for it")
    if kernel.cpu_flags is None:
        return unchecked("cpu", "/proc/cpuinfo does not list its features")
    if "avx" not in kernel.cpu_flags:
        cause = "TensorFlow from 1.6 on dies of 'Illegal instruction'; a virtual machine may be given its host's CPU"
        return warning("cpu", "x86_64 without AVX", cause, source=AVX)
    best = next((name for name in ("avx512f", "avx2") if name in kernel.cpu_flags), "avx")
    return ok("cpu", f"x86_64 with {best.upper()}")


def shm(sight: Sight) -> Finding:
    if sight.shm is None:
        return unchecked("shm", "/dev/shm can't be measured")
    found = f"/dev/shm has {size(sight.shm.free_bytes)} free of {size(sight.shm.total_bytes)}"
    if sight.shm.free_bytes >= _SHM_BYTES:
        return ok("shm", found)
    cause = "Runs without a container use it (in one, --shm-size counts); short of it, data loaders hit a bus error"
    if sight.shm.total_bytes < _SHM_BYTES:
        return warning("shm", found, cause, Step("sudo mount -o remount,size=50% /dev/shm"), source=_SHM_URL)
    return warning(
        "shm", found, f"{cause}. Other programs are filling it", Step("ls -lhS /dev/shm", by_hand=True), source=_SHM_URL
    )


def selinux(sight: Sight) -> Finding | None:
    if not sight.kernel.enforces_selinux:
        return None
    hint = (
        "Where the engine applies SELinux's labels, ngcdl runs its containers with label=disable. Plain docker needs "
        "docker run --security-opt=label=disable, without which a GPU may fail with 'Insufficient Permissions'"
    )
    return ok("selinux", "enforcing", hint, source=_SELINUX_URL)


def wsl(sight: Sight) -> Finding | None:
    if not sight.kernel.has_dxg:
        return None
    hint = "The driver is the one in Windows: install none here. WSL lacks per-process figures and some other readings"
    return ok("wsl", "this is WSL", hint, source=WSL_GUIDE)


LINKS = (Link(15, "wsl", wsl), Link(160, "shm", shm), Link(180, "selinux", selinux), Link(310, "cpu", cpu))
