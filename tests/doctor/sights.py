"""A healthy host, and the same with one thing changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ngcdl.doctor import chain
from ngcdl.doctor.chain import Finding
from ngcdl.doctor.sight import Dataset, Engine, Kernel, Keys, Node, Programs, Registry, Sight, Space
from ngcdl.engines.values import EngineFacts, GpuWay
from ngcdl.errors import NvmlUnavailable
from ngcdl.telemetry.card import Card, Driver, Probe

UPGRADE = "sudo apt-get update && sudo apt-get install --only-upgrade"
A100 = Card(0, "GPU-a100", "NVIDIA A100-SXM4-40GB", "8.0", 40 << 30, 14, mig=False, persistence=True)
DRIVER = Driver("535.104.05", "12.535.104.05", "12.2")
KERNEL = Kernel(
    pci=("0000:41:00.0",),
    module="535.104.05",
    is_loaded=True,
    nodes=(Node("/dev/nvidia0", True), Node("/dev/nvidiactl", True), Node("/dev/nvidia-uvm", True)),
    distribution=("ubuntu", "debian"),
    machine="x86_64",
    cpu_flags=frozenset({"avx", "avx2"}),
)
PROGRAMS = Programs(
    frozenset({"dockerd", "nvidia-ctk", "nvidia-cdi-hook", "nvidia-smi", "systemctl", "apt-get"}), "1.19.1"
)
FACTS = EngineFacts(
    version="29.7.0",
    name="host",
    images_folder="/var/lib/docker",
    free_bytes=500 * 10**9,
    default_runtime="runc",
    cgroup_driver="systemd",
    live_restore=True,
    runc_version="1.4.3",
)
ENGINE = Engine(
    "the default socket", FACTS, GpuWay("runtime", "the runtime nvidia is there"), True, can_raise_limits=True
)
HEALTHY = Sight(
    kernel=KERNEL,
    programs=PROGRAMS,
    gpus=Probe((A100,), DRIVER),
    engine=ENGINE,
    keys=Keys("docker-credential-pass, which /home/me/.docker/config.json names"),
    registry=Registry(takes_key=True, skew_seconds=0.4),
    dataset=Dataset(True, None, Path("/home/me/.cache/ngcdl")),
    shm=Space(32 << 30, 32 << 30),
)
WITHOUT_GPU = replace(
    HEALTHY,
    kernel=replace(KERNEL, pci=(), module=None, is_loaded=False, nodes=()),
    programs=Programs(frozenset({"dockerd", "systemctl", "apt-get"})),
    gpus=Probe(error=NvmlUnavailable("There is no NVIDIA driver on this host.", ""), absent=True),
    engine=replace(ENGINE, way=GpuWay("none", "it has no runtime nvidia")),
)


def engine(**facts: Any) -> Engine:
    """The healthy engine with some facts changed."""
    return replace(ENGINE, facts=replace(FACTS, **facts))


def found(sight: Sight) -> dict[str, Finding]:
    """Every link's finding by name."""
    return {finding.name: finding for finding in chain.examine(sight)}


def not_in_order(sight: Sight) -> dict[str, str]:
    return {name: one.state for name, one in found(sight).items() if one.state != "ok"}


def commands(finding: Finding) -> list[str]:
    return [step.command for step in finding.remedy]
