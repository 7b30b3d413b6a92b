"""What the Docker engine reports about itself, and what its files and its process on this host show."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
from pathlib import Path

from ngcdl.doctor.hands import Hands
from ngcdl.doctor.sight import CdiSpec, Engine, Trouble
from ngcdl.engines.base import GpuWay
from ngcdl.engines.docker import DockerEngine, connect, memlock
from ngcdl.errors import NgcdlError

# capability 24: https://man7.org/linux/man-pages/man7/capabilities.7.html
_SYS_RESOURCE = 1 << 24
_LIBRARY = re.compile(r"\.so\.(\d{3,}\.\d+(?:\.\d+)?)\b")
_DEVICE = re.compile(r"[\"']?(/dev/nvidia\d+)\b")
_NAME = re.compile(r"[\"']?\bname[\"']?\s*:\s*[\"']?([^\"'\s,}]+)")


def look(hands: Hands) -> Engine:
    """Connect to the engine and describe it. Raise EngineError."""
    engine = connect()
    facts = engine.facts()
    pid = _daemon(hands, engine) if engine.is_here else None
    return Engine(
        address=engine.address,
        facts=facts,
        way=_way(engine),
        is_here=engine.is_here,
        specs=cdi_specs(hands, facts.cdi_dirs) if engine.is_here else (),
        registered=registered(hands, is_rootless=facts.is_rootless) if engine.is_here else None,
        missing_runtime=_missing_runtime(hands, engine) if engine.is_here else None,
        memlock_forbidden=memlock.is_known_forbidden(engine.info),
        can_raise_limits=can_raise_limits(hands, pid),
        memlock_bytes=memlock_limit(hands, pid)[1],
    )


def _way(engine: DockerEngine) -> GpuWay | Trouble:
    try:
        return engine.gpu_way()
    except NgcdlError as error:  # NGCDL_GPU_WAY has an invalid value
        return Trouble(error.message, error)


def _missing_runtime(hands: Hands, engine: DockerEngine) -> str | None:
    """Return the path of the runtime nvidia's program if it is absolute and nothing is there."""
    runtime = (engine.info.get("Runtimes") or {}).get("nvidia") or {}
    path = str(runtime.get("path") or "")
    return path if path.startswith("/") and not hands.at(path).exists() else None


def registered(hands: Hands, *, is_rootless: bool) -> Path | None:
    """Find the daemon.json that names the runtime nvidia. https://docs.docker.com/reference/cli/dockerd/"""
    own = Path(hands.environ.get("XDG_CONFIG_HOME") or Path(hands.environ.get("HOME", "/")) / ".config")
    file = own / "docker/daemon.json" if is_rootless else Path("/etc/docker/daemon.json")
    with contextlib.suppress(ValueError, AttributeError):
        tree = json.loads(hands.read(file) or "{}")
        if "nvidia" in (tree.get("runtimes") or {}):
            return file
    return None


# -- CDI --------------------------------------------------------------------------------------------------------------


def cdi_specs(hands: Hands, folders: tuple[str, ...]) -> tuple[CdiSpec, ...]:
    """Read the descriptions of GPUs as text: they are YAML or JSON, and the relevant parts look the same in both."""
    found = []
    for folder in folders:
        for file in sorted(path for kind in ("*.yaml", "*.json") for path in hands.at(folder).glob(kind)):
            path = Path(folder) / file.name
            text = hands.read(path)
            if text is not None and "nvidia.com/gpu" in text:
                missing = frozenset(node for node in _DEVICE.findall(text) if not hands.at(node).exists())
                found.append(CdiSpec(path, frozenset(_LIBRARY.findall(text)), missing, frozenset(_NAME.findall(text))))
    return tuple(found)


# -- the daemon's process ---------------------------------------------------------------------------------------------


def _daemon(hands: Hands, engine: DockerEngine) -> int | None:
    """Return the PID of the daemon behind a local socket: its listener or, if that is systemd, the only dockerd."""
    if (pid := _listener(engine.address)) and (hands.read(f"/proc/{pid}/comm") or "").strip() == "dockerd":
        return pid
    pids = [
        int(folder.name)
        for folder in hands.at("/proc").glob("[0-9]*")
        if (hands.read(f"/proc/{folder.name}/comm") or "").strip() == "dockerd"
    ]
    return pids[0] if len(pids) == 1 else None


def _listener(address: str) -> int | None:
    path = address.removeprefix("unix://") if address.startswith("unix://") else "/var/run/docker.sock"
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        probe.connect(path)
        return int(struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])
    return None


def can_raise_limits(hands: Hands, pid: int | None) -> bool | None:
    status = hands.read(f"/proc/{pid}/status") if pid else None
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", status or "", re.MULTILINE)
    is_unlimited, _ = memlock_limit(hands, pid)
    if found is None:
        return None
    return bool(int(found[1], 16) & _SYS_RESOURCE) or is_unlimited


def memlock_limit(hands: Hands, pid: int | None) -> tuple[bool, int | None]:
    """Return whether the daemon's own hard limit is unlimited, and if not, its bytes."""
    limits = hands.read(f"/proc/{pid}/limits") if pid else None
    found = re.search(r"^Max locked memory\s+\S+\s+(\S+)", limits or "", re.MULTILINE)
    if found is None:
        return False, None
    return found[1] == "unlimited", int(found[1]) if found[1].isdigit() else None
