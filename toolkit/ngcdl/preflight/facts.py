"""What is known of an image and of a host before anything is pulled, and what follows from it. Plain values.

None means unknown, and only that. Versions are texts as NVIDIA writes them: a driver 535.104.05, a CUDA version
12.2.2, a compute capability 8.6; catalog.rows makes them comparable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ngcdl.catalog.rows import comparable

Level = Literal["runs", "caution", "no"]
LEVELS: tuple[Level, ...] = ("runs", "caution", "no")  # the best first
# native: the driver is at least the image's own. forward: the image's cuda-compat package stands in for a newer
# driver (data-centre cards). minor: an older driver of the same CUDA major version. ptx: the GPU is newer than the
# image's kernels, which the driver compiles at the first start.
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
    """What is known of one image for one processor architecture.

    `sources` names for each field where it is from ("registry", or a URL); `recalled` the fields that nobody has read
    anywhere, which the output says. `compat_branches` are the driver branches (their first number) from which the
    image's cuda-compat package may be used; None where no list is known; `compat_brands` the NVML brands for which;
    `compat_minimums` the oldest driver of such a branch, where one is documented.
    """

    reference: str
    framework: str | None = None  # tensorflow, pytorch
    release: str | None = None  # 24.05
    framework_version: str | None = None
    python: str | None = None
    cuda: str | None = None  # None: no CUDA inside, if has_cuda is False; else unknown
    has_cuda: bool | None = None
    for_jetson: bool = False
    driver: str | None = None  # what the image was built with: native from here on
    minor_floor: str | None = None  # oldest driver of minor-version compatibility; CUDA <= 10 has none
    architectures: tuple[str, ...] | None = None  # amd64, arm64
    sass: tuple[str, ...] | None = None  # compute capabilities with compiled kernels, ascending
    ptx: str | None = None  # the newest one in PTX, which a newer card can compile
    min_capability: str | None = None  # documented
    compat_branches: tuple[int, ...] | None = None
    compat_brands: tuple[str, ...] = ()
    compat_likely: tuple[int, ...] = ()  # where no list is known: the branches of the last one that is
    compat_minimums: Mapping[int, str] = field(default_factory=dict)
    require: tuple[str, ...] = ()  # the texts of NVIDIA_REQUIRE_*, asserted by the legacy hook only
    digest: str | None = None
    is_schema_1: bool = False
    compressed_bytes: int | None = None  # what travels
    unpacked_bytes: int | None = None  # an estimate, said to be one
    sources: Mapping[str, str] = field(default_factory=dict)
    recalled: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Gpu:
    """One card. `brand` is one of BRANDS, None where the driver does not tell it."""

    capability: str | None
    name: str | None = None
    brand: str | None = None
    index: int | None = None
    uuid: str | None = None
    memory_bytes: int | None = None
    mig: bool | None = None

    @property
    def title(self) -> str:
        """What a sentence calls it."""
        return self.name or "this card"


@dataclass(frozen=True)
class HostFacts:
    """The machine that an image is judged for.

    `elsewhere`: the engine is another machine's, and why its GPUs can't be judged from here. `gpu_trouble`: why the
    driver can't be asked. `free_bytes` is what is left where the engine keeps images.
    """

    architecture: str = "amd64"
    driver: str | None = None
    gpus: tuple[Gpu, ...] = ()
    avx: bool | None = None
    free_bytes: int | None = None
    engine_version: str | None = None
    gpu_way: str | None = None  # runtime, device-request, cdi, none; None: no engine was asked
    gpu_trouble: str | None = None
    elsewhere: str | None = None


@dataclass(frozen=True)
class Reason:
    """One rule that was applied. `found` and `needed` are the two numbers, `source` where the needed one is from.

    Rules: architecture, capability, ptx, cuda10, native, forward, minor, driver, require, no-cuda, no-gpu, mixed,
    elsewhere, unknown, avx, disk, schema1, gpu-way, igpu. `recalled`: the needed number was not read anywhere.
    """

    rule: str
    level: Level
    text: str  # one sentence for people, without a full stop
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
    """Of all cards the best; `reasons` are those of the host and of that card, the decisive one first."""

    verdict: Level
    mode: Mode | None
    reasons: tuple[Reason, ...]
    cards: tuple[CardVerdict, ...] = ()


def known(text: str | None) -> tuple[int, ...] | None:
    """Give the version, or None where the text is none."""
    try:
        return comparable(text) if text else None
    except ValueError:
        return None
