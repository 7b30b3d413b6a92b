"""What /proc, /sys, /dev and /etc show: the module, the cards on the bus, the device nodes, the processor."""

from __future__ import annotations

import contextlib
import os
import re
import stat

from ngcdl.doctor.hands import Hands
from ngcdl.doctor.sight import Kernel, Node
from ngcdl.hostfacts import CONTAINER_MARKS, cpu_flags
from ngcdl.telemetry import bus, driver

# Two forms: "NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat ..." and "... Open Kernel Module for x86_64  560.35.03".
_MODULE = re.compile(r"^NVRM version:.*?\s(\d{2,}\.\d+(?:\.\d+)?)\s", re.MULTILINE)
_NODE = re.compile(r"nvidia(\d+|ctl|-uvm|-modeset|-uvm-tools)")


def look(hands: Hands, machine: str) -> Kernel:
    version = hands.read("/proc/driver/nvidia/version")
    module = _MODULE.search(version or "")
    pci = bus.cards(hands.at)
    selinux = hands.read("/sys/fs/selinux/enforce")
    return Kernel(
        pci=pci,
        driven=frozenset(address for address in pci or () if bus.driver(hands.at(bus.DEVICES) / address) == "nvidia"),
        module=module[1] if module else None,
        is_loaded=version is not None,
        is_open=None if module is None else " Open Kernel Module " in module[0],
        has_nouveau=hands.at("/sys/module/nouveau").exists(),
        has_dxg=hands.at(driver.DXG).exists(),
        has_windows_driver=hands.at(driver.WSL_LIBRARY).exists(),
        nodes=_nodes(hands),
        distribution=_distribution(hands.read("/etc/os-release") or ""),
        machine=machine,
        cpu_flags=cpu_flags(hands.read("/proc/cpuinfo") or ""),
        enforces_selinux=None if selinux is None else selinux.strip() == "1",
        in_container=any(hands.at(mark).exists() for mark in CONTAINER_MARKS),
        is_tegra=driver.is_jetson(hands.at),
        in_user_namespace=_in_user_namespace(hands.read("/proc/self/uid_map") or ""),
    )


def _in_user_namespace(uid_map: str) -> bool:
    """Return whether the user ids here are others outside, as in an unprivileged container of LXC. Only the host's own
    namespace has all of them: https://man7.org/linux/man-pages/man7/user_namespaces.7.html"""
    return uid_map.split() not in ([], ["0", "0", "4294967295"])


def _nodes(hands: Hands) -> tuple[Node, ...]:
    found = []
    with contextlib.suppress(OSError):
        for path in sorted(hands.at("/dev").iterdir()):
            if not _NODE.fullmatch(path.name):
                continue
            with contextlib.suppress(OSError):
                state = path.stat()
                if stat.S_ISCHR(state.st_mode):
                    major, minor = os.major(state.st_rdev), os.minor(state.st_rdev)
                    link = hands.at(f"/dev/char/{major}:{minor}")
                    # access() checks the device cgroup too, and unlike open() does not wake the card:
                    # https://docs.kernel.org/admin-guide/cgroup-v2.html#device-controller
                    can_open = os.access(path, os.R_OK | os.W_OK)
                    found.append(Node(f"/dev/{path.name}", link.exists(), can_open))
    return tuple(found)


def _distribution(text: str) -> tuple[str, ...]:
    """Read ID and ID_LIKE: https://www.freedesktop.org/software/systemd/man/latest/os-release.html"""
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return tuple(f"{values.get('ID', '')} {values.get('ID_LIKE', '')}".replace('"', "").split())
