"""How GPUs get into containers, as the doctor judges it: a reload of systemd, a Jetson, the toolkit's settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from doctor.sick import SICK, configured
from doctor.sights import (
    HEALTHY,
    KERNEL,
    PROGRAMS,
    commands,
    engine,
    found,
)
from ngcdl.doctor.links.gpu_way import MODE_AUTO
from ngcdl.doctor.sight import Engine, Node, ToolkitConfig
from ngcdl.engines.values import GpuWay

# -- daemon-reload ----------------------------------------------------------------------------------------------

UNLINKED = (Node("/dev/nvidia0", False),)
LEGACY, JIT = {"mode": "legacy"}, {"mode": "jit-cdi"}
DESCRIBED = {"cdi_devices": ("nvidia.com/gpu=all",)}


def test_docker_s_own_way_through_cdi_needs_nvidia_s_hook_on_the_path() -> None:
    one = replace(engine(version="29.2.0", **DESCRIBED), way=GpuWay("device-request", ""))
    programs = replace(PROGRAMS, names=PROGRAMS.names - {"nvidia-cdi-hook"})
    assert found(replace(HEALTHY, engine=one))["daemon-reload"].state == "ok"
    assert found(replace(HEALTHY, engine=one, programs=programs))["daemon-reload"].state == "warning"


@pytest.mark.parametrize(("way", "toolkit", "config", "facts", "state"), [
    # in the specification, with a new runc: safe without links
    ("cdi", "1.17.4", {}, {}, "ok"),
    ("runtime", "1.18.0", {}, {}, "ok"),
    ("runtime", "1.18.0", JIT, {}, "ok"),
    ("runtime", "1.17.4", {"mode": "cdi"}, {}, "ok"),
    ("device-request", "1.17.4", {}, {"version": "29.2.0", **DESCRIBED}, "ok"),
    # with an old runc, the links decide
    ("cdi", "1.18.0", {}, {"runc_version": "1.1.6"}, "warning"),
    ("runtime", "1.18.0", {}, {"runc_version": "1.1.5+ds1"}, "warning"),
    # a hook's devices are lost with any runc, and with links
    ("runtime", "1.17.4", {}, {}, "warning"),
    ("runtime", "1.19.1", LEGACY, {}, "warning"),
    ("runtime", "1.13.5-1~deb12u1", {}, {}, "warning"),
    ("device-request", "1.19.1", {}, {}, "warning"),
    ("device-request", "1.19.1", {}, {"version": "29.1.0", **DESCRIBED}, "warning"),
    # unknown
    ("cdi", "1.18.0", {}, {"runc_version": None}, "unchecked"),
    ("runtime", None, {}, {}, "unchecked"),
    ("runtime", "1.18.0", None, {}, "unchecked"),
    # nothing is withheld, or systemd has no part in it
    ("runtime", "1.17.4", {}, {"cgroup_driver": "cgroupfs"}, "ok"),
    ("runtime", "1.17.4", {}, {"is_rootless": True}, "ok"),
])  # fmt: skip
@pytest.mark.parametrize("nodes", [UNLINKED, KERNEL.nodes])
def test_gpus_survive_a_daemon_reload_where_systemd_knows_of_them(
    way: str, toolkit: str | None, config: dict[str, Any] | None, facts: dict[str, Any], state: str,
    nodes: tuple[Node, ...],
) -> None:  # fmt: skip
    settings = None if config is None else ToolkitConfig(**config)
    programs = replace(PROGRAMS, toolkit=toolkit, toolkit_config=settings)
    one = replace(engine(**facts), way=GpuWay(way, ""))
    finding = found(replace(HEALTHY, engine=one, programs=programs, kernel=replace(KERNEL, nodes=nodes)))[
        "daemon-reload"
    ]
    is_old = (facts.get("runc_version") or "9") < "1.2"
    links = [command for command in commands(finding) if "create-dev-char-symlinks" in command]
    assert finding.state == ("ok" if is_old and nodes is not UNLINKED else state), finding
    assert bool(links) == (is_old and nodes is UNLINKED), "links help only an old runc"


def test_a_jetson_s_runtime_lists_its_devices() -> None:
    sight = replace(HEALTHY, kernel=replace(KERNEL, is_tegra=True), programs=replace(PROGRAMS, toolkit="1.17.4"))
    assert found(sight)["daemon-reload"].state == "ok"


def test_docker_s_own_gpus_option_is_refused_on_a_jetson_and_its_runtime_is_to_be_registered() -> None:
    jetson = replace(HEALTHY, kernel=replace(KERNEL, is_tegra=True))
    by_gpus = replace(engine(), way=GpuWay("device-request", "docker --gpus"))
    finding = found(replace(jetson, engine=by_gpus))["gpu-way"]
    assert finding.state == "broken"
    assert any("runtime configure" in command for command in commands(finding))
    assert found(replace(jetson, engine=by_gpus))["daemon-reload"].state == "unchecked"
    assert found(replace(HEALTHY, engine=by_gpus))["gpu-way"].state == "ok"
    elsewhere = replace(by_gpus, is_here=False)
    assert found(replace(jetson, engine=elsewhere))["gpu-way"].state == "ok", "that engine's machine is another one"
    cdi = replace(engine(version="29.2.0", **DESCRIBED), way=GpuWay("device-request", ""))
    assert found(replace(jetson, engine=cdi))["gpu-way"].state == "ok", "no hook is called"


def test_what_hides_gpus_in_the_toolkits_settings_is_none_of_cdis_business() -> None:
    for what in ("unprivileged", "no-cgroups"):
        sight = SICK[what]
        assert isinstance(sight.engine, Engine)
        assert found(replace(sight, engine=replace(sight.engine, way=GpuWay("cdi", ""))))["gpu-way"].state == "ok"
    rootless = engine(is_rootless=True, cgroup_driver="cgroupfs")
    assert found(replace(SICK["no-cgroups"], engine=rootless))["gpu-way"].state == "ok", "it needs no-cgroups"
    lxc = replace(SICK["no-cgroups"], kernel=replace(KERNEL, in_user_namespace=True))
    assert found(lxc)["gpu-way"].state == "ok", "without it no container gets a GPU there"
    modern = replace(SICK["no-cgroups"], programs=configured(no_cgroups=True))
    assert found(modern)["gpu-way"].state == "ok", "only the hook reads it"


def test_a_setting_of_the_whole_host_is_not_changed_by_fix() -> None:
    assert [step.by_hand for step in found(SICK["no-cgroups"])["gpu-way"].remedy] == [True]


SET = "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place"
LOST_TO_ROOT = f"{SET}    # with this, the GPUs of Docker as root are lost"


@pytest.mark.parametrize(("facts", "namespace", "told", "typed"), [
    ({"is_rootless": True}, False, "rootless Docker", LOST_TO_ROOT), ({}, True, "as in unprivileged LXC", SET),
])  # fmt: skip
def test_where_the_hook_may_not_allow_the_devices_a_new_toolkit_or_no_cgroups_is_needed(
    facts: dict[str, Any], namespace: bool, told: str, typed: str
) -> None:
    sight = replace(HEALTHY, engine=engine(**facts), kernel=replace(KERNEL, in_user_namespace=namespace))
    assert found(sight)["gpu-way"].state == "ok", "this toolkit names the devices in the specification"
    assert found(replace(sight, programs=configured(mode="legacy", no_cgroups=True)))["gpu-way"].state == "ok"
    finding = found(replace(sight, programs=configured(mode="legacy")))["gpu-way"]
    assert (finding.state, told in finding.found) == ("broken", True)
    assert commands(finding) == [MODE_AUTO, typed]
    assert finding.remedy[-1].by_hand
    old = replace(configured(), toolkit="1.17.8")
    upgraded = "sudo apt-get update && sudo apt-get install --only-upgrade nvidia-container-toolkit"
    assert commands(found(replace(sight, programs=old))["gpu-way"]) == [upgraded, typed]
    by_gpus = replace(engine(**facts), way=GpuWay("device-request", ""))
    registered = commands(found(replace(sight, engine=by_gpus))["gpu-way"])
    assert registered.count(typed) == 1
    assert any("runtime configure" in command for command in registered)
