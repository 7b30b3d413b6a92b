"""Hosts with one fault each, and the one link that has to report the fault."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from doctor.sights import (
    A100,
    DRIVER,
    ENGINE,
    HEALTHY,
    KERNEL,
    PROGRAMS,
    engine,
)
from ngcdl.doctor.sight import CdiSpec, Dataset, Keys, Programs, Registry, Sight, Space, ToolkitConfig, Trouble
from ngcdl.engines.values import GpuWay
from ngcdl.errors import (
    BadKey,
    BadOption,
    ConfigBroken,
    DriverHangs,
    EngineAbsent,
    EngineForbidden,
    EngineHangs,
    KeyRejected,
    LibraryMissing,
    NvmlUnavailable,
    RegistryUnreachable,
)
from ngcdl.errors.engine import CONFIG
from ngcdl.registry.credentials import Exposure
from ngcdl.telemetry import driver
from ngcdl.telemetry.card import Card, Probe


def silent(code: int) -> Probe:
    """A driver whose library fails with this code at start."""
    return Probe(error=driver.unavailable(code))


def configured(**settings: Any) -> Programs:
    """The healthy host's programs with some settings of the toolkit changed."""
    return replace(PROGRAMS, toolkit_config=ToolkitConfig(**settings))


def exposed(who: str, *, is_ours: bool) -> Sight:
    return replace(HEALTHY, keys=Keys("config.json", True, None, Exposure(Path("config.json"), who, is_ours)))


NO_LIBRARY = Probe(error=LibraryMissing("There is no NVIDIA driver on this host.", ""), absent=True)
UNLOADED = replace(KERNEL, module=None, is_loaded=False)
LOST = replace(A100, error="GPU is lost: it fell off the bus; reboot the host (15)")
STALE = CdiSpec(Path("/etc/cdi/nvidia.yaml"), frozenset({"525.60.13"}), devices=frozenset({"all", "0"}))
OTHER = Path("/etc/cdi/gpus.json")
FRESH = replace(STALE, drivers=frozenset({"535.104.05"}))
GTX = Card(0, "GPU-1050", "NVIDIA GeForce GTX 1050 Ti", "6.1", 4 << 30, 5)
BY_CDI = replace(ENGINE, way=GpuWay("cdi", "CDI is there"))
SICK: dict[str, Sight] = {
    "no driver": replace(HEALTHY, kernel=UNLOADED, gpus=NO_LIBRARY),
    "nouveau": replace(HEALTHY, kernel=replace(UNLOADED, has_nouveau=True), gpus=NO_LIBRARY),
    "module not loaded": replace(HEALTHY, kernel=UNLOADED, gpus=silent(driver.NOT_LOADED)),
    "mismatch": replace(HEALTHY, gpus=silent(driver.MISMATCH)),
    "library missing": replace(
        HEALTHY, gpus=NO_LIBRARY, programs=replace(PROGRAMS, driver_packages=frozenset({"nvidia-dkms-535"}))
    ),
    "half an update": replace(HEALTHY, kernel=replace(KERNEL, module="550.54.14")),
    "driver hangs": replace(HEALTHY, gpus=Trouble("no answer within 21 s", is_late=True)),
    "driver gives no answer": replace(HEALTHY, gpus=Probe(error=DriverHangs("No answer within 20 s.", "Look:"))),
    "no binding": replace(HEALTHY, gpus=Probe(error=NvmlUnavailable("It is missing.", "    pip install nvidia-ml-py"))),
    "no card shown": replace(HEALTHY, gpus=Probe((), DRIVER)),
    "a lost card": replace(HEALTHY, gpus=Probe((A100, replace(LOST, index=1)), DRIVER)),
    "an old card": replace(HEALTHY, gpus=Probe((GTX,), DRIVER)),
    "a card that is not driven": replace(HEALTHY, kernel=replace(KERNEL, pci=("0000:01:00.0", "0000:41:00.0"))),
    "engine absent": replace(HEALTHY, engine=Trouble("", EngineAbsent("the default socket", "there is no socket"))),
    "engine forbidden": replace(HEALTHY, engine=Trouble("", EngineForbidden("the default socket"))),
    "engine hangs": replace(HEALTHY, engine=Trouble("", EngineHangs("the default socket", 10))),
    "engine late": replace(HEALTHY, engine=Trouble("no answer within 12 s", is_late=True)),
    "desktop": replace(HEALTHY, engine=engine(is_desktop=True)),
    "snap": replace(HEALTHY, engine=engine(is_snap=True, cgroup_driver="cgroupfs")),
    "context": replace(
        HEALTHY, context="gone", engine=Trouble("", EngineAbsent("x", "no socket", is_default=False, named_by=CONFIG))
    ),
    "not registered": replace(HEALTHY, engine=replace(ENGINE, way=GpuWay("none", ""))),
    "not restarted": replace(
        HEALTHY, engine=replace(ENGINE, way=GpuWay("none", ""), registered=Path("/etc/docker/daemon.json"))
    ),
    "runtime gone": replace(HEALTHY, engine=replace(ENGINE, missing_runtime="/usr/bin/nvidia-container-runtime")),
    "stale spec in use": replace(HEALTHY, engine=replace(BY_CDI, specs=(STALE,))),
    "stale spec aside": replace(HEALTHY, engine=replace(ENGINE, specs=(STALE,))),
    "daemon-reload": replace(HEALTHY, programs=configured(mode="legacy")),
    "unprivileged": replace(HEALTHY, programs=configured(takes_variable=False)),
    "no-cgroups": replace(
        HEALTHY, engine=engine(cgroup_driver="cgroupfs"), programs=configured(mode="legacy", no_cgroups=True)
    ),
    "rootless with a hook": replace(HEALTHY, engine=engine(is_rootless=True), programs=configured(mode="legacy")),
    "uvm": replace(HEALTHY, kernel=replace(KERNEL, nodes=KERNEL.nodes[:2])),
    "fabric": replace(HEALTHY, gpus=Probe((replace(A100, fabric="not started"),), DRIVER)),
    "two descriptions": replace(HEALTHY, engine=replace(BY_CDI, specs=(FRESH, replace(FRESH, path=OTHER)))),
    "toolkit": replace(HEALTHY, programs=replace(configured(mode="cdi"), toolkit="1.17.4")),
    "runc": replace(HEALTHY, engine=engine(runc_version="1.1.11")),
    "docker": replace(HEALTHY, engine=engine(version="28.0.0")),
    "memlock learned": replace(HEALTHY, engine=replace(ENGINE, memlock_forbidden=True)),
    "memlock": replace(HEALTHY, engine=replace(ENGINE, can_raise_limits=False, memlock_bytes=8 << 20)),
    "shm": replace(HEALTHY, shm=Space(64 << 20, 64 << 20)),
    "disk full": replace(HEALTHY, engine=engine(free_bytes=10**9)),
    "disk small": replace(HEALTHY, engine=engine(free_bytes=40 * 10**9)),
    "no key": replace(HEALTHY, registry_host="mirror.example", keys=Keys()),
    "config broken": replace(HEALTHY, keys=Keys(error=ConfigBroken("config.json", "it is not JSON at byte 3"))),
    "config exposed": exposed("Others can read config.json", is_ours=True),
    "config of another": exposed("config.json belongs to another user (uid 7), who can read it.", is_ours=False),
    "registry away": replace(HEALTHY, registry=Registry(error=RegistryUnreachable("nvcr.io", "no answer"))),
    "registry late": replace(HEALTHY, registry=Trouble("no answer within 5 s", is_late=True)),
    "key refused": replace(
        HEALTHY, registry=Registry(takes_key=False, key_error=KeyRejected("nvcr.io"), skew_seconds=0)
    ),
    "clock": replace(HEALTHY, registry=Registry(takes_key=True, skew_seconds=-7200.0)),
    "proxy here": replace(HEALTHY, proxies={"https_proxy": "http://me:secret@proxy:3128"}),
    "proxy there": replace(HEALTHY, engine=engine(https_proxy="http://proxy:3128")),
    "dataset": replace(HEALTHY, dataset=Dataset(False, "data_batch_1.bin has changed", Path("/c"))),
    "dataset that is named": replace(HEALTHY, dataset=Dataset(False, None, Path("/c"), "/nosuch", False)),
    "a variable that holds no key": replace(HEALTHY, keys=Keys(error=BadKey("it is empty", "NGC_API_KEY"))),
    "a certificate file": replace(
        HEALTHY, registry=Trouble("NGCDL_CA_FILE=/x: nothing.", BadOption("NGCDL_CA_FILE=/x: nothing."))
    ),
    "a way that is none": replace(
        HEALTHY, engine=replace(ENGINE, way=Trouble("NGCDL_GPU_WAY=x: no.", BadOption("NGCDL_GPU_WAY=x: no.")))
    ),
    "cpu": replace(HEALTHY, kernel=replace(KERNEL, cpu_flags=frozenset({"sse2"}))),
}
NAMED: dict[str, tuple[str, str]] = {
    "no driver": ("driver", "broken"), "nouveau": ("driver", "broken"), "module not loaded": ("driver", "broken"),
    "mismatch": ("driver", "broken"), "library missing": ("driver", "broken"), "half an update": ("driver", "warning"),
    "driver hangs": ("driver", "broken"), "driver gives no answer": ("driver", "broken"),
    "no binding": ("driver", "broken"), "no card shown": ("driver", "broken"), "a lost card": ("cards", "broken"),
    "an old card": ("cards", "warning"), "a card that is not driven": ("cards", "warning"),
    "engine absent": ("engine", "broken"), "engine forbidden": ("engine", "broken"),
    "engine hangs": ("engine", "broken"), "engine late": ("engine", "broken"), "desktop": ("engine", "warning"),
    "snap": ("engine", "warning"), "context": ("engine", "broken"), "not registered": ("gpu-way", "broken"),
    "not restarted": ("gpu-way", "broken"), "runtime gone": ("gpu-way", "broken"),
    "stale spec in use": ("cdi", "broken"), "stale spec aside": ("cdi", "warning"),
    "unprivileged": ("gpu-way", "broken"), "no-cgroups": ("gpu-way", "broken"),
    "rootless with a hook": ("gpu-way", "broken"), "uvm": ("uvm", "warning"),
    "fabric": ("fabric", "warning"), "two descriptions": ("cdi", "broken"),
    "daemon-reload": ("daemon-reload", "warning"), "toolkit": ("toolkit", "warning"), "runc": ("runc", "warning"),
    "docker": ("docker", "warning"), "memlock learned": ("memlock", "warning"), "memlock": ("memlock", "warning"),
    "shm": ("shm", "warning"), "disk full": ("disk", "broken"), "disk small": ("disk", "warning"),
    "no key": ("credentials", "warning"), "config broken": ("credentials", "broken"),
    "config exposed": ("credentials", "warning"), "config of another": ("credentials", "warning"),
    "registry away": ("registry", "broken"),
    "registry late": ("registry", "broken"), "key refused": ("key", "broken"), "clock": ("clock", "broken"),
    "proxy here": ("proxy", "warning"), "proxy there": ("proxy", "warning"), "dataset": ("dataset", "warning"),
    "dataset that is named": ("dataset", "broken"), "a variable that holds no key": ("credentials", "broken"),
    "a certificate file": ("registry", "broken"), "a way that is none": ("gpu-way", "broken"),
    "cpu": ("cpu", "warning"),
}  # fmt: skip
