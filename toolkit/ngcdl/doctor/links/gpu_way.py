"""How does a GPU get into a container: by the runtime nvidia, CDI, or docker's --gpus?"""

from __future__ import annotations

from ngcdl.doctor.chain import Finding, Link, Step, broken, not_seen, ok, warning
from ngcdl.doctor.packages import CDI_GUIDE, TOOLKIT_GUIDE, describe_gpus, service, toolkit
from ngcdl.doctor.sight import Engine, Sight, Trouble
from ngcdl.engines.docker import podman

NAME = "gpu-way"
# Rootless Docker needs it, by the toolkit's guide, but it is one setting for the whole host:
# https://github.com/NVIDIA/nvidia-container-toolkit/issues/381
_NO_CGROUPS = (
    "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place"
    "    # with this, the GPUs of Docker as root are lost"
)
_TOOLKIT = frozenset({"nvidia-ctk", "nvidia-container-runtime", "nvidia-container-runtime-hook"})


def judge(sight: Sight) -> Finding | None:
    engine = sight.engine
    if isinstance(engine, Trouble):
        return not_seen(NAME, engine, "engine") if sight.has_gpu else None
    if isinstance(engine.way, Trouble):
        return not_seen(NAME, engine.way) if sight.has_gpu else None
    if engine.way.name == "none":
        return _none(engine, sight) if sight.has_gpu and engine.is_here else None
    if not sight.has_gpu and engine.is_here:
        return None
    if engine.missing_runtime is not None:
        found = f"the runtime nvidia is registered, but its program {engine.missing_runtime} is not there"
        return broken(
            NAME,
            found,
            "The toolkit was removed, or the engine sees a different folder",
            *_install(engine, sight),
            source=TOOLKIT_GUIDE,
        )
    if engine.way.name == "device-request":
        hint = "Only a run shows whether --gpus works; registering the runtime nvidia makes it certain"
        return ok(NAME, engine.way.why, hint, *_register(engine, sight), source=TOOLKIT_GUIDE)
    if engine.facts.default_runtime == "nvidia":
        return ok(NAME, f"{engine.way.why}, and it is the default for every container")
    return ok(NAME, engine.way.why)


def _none(engine: Engine, sight: Sight) -> Finding:
    """Say which installation step was skipped, as Docker can't give containers a GPU."""
    if podman.is_named(engine.facts.version):
        if podman.ignores_cdi(engine.facts.version):
            return broken(NAME, engine.way.why, "Update Podman, or install Docker Engine beside it", source=CDI_GUIDE)
        install = () if "nvidia-ctk" in sight.programs.names else toolkit(sight.programs)
        steps = (*install, Step(describe_gpus("/etc/cdi/nvidia.yaml")))
        return broken(NAME, engine.way.why, "Podman needs a description of the GPUs", *steps, source=CDI_GUIDE)
    empty = [str(folder) for folder in engine.facts.cdi_dirs]
    if engine.registered is not None:
        found = f"{engine.registered} names the runtime nvidia, but the engine does not have it"
        return broken(
            NAME, found, "The engine has not been restarted since", _restart_of(engine, sight), source=TOOLKIT_GUIDE
        )
    found = "Docker has no way to hand a GPU to a container"
    if sight.programs.names & _TOOLKIT:
        cause = "NVIDIA's container toolkit is installed, but not registered with this engine"
        if empty:
            cause += f"; CDI is on, but {' and '.join(empty)} describe{'s' if len(empty) == 1 else ''} no GPU"
        return broken(NAME, found, cause, *_register(engine, sight), source=TOOLKIT_GUIDE)
    if empty:
        cause = f"The runtime nvidia is not registered, and no GPU is described in {' or '.join(empty)} for CDI"
        return broken(NAME, found, cause, *_install(engine, sight), source=TOOLKIT_GUIDE)
    return broken(
        NAME, found, "NVIDIA's container toolkit is not installed", *_install(engine, sight), source=TOOLKIT_GUIDE
    )


def _install(engine: Engine, sight: Sight) -> tuple[Step, ...]:
    return (*toolkit(sight.programs), *_register(engine, sight))


def _register(engine: Engine, sight: Sight) -> tuple[Step, ...]:
    if engine.facts.is_rootless:
        file = "$HOME/.config/docker/daemon.json"
        return (
            Step(f"nvidia-ctk runtime configure --runtime=docker --config={file}"),
            Step(_NO_CGROUPS, by_hand=True),
            _restart_of(engine, sight),
        )
    return (Step("sudo nvidia-ctk runtime configure --runtime=docker"), _restart_of(engine, sight))


def _restart_of(engine: Engine, sight: Sight) -> Step:
    return service(sight.programs, "restart", is_rootless=engine.facts.is_rootless)


def daemon_reload(sight: Sight) -> Finding | None:
    """Judge whether running containers keep their devices after `systemctl daemon-reload`: they lose them if runc's
    systemd driver can't find the devices by their numbers in /dev/char."""
    name, engine = "daemon-reload", sight.engine
    if isinstance(engine, Trouble) or isinstance(engine.way, Trouble) or not (sight.has_gpu and engine.is_here):
        return None
    if engine.way.name == "none" or engine.facts.cgroup_driver is None:
        return None
    if engine.facts.cgroup_driver != "systemd":
        return ok(
            name, f"cgroup driver {engine.facts.cgroup_driver}: containers keep their GPU at `systemctl daemon-reload`"
        )
    if engine.way.name == "cdi":
        return ok(name, "CDI names the devices to the engine: containers keep their GPU at `systemctl daemon-reload`")
    unlinked = [node for node in sight.kernel.nodes if not node.is_linked]
    if not unlinked:
        return ok(name, "cgroup driver systemd, and /dev/char has the cards") if sight.kernel.nodes else None
    paths = ", ".join(node.path for node in unlinked[:3]) + (", ..." if len(unlinked) > 3 else "")
    cause = (
        "After `systemctl daemon-reload` (any package update may run it) running containers lose their GPU: 'Failed to "
        "initialize NVML: Unknown Error'. Create the links, or add to daemon.json "
        '"exec-opts": ["native.cgroupdriver=cgroupfs"]'
    )
    step = Step("sudo nvidia-ctk system create-dev-char-symlinks --create-all")
    return warning(name, f"cgroup driver systemd, but /dev/char lacks {paths}", cause, step, source=_RELOAD)


_RELOAD = "https://github.com/NVIDIA/nvidia-container-toolkit/issues/48"


LINKS = (Link(110, NAME, judge), Link(130, "daemon-reload", daemon_reload))
