"""How GPUs get into a container: their devices are in its OCI specification, or a hook adds them later. Pure.

runc also names the devices in the specification to systemd. Neither runc nor systemd knows of the devices that a hook
adds to the container's cgroup: https://github.com/NVIDIA/nvidia-docker/issues/1671
"""

from __future__ import annotations

import re

from ngcdl.doctor.packages import TOOLKIT_CONFIG
from ngcdl.doctor.sight import Engine, Sight, Trouble
from ngcdl.engines.values import GpuWay

# From this version of the toolkit on, the runtime's mode auto is jit-cdi; before, it was legacy:
# https://github.com/NVIDIA/nvidia-container-toolkit/blob/v1.18.0/CHANGELOG.md
IN_SPEC_SINCE = (1, 18)
# From this version of Docker on, --gpus tries CDI before the hook, if this program is on the daemon's PATH:
# https://github.com/moby/moby/pull/50228
_GPUS_BY_CDI_SINCE, _CDI_HOOK = (29, 2), "nvidia-cdi-hook"


def by_cdi(engine: Engine, sight: Sight) -> bool:
    """Return whether the engine itself finds the GPUs in CDI's descriptions, without the toolkit's runtime or hook."""
    if isinstance(engine.way, GpuWay) and engine.way.name == "device-request":
        is_new = at_least(engine.facts.version, _GPUS_BY_CDI_SINCE) is True
        return is_new and is_described(engine) and _CDI_HOOK in sight.programs.names
    return isinstance(engine.way, GpuWay) and engine.way.name == "cdi"


def is_described(engine: Engine) -> bool:
    return any(name.startswith("nvidia.com/gpu=") for name in engine.facts.cdi_devices)


def in_spec(engine: Engine, sight: Sight) -> bool | Trouble:
    """Return whether a container's specification lists its GPUs' devices. A Trouble: unknown.

    False means that the toolkit's hook adds the devices, which NVIDIA calls legacy mode.
    """
    if by_cdi(engine, sight):
        return True
    if engine.facts.is_snap:
        return Trouble("the settings of the snap's own toolkit are not known")
    if isinstance(engine.way, GpuWay) and engine.way.name == "device-request":
        return Trouble("docker --gpus does not work on a Jetson") if sight.kernel.is_tegra else False
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
    """Return whether a version is at least `least`, by its first numbers: it may be longer, as 1.1.5+ds1.

    None if the version is unknown or has fewer numbers than `least`.
    """
    found = re.match(r"v?" + r"\.".join([r"(\d+)"] * len(least)), version or "", re.ASCII)
    return None if found is None else tuple(map(int, found.groups())) >= least
