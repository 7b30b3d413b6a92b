"""Judges an image for one card: its kernels, the driver and NVIDIA_REQUIRE_* together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ngcdl.catalog import cuda
from ngcdl.preflight.facts import LEVELS, CardVerdict, Gpu, HostFacts, ImageFacts, Level, Mode, Reason
from ngcdl.preflight.kernels import is_jetson, kernels
from ngcdl.preflight.loading import loading
from ngcdl.preflight.require import unmet

CONSTRAINTS = (
    "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html#constraints"
)
# A cuda-compat package is for "an older NVIDIA Linux GPU driver", but WSL needs the Windows driver's own libcuda.so:
# https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
# https://docs.nvidia.com/cuda/wsl-user-guide/
_NO_COMPAT: dict[str, Any] = {"compat_branches": (), "compat_brands": (), "compat_likely": ()}
_MODES: dict[str, Mode] = {"native": "native", "forward": "forward", "minor": "minor"}


def worst(reasons: Sequence[Reason]) -> Level:
    return max((reason.level for reason in reasons), key=LEVELS.index, default="runs")


def decisive_first(reasons: Sequence[Reason]) -> tuple[Reason, ...]:
    """Sort reasons by level, the worst first; within a level the order stays."""
    return tuple(sorted(reasons, key=lambda reason: -LEVELS.index(reason.level)))


def judge_card(image: ImageFacts, gpu: Gpu, host: HostFacts) -> CardVerdict:
    """Judge `image` for one card of `host`. The mode is None if the image can't run there, or it is unknown how."""
    able = kernels(image, gpu)
    if is_jetson(gpu):
        return CardVerdict(gpu, able.level, None, (able,))  # its driver comes with JetPack, with other version rules
    if host.is_wsl:
        image = replace(image, **_NO_COMPAT)
    carried = loading(image, gpu, host.driver, needs_ptx=able.rule == "ptx")
    # The driver decides how a card runs the image. But if the card refuses, that comes first, because nothing fixes it.
    reasons = [carried, able] if able.level == "runs" else [able, carried]
    if worst(reasons) != "no":
        reasons += _requirement(image, gpu, host)
    level = worst(reasons)
    mode = "ptx" if able.rule == "ptx" else _MODES.get(carried.rule)
    return CardVerdict(gpu, level, None if level == "no" else mode, decisive_first(reasons))


def _requirement(image: ImageFacts, gpu: Gpu, host: HostFacts) -> list[Reason]:
    """Judge NVIDIA_REQUIRE_*, which the legacy hook and enroot's enforce, NVIDIA's runtime from 1.18 on and CDI not.

    https://github.com/NVIDIA/enroot/blob/master/conf/hooks/98-nvidia.sh
    """
    runs = cuda.newest_cuda(host.driver) if host.driver else None
    values = {"cuda": runs, "driver": host.driver, "arch": gpu.capability, "brand": gpu.brand}
    text = unmet(image.require, values)
    if text is None:
        return []
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    found = ", ".join(f"{name} {value}" for name, value in values.items() if value)
    if host.gpu_way == "cdi":
        why = f"NVIDIA_REQUIRE_CUDA ({shown}) is not met, but CDI doesn't check it"
        return [Reason("require", "runs", why, found, text, CONSTRAINTS)]
    why = (
        f"NVIDIA_REQUIRE_CUDA ({shown}) is not met: the legacy hook (docker --gpus before Docker 29.2, toolkit before "
        "1.18, pyxis on Slurm) refuses to start it, unless -e NVIDIA_DISABLE_REQUIRE=1 turns the check off"
    )
    return [Reason("require", "caution", why, found, text, CONSTRAINTS)]
