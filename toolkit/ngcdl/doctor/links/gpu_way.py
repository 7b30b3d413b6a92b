"""How does a GPU get into a container: by the runtime nvidia, CDI, or docker's --gpus?"""

from __future__ import annotations

from ngcdl.doctor import injected, packages
from ngcdl.doctor.chain import Finding, Link, Step, broken, not_seen, ok
from ngcdl.doctor.packages import CDI_GUIDE, TOOLKIT_CONFIG, describe_gpus, service, toolkit, upgrade
from ngcdl.doctor.sight import Engine, Sight, Trouble
from ngcdl.engines.docker import podman
from ngcdl.preflight.verdict import TOOLKIT

NAME = "gpu-way"
# Rootless Docker needs this setting, by the toolkit's guide, but it applies to the whole host:
# https://github.com/NVIDIA/nvidia-container-toolkit/issues/381
_SET_NO_CGROUPS = "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place"
_NO_CGROUPS = f"{_SET_NO_CGROUPS}    # with this, the GPUs of Docker as root are lost"
MODE_AUTO = "sudo nvidia-ctk config --set nvidia-container-runtime.mode=auto --in-place"
_UNPRIVILEGED = "https://github.com/NVIDIA/nvidia-container-toolkit/blob/v1.18.0/internal/config/image/cuda_image.go"
_FORBIDDEN_HOOK = "https://github.com/NVIDIA/nvidia-container-toolkit/issues/139"
# assertModeIsLegacy(): a Jetson's mode is csv
_REFUSED_HOOK = (
    "https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/cmd/nvidia-container-runtime-hook/hook_config.go"
)
_NO_CGROUPS_URL = "https://github.com/NVIDIA/nvidia-container-toolkit/issues/381"
_SNAP = "https://github.com/canonical/docker-snap#nvidia-support"
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
            source=TOOLKIT,
        )
    if (misled := _misled(engine, sight)) is not None:
        return misled
    if engine.way.name == "device-request":
        if engine.is_here and sight.kernel.is_tegra and not injected.by_cdi(engine, sight):
            cause = "On a Jetson the toolkit refuses it, and wants its runtime nvidia, which is not registered"
            return broken(NAME, engine.way.why, cause, *register(engine, sight), source=_REFUSED_HOOK)
        hint = "Only a run shows whether --gpus works; registering the runtime nvidia makes it certain"
        return ok(NAME, engine.way.why, hint, *register(engine, sight), source=TOOLKIT)
    if engine.facts.default_runtime == "nvidia":
        return ok(NAME, f"{engine.way.why}, and it is the default for every container")
    return ok(NAME, engine.way.why)


def _misled(engine: Engine, sight: Sight) -> Finding | None:
    """Judge the toolkit's settings if its runtime or its hook adds the GPUs; None if nothing is wrong."""
    config = sight.programs.toolkit_config
    if config is None or not engine.is_here or engine.facts.is_snap or injected.by_cdi(engine, sight):
        return None
    if not config.takes_variable:
        found = f"{TOOLKIT_CONFIG}: containers that are not privileged get no GPU by NVIDIA_VISIBLE_DEVICES"
        cause = "ngcdl's containers are not privileged: they start, but without GPUs. CDI passes them all the same"
        return broken(NAME, found, cause, *_by_cdi(engine, sight), source=_UNPRIVILEGED)
    may_not_allow = engine.facts.is_rootless or sight.kernel.in_user_namespace
    if config.no_cgroups is may_not_allow or injected.in_spec(engine, sight) is not False:
        return None
    if may_not_allow:
        return _by_forbidden_hook(engine, sight)
    found = f"{TOOLKIT_CONFIG}: no-cgroups is on"
    cause = (
        "Containers get the GPUs' devices, but may not open them: 'Failed to initialize NVML: Unknown Error'. Only "
        "rootless Docker, and Docker in an unprivileged container of LXC, need it, and it is one for the whole host"
    )
    step = Step("sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=false --in-place", by_hand=True)
    return broken(NAME, found, cause, step, source=_NO_CGROUPS_URL)


def _by_forbidden_hook(engine: Engine, sight: Sight) -> Finding:
    """Judge an engine whose containers get GPUs by the toolkit's hook, which may not allow them the devices."""
    whose = "rootless Docker" if engine.facts.is_rootless else "Docker in a user namespace, as in unprivileged LXC,"
    cause = (
        "Runs with GPUs end with 'failed to add device rules: ... operation not permitted'. The runtime nvidia of the "
        "toolkit from 1.18 on does without that, unless it is set to legacy mode; so does the setting no-cgroups"
    )
    steps = out_of_legacy(engine, sight)
    own = Step(_NO_CGROUPS if engine.facts.is_rootless else _SET_NO_CGROUPS, by_hand=True)
    steps += () if own in steps else (own,)
    found = f"the toolkit works in legacy mode, in which {whose} may not pass a GPU on"
    return broken(NAME, found, cause, *steps, source=_FORBIDDEN_HOOK)


def out_of_legacy(engine: Engine, sight: Sight) -> tuple[Step, ...]:
    """Return the steps after which the toolkit lists the GPUs' devices in a container's specification, and its hook no
    longer adds them."""
    config = sight.programs.toolkit_config
    is_new = injected.at_least(sight.programs.toolkit, injected.IN_SPEC_SINCE)
    steps = () if is_new else upgrade(sight.programs, "nvidia-container-toolkit")
    if config is not None and config.mode == "legacy":
        steps += (Step(MODE_AUTO),)
    if not isinstance(engine.way, Trouble) and engine.way.name == "device-request":
        steps += register(engine, sight)
    return steps


def _by_cdi(engine: Engine, sight: Sight) -> tuple[Step, ...]:
    """Return the steps that let runs use CDI."""
    steps = [] if engine.facts.cdi_dirs else [_configure(engine, " --cdi.enabled"), _restart_of(engine, sight)]
    steps += [] if injected.is_described(engine) else [Step(describe_gpus("/etc/cdi/nvidia.yaml"))]
    return (*steps, Step("export NGCDL_GPU_WAY=cdi", by_hand=True))


def _none(engine: Engine, sight: Sight) -> Finding:
    """Judge an engine that can't give containers a GPU: which step of the installation is missing?"""
    if engine.facts.is_snap:
        return _none_in_snap(sight)
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
            NAME, found, "The engine has not been restarted since", _restart_of(engine, sight), source=TOOLKIT
        )
    found = "Docker has no way to hand a GPU to a container"
    if sight.programs.names & _TOOLKIT:
        cause = "NVIDIA's container toolkit is installed, but not registered with this engine"
        if empty:
            cause += f"; CDI is on, but {' and '.join(empty)} describe{'s' if len(empty) == 1 else ''} no GPU"
        return broken(NAME, found, cause, *register(engine, sight), source=TOOLKIT)
    if empty:
        cause = f"The runtime nvidia is not registered, and no GPU is described in {' or '.join(empty)} for CDI"
        return broken(NAME, found, cause, *_install(engine, sight), source=TOOLKIT)
    return broken(NAME, found, "NVIDIA's container toolkit is not installed", *_install(engine, sight), source=TOOLKIT)


def _none_in_snap(sight: Sight) -> Finding:
    cause = (
        "The host's toolkit does not reach Docker from snap. The snap's newer releases bring NVIDIA's own, and set it "
        "up if they find a card and its driver. To replace the snap is the last resort: its images, containers and "
        "volumes are removed with it"
    )
    steps = [Step("sudo snap refresh docker", by_hand=True)]
    if instead := packages.engine(sight.programs, sight.kernel.distribution):  # remove it only if it can be replaced
        steps += [Step("sudo snap remove docker", by_hand=True), *(Step(one.command, by_hand=True) for one in instead)]
    return broken(NAME, "Docker from snap has no way to hand a GPU to a container", cause, *steps, source=_SNAP)


def _install(engine: Engine, sight: Sight) -> tuple[Step, ...]:
    return (*toolkit(sight.programs), *register(engine, sight))


def register(engine: Engine, sight: Sight) -> tuple[Step, ...]:
    """Return the steps that register the runtime nvidia with the engine."""
    own = (Step(_NO_CGROUPS, by_hand=True),) if engine.facts.is_rootless else ()
    return (_configure(engine), *own, _restart_of(engine, sight))


def _configure(engine: Engine, options: str = "") -> Step:
    if engine.facts.is_rootless:
        file = "$HOME/.config/docker/daemon.json"
        return Step(f"nvidia-ctk runtime configure --runtime=docker --config={file}{options}")
    return Step(f"sudo nvidia-ctk runtime configure --runtime=docker{options}")


def _restart_of(engine: Engine, sight: Sight) -> Step:
    return service(sight.programs, "restart", is_rootless=engine.facts.is_rootless)


LINKS = (Link(110, NAME, judge),)
