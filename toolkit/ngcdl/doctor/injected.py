"""How do GPUs get into a container: are their devices in its OCI specification, or does a hook add them later? Pure.

What runc finds in the specification, it also tells systemd. Neither knows what a hook adds to the control group:
https://github.com/NVIDIA/nvidia-docker/issues/1671
"""

from __future__ import annotations

import re

from ngcdl.doctor.packages import TOOLKIT_CONFIG
from ngcdl.doctor.sight import Engine, Sight, Trouble
from ngcdl.engines.values import GpuWay

# Since then the runtime's mode auto is jit-cdi, before it was legacy:
# https://github.com/NVIDIA/nvidia-container-toolkit/blob/v1.18.0/CHANGELOG.md
IN_SPEC_SINCE = (1, 18)
# Since then --gpus tries CDI before the hook: https://github.com/moby/moby/pull/50228
_GPUS_BY_CDI_SINCE = (29, 2)


def by_cdi(engine: Engine) -> bool:
    """Does the engine itself look the GPUs up in CDI's descriptions, without the toolkit's runtime or hook?"""
    if isinstance(engine.way, GpuWay) and engine.way.name == "device-request":
        return is_described(engine) and at_least(engine.facts.version, _GPUS_BY_CDI_SINCE) is True
    return isinstance(engine.way, GpuWay) and engine.way.name == "cdi"


def is_described(engine: Engine) -> bool:
    return any(name.startswith("nvidia.com/gpu=") for name in engine.facts.cdi_devices)


def in_spec(engine: Engine, sight: Sight) -> bool | Trouble:
    """Does a container's specification list its GPUs' devices? False: the toolkit's legacy mode. A Trouble: unknown."""
    if by_cdi(engine):
        return True
    if engine.facts.is_snap:
        return Trouble("the settings of the snap's own toolkit are not known")
    if isinstance(engine.way, GpuWay) and engine.way.name == "device-request":
        return False
    config, toolkit = sight.programs.toolkit_config, sight.programs.toolkit
    if config is None:
        return Trouble(f"{TOOLKIT_CONFIG} can't be read")
    if config.mode != "auto":
        return config.mode != "legacy"
    if sight.kernel.is_tegra:  # auto is csv there
        return True
    is_new = at_least(toolkit, IN_SPEC_SINCE)
    return Trouble("the toolkit does not report its version") if is_new is None else is_new


def at_least(version: str | None, least: tuple[int, ...]) -> bool | None:
    """Compare the numbers at a version's beginning, which may go on (1.1.5+ds1); None if it has fewer."""
    found = re.match(r"v?" + r"\.".join([r"(\d+)"] * len(least)), version or "", re.ASCII)
    return None if found is None else tuple(map(int, found.groups())) >= least
