"""What is known about an image and a host before anything is pulled, and what follows from it. Plain values.

None means unknown, and only that. Versions are strings as NVIDIA writes them: driver 535.104.05, CUDA 12.2.2, compute
capability 8.6; catalog.rows makes them comparable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from ngcdl.frozen import dataclass

Level = Literal["runs", "caution", "no"]
LEVELS: tuple[Level, ...] = ("runs", "caution", "no")  # best first
# native: the driver is at least as new as the image's own. forward: the image's cuda-compat package stands in for a
# newer driver (data-centre cards). minor: an older driver of the same CUDA major version. ptx: the GPU is newer than
# the image's kernels, so the driver compiles their PTX at the first start.
# https://docs.nvidia.com/deploy/cuda-compatibility/
Mode = Literal["native", "forward", "minor", "ptx"]

# nvmlBrandType_t: https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html
BRANDS = {
    0: "unknown", 1: "quadro", 2: "tesla", 3: "nvs", 4: "grid", 5: "geforce", 6: "titan", 7: "vapps", 8: "vpc",
    9: "vcs", 10: "vws", 11: "cloudgaming", 12: "quadrortx", 13: "nvidiartx", 14: "nvidia", 15: "geforcertx",
    16: "titanrtx",
}  # fmt: skip


@dataclass(frozen=True)
class ImageFacts:
    """What is known about one image for one processor architecture.

    `sources` maps each field to its source ("registry", or a URL). `recalled` holds the fields written from memory,
    not read in any source; the output says so. `compat_branches` are the driver branches (their first number) on which
    the image's cuda-compat package works, None if no list is known; if there are `compat_likely`, they are only the
    branches that were seen to work. `compat_brands` are the NVML brands that the package works on; `compat_minimums`
    is the oldest working driver of a branch, where documented.
    """

    reference: str
    framework: str | None = None  # tensorflow, pytorch
    release: str | None = None  # 24.05
    framework_version: str | None = None
    python: str | None = None
    cuda: str | None = None  # None: no CUDA inside, if has_cuda is False; else unknown
    has_cuda: bool | None = None
    for_jetson: bool = False
    driver: str | None = None  # the driver that the image was built with: native from this version on
    minor_floor: str | None = None  # oldest driver of minor-version compatibility; CUDA <= 10 has none
    architectures: tuple[str, ...] | None = None  # amd64, arm64
    sass: tuple[str, ...] | None = None  # compute capabilities with compiled kernels, ascending
    ptx: str | None = None  # the newest one in PTX, which the driver can compile for a newer card
    min_capability: str | None = None  # documented
    compat_branches: tuple[int, ...] | None = None
    compat_brands: tuple[str, ...] = ()
    compat_likely: tuple[int, ...] = ()  # if no complete list is known: the branches in the last known list
    compat_minimums: Mapping[int, str] = field(default_factory=dict)
    require: tuple[str, ...] = ()  # the values of NVIDIA_REQUIRE_*, enforced by the legacy hook only
    digest: str | None = None
    is_schema_1: bool = False
    compressed_bytes: int | None = None  # what is downloaded
    unpacked_bytes: int | None = None  # an estimate, and labelled as one
    sources: Mapping[str, str] = field(default_factory=dict)
    recalled: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Gpu:
    """One card. `brand` is one of BRANDS, or None if the driver does not report it."""

    capability: str | None
    name: str | None = None
    brand: str | None = None
    index: int | None = None
    uuid: str | None = None
    memory_bytes: int | None = None
    mig: bool | None = None

    @property
    def title(self) -> str:
        """What to call the card in a sentence."""
        return self.name or "the card"  # it may be one of another machine


@dataclass(frozen=True)
class HostFacts:
    """The machine that an image is judged for.

    `elsewhere` is set if the engine is on another machine, or if this is a Jetson without NVML: why its GPUs can't be
    judged from here.
    `gpu_trouble`: why the driver can't be queried, or that no program may compute on its GPUs. `free_bytes` is the free
    space where the engine keeps images. `is_wsl`: the host is WSL, and `driver` is that of Windows.
    """

    architecture: str = "amd64"
    driver: str | None = None
    gpus: tuple[Gpu, ...] = ()
    avx: bool | None = None
    free_bytes: int | None = None
    engine_version: str | None = None
    gpu_way: str | None = None  # runtime, device-request, cdi, none; None: no engine was queried
    gpu_trouble: str | None = None
    elsewhere: str | None = None
    is_wsl: bool = False


@dataclass(frozen=True)
class Reason:
    """One rule that was applied. `found` and `needed` are the two numbers, `source` documents the needed one.

    Rules: architecture, capability, ptx, cuda10, native, forward, minor, driver, require, no-cuda, no-gpu, mixed,
    elsewhere, unknown, avx, disk, schema1, gpu-way, igpu. `recalled`: the needed number is from memory.
    """

    rule: str
    level: Level
    text: str  # one sentence for people, without the final period
    found: str | None = None
    needed: str | None = None
    source: str | None = None
    recalled: bool = False


@dataclass(frozen=True)
class CardVerdict:
    gpu: Gpu
    verdict: Level
    mode: Mode | None
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class Verdict:
    """The verdict on the best card; `reasons` are those of the host and of that card, the decisive one first."""

    verdict: Level
    mode: Mode | None
    reasons: tuple[Reason, ...]
    cards: tuple[CardVerdict, ...] = ()
