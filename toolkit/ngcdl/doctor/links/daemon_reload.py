"""Do running containers keep their GPUs at `systemctl daemon-reload`?

With runc's systemd driver, systemd then allows a container only the devices that runc has named to it. runc names the
devices in the container's specification, before 1.1.7 only those that /dev/char links to, and never what a hook adds:
https://github.com/NVIDIA/nvidia-docker/issues/1671 https://github.com/opencontainers/runc/issues/3708
"""

from __future__ import annotations

from ngcdl.doctor import injected
from ngcdl.doctor.chain import Finding, Link, Step, ok, unchecked, warning
from ngcdl.doctor.links.gpu_way import out_of_legacy
from ngcdl.doctor.packages import describe_gpus
from ngcdl.doctor.sight import Engine, Sight, Trouble

NAME = "daemon-reload"
_SOURCE = "https://github.com/NVIDIA/nvidia-docker/issues/1671"
_LOST = (
    "After `systemctl daemon-reload` (any package update may run it) running containers lose their GPUs: 'Failed to "
    "initialize NVML: Unknown Error'"
)
_CGROUPFS = '{"exec-opts": ["native.cgroupdriver=cgroupfs"]} in daemon.json'
# https://github.com/opencontainers/runc/releases/tag/v1.1.7
_RUNC = (1, 1, 7)


def judge(sight: Sight) -> Finding | None:
    engine = sight.engine
    if isinstance(engine, Trouble) or isinstance(engine.way, Trouble) or not (sight.has_gpu and engine.is_here):
        return None
    driver = engine.facts.cgroup_driver
    if engine.way.name == "none" or driver is None:
        return None
    if driver != "systemd":
        return ok(NAME, f"cgroup driver {driver}: containers keep their GPUs at `systemctl daemon-reload`")
    if engine.facts.is_rootless:  # https://github.com/opencontainers/cgroups/blob/main/fs2/fs2.go
        return ok(NAME, "a rootless engine can withhold no device from containers, so they lose none")
    is_told = injected.in_spec(engine, sight)
    if isinstance(is_told, Trouble):
        return unchecked(NAME, f"whether running containers would lose their GPUs: {is_told.why}")
    return _by_runc(engine, sight) if is_told else _by_hook(engine, sight)


def _by_runc(engine: Engine, sight: Sight) -> Finding | None:
    runc = engine.facts.runc_version
    is_new = injected.at_least(runc, _RUNC)
    if is_new is None:
        return unchecked(NAME, "whether running containers would lose their GPUs: runc's version is not known")
    if is_new:
        return ok(NAME, f"runc {runc}: containers keep their GPUs at `systemctl daemon-reload`")
    unlinked = [node for node in sight.kernel.nodes if not node.is_linked]
    if not unlinked:
        return ok(NAME, f"runc {runc}, and /dev/char has the cards") if sight.kernel.nodes else None
    paths = ", ".join(node.path for node in unlinked[:3]) + (", ..." if len(unlinked) > 3 else "")
    cause = f"{_LOST}. runc from 1.1.7 on avoids it, links in /dev/char do, or {_CGROUPFS}"
    step = Step("sudo nvidia-ctk system create-dev-char-symlinks --create-all")
    return warning(NAME, f"runc {runc}, and /dev/char lacks {paths}", cause, step, source=_SOURCE)


def _by_hook(engine: Engine, sight: Sight) -> Finding:
    cause = (
        f"{_LOST}. The runtime nvidia of the toolkit from 1.18 on avoids it, unless it is set to that mode. So do CDI "
        f"({describe_gpus('/etc/cdi/nvidia.yaml')}, then NGCDL_GPU_WAY=cdi) and {_CGROUPFS}"
    )
    steps = out_of_legacy(engine, sight)
    return warning(NAME, "cgroup driver systemd, and the toolkit works in legacy mode", cause, *steps, source=_SOURCE)


LINKS = (Link(130, NAME, judge),)
