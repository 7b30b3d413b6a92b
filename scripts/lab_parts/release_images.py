"""Images with the configuration of real NGC releases, which `check`, `images` and `resolve` read before a pull, and
almost no content.

Environment and labels come from NVIDIA's release notes and from users' `docker history` and `env` output; whatever is
made up is marked. The sizes in the manifests are those of these small images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lab_parts.image_writer import Layer, manifest, manifest_index
from lab_parts.where import Lab

BOTH = ("amd64", "arm64")
SINCE_25 = "7.5 8.0 8.6 9.0 10.0 12.0+PTX"
SINCE_25_ARM = "8.0 8.6 9.0 10.0 12.0+PTX"
PATH_ENV = "PATH=/usr/local/nvidia/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# https://hub.docker.com/r/nvidia/cuda, tag 13.0.2-base-ubuntu24.04: no geforce and no titan among the brands
_BRANCHES = (535, 550, 565, 570, 575)
_BRANDS = ["unknown", "grid", "tesla", "nvidia", "quadro", "quadrortx"]
_BRANDS += ["nvidiartx", "vapps", "vpc", "vcs", "vws", "cloudgaming"]
REQUIRE_CUDA = " ".join(["cuda>=13.0", *(f"brand={b},driver>={n},driver<{n + 1}" for n in _BRANCHES for b in _BRANDS)])


@dataclass(frozen=True)
class Release:
    """One tag. `kernels` is TORCH_CUDA_ARCH_LIST, by architecture; TensorFlow's images have none."""

    repository: str
    tag: str
    cuda: str
    driver: str | None
    version: str | None = None
    architectures: tuple[str, ...] = ("amd64",)
    kernels: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.repository}:{self.tag}"

    def config(self, architecture: str) -> dict[str, object]:
        if self.repository == "cuda":
            return self._cuda_config(architecture)
        framework, release = self.repository, self.tag.split("-")[0]
        build = "".join(digit for digit in self.tag if digit.isdigit())  # made up; makes each tag a distinct image
        variables = [
            PATH_ENV,
            f"CUDA_VERSION={self.cuda}",
            f"CUDA_DRIVER_VERSION={self.driver}",
            "NVIDIA_REQUIRE_CUDA=cuda>=9.0",
            "NVIDIA_VISIBLE_DEVICES=all",
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility,video",
            f"NVIDIA_{framework.upper()}_VERSION={release}",
            f"{framework.upper()}_VERSION={self.version}",
            f"NVIDIA_BUILD_ID={build}",
        ]
        if self.kernels:
            at = BOTH.index(architecture)
            variables.append(f"TORCH_CUDA_ARCH_LIST={self.kernels[min(at, len(self.kernels) - 1)]}")
        if release >= "20.06":
            variables += ["_CUDA_COMPAT_PATH=/usr/local/cuda/compat", "ENV=/etc/shinit_v2"]
        labels = {
            "com.nvidia.build.id": build,
            "com.nvidia.cuda.version": "9.0",
            f"com.nvidia.{framework}.version": release if release < "20.06" else str(self.version),
            "com.nvidia.volumes.needed": "nvidia_driver",
        }
        return {"Env": variables, "Cmd": ["/bin/bash"], "WorkingDir": "/workspace", "Labels": labels}

    def _cuda_config(self, architecture: str) -> dict[str, object]:
        variables = [
            PATH_ENV,
            f"NVARCH={'x86_64' if architecture == 'amd64' else 'sbsa'}",
            f"NVIDIA_REQUIRE_CUDA={REQUIRE_CUDA}",
            "NV_CUDA_CUDART_VERSION=13.0.96-1",
            f"CUDA_VERSION={self.cuda}",
            "NVIDIA_VISIBLE_DEVICES=all",
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        ]
        return {"Env": variables, "Labels": {"maintainer": "NVIDIA CORPORATION <cudatools@nvidia.com>"}}


# From NVIDIA's release notes: https://docs.nvidia.com/deeplearning/frameworks/support-matrix/index.html
# The versions of 17.12 and of PyTorch 25.07 and 26.08 are made up: nobody has read them.
RELEASES = (
    Release("tensorflow", "17.12", "9.0.176", "384.81", "1.4.0"),
    Release("tensorflow", "18.08-py2", "9.0.176", "384.81", "1.9.0"),
    Release("tensorflow", "18.08-py3", "9.0.176", "384.81", "1.9.0"),
    Release("tensorflow", "19.10-py3", "10.1.243", "418.87.00", "1.14.0"),
    Release("tensorflow", "22.12-tf2-py3", "11.8.0.065", "520.61.05", "2.10.1", BOTH),
    Release("tensorflow", "24.05-tf2-py3", "12.4.1.003", "550.54.15", "2.15.0", BOTH),
    Release("tensorflow", "25.02-tf2-py3", "12.8.0.038", "570.86.10", "2.17.0", BOTH),
    Release(
        "pytorch", "22.12-py3", "11.8.0.065", "520.61.05", "1.14.0a0+410ce96",
        kernels=("5.2 6.0 6.1 7.0 7.2 7.5 8.0 8.6 8.7 9.0+PTX",),
    ),
    Release(
        "pytorch", "24.12-py3", "12.6.3.004", "560.35.05", "2.6.0a0+df5bbc09d1", BOTH,
        ("6.0 6.1 7.0 7.5 8.0 8.6 9.0+PTX", "8.0 8.6 9.0+PTX"),
    ),
    Release(
        "pytorch", "25.03-py3", "12.8.1.012", "570.124.06", "2.7.0a0+7c8ec84dab", BOTH, (SINCE_25, SINCE_25_ARM)
    ),
    Release("pytorch", "25.07-py3", "12.9.1.010", "575.57.08", "2.8.0a0", BOTH, (SINCE_25, SINCE_25_ARM)),
    Release(
        "pytorch", "26.08-py3", "13.4.1.012", "615.61", "2.14.0a0", BOTH, (SINCE_25, "8.0 8.6 9.0 10.0 11.0 12.0+PTX")
    ),
    # Entirely made up: a release that no table has yet.
    Release("pytorch", "26.10-py3", "13.5.0.001", "620.10", "2.15.0a0", BOTH, (SINCE_25, SINCE_25_ARM)),
    Release("cuda", "13.0.2-base-ubuntu24.04", "13.0.2", None, architectures=BOTH),
)  # fmt: skip


def builder(release: Release, tiny: Callable[[Lab, str], Layer]) -> Callable[[Lab], str]:
    """Return a function that makes one tag and returns its digest; `tiny` makes its only layer."""

    def build(lab: Lab) -> str:
        repository = f"nvidia/{release.repository}"
        layers = [tiny(lab, repository)]
        if len(release.architectures) == 1:
            only = release.architectures[0]
            return manifest(lab, repository, release.tag, layers, release.config(only), only)
        made = {one: manifest(lab, repository, None, layers, release.config(one), one) for one in release.architectures}
        return manifest_index(lab, repository, release.tag, made)

    return build
