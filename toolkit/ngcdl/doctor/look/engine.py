"""What the Docker engine reports about itself, and what its files and its process on this host show."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

from ngcdl.doctor.hands import Hands
from ngcdl.doctor.sight import UVM, CdiSpec, Engine, Trouble
from ngcdl.engines.docker import DockerEngine, connect, memlock
from ngcdl.engines.values import GpuWay
from ngcdl.errors import BadOption, NgcdlError

# capability 24: https://man7.org/linux/man-pages/man7/capabilities.7.html
_SYS_RESOURCE = 1 << 24
_LIBRARY = re.compile(r"\.so\.(\d{3,}\.\d+(?:\.\d+)?)\b")
_DEVICE = re.compile(r"[\"']?(/dev/nvidia\d+)\b")
# This kind and no other: the devices of management.nvidia.com/gpu, for example, have the same names.
_KIND = re.compile(r"\bkind[\"']?\s*:\s*[\"']?nvidia\.com/gpu(?![\w./-])")
_NAME = re.compile(r"[\"']?\bname[\"']?\s*:\s*[\"']?([^\"'\s,}]+)")
_ITEM = re.compile(r"[{}]|^\s*-\s", re.MULTILINE)  # where one begins
_NODE = re.compile(r"\b(hostPath|path|major|minor)[\"']?\s*:\s*[\"']?([^\"'\s,]+)")


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
        missing_runtime=_missing_runtime(hands, engine) if engine.is_here and not facts.is_snap else None,
        memlock_forbidden=_memlock_forbidden(engine),
        can_raise_limits=can_raise_limits(hands, pid),
        memlock_bytes=memlock_limit(hands, pid)[1],
    )


def _way(engine: DockerEngine) -> GpuWay | Trouble:
    try:
        return engine.gpu_way()
    except NgcdlError as error:  # NGCDL_GPU_WAY has an invalid value
        return Trouble(error.message, error)


def _memlock_forbidden(engine: DockerEngine) -> bool:
    with contextlib.suppress(BadOption):  # ngcdl's settings, which say where it was remembered, can't be read
        return memlock.is_known_forbidden(engine.info)
    return False


def _missing_runtime(hands: Hands, engine: DockerEngine) -> str | None:
    """Return the runtime nvidia's program if it is not there: a path or, as nvidia-ctk writes it, a bare name."""
    runtime = (engine.info.get("Runtimes") or {}).get("nvidia") or {}
    return missing_program(hands, str(runtime.get("path") or ""))


def missing_program(hands: Hands, path: str) -> str | None:
    """Return `path` if no such program exists. It may be outside this shell's PATH, as the daemon has its own."""
    if path.startswith("/"):
        return None if hands.at(path).exists() else path
    if not path or "/" in path or hands.which(path):
        return None
    return None if any(hands.at(f"{folder}/{path}").exists() for folder in ("/usr/bin", "/usr/local/bin")) else path


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
            if text is not None and _KIND.search(text):
                found.append(_described(hands, path, text))
    return tuple(found)


def _described(hands: Hands, path: Path, text: str) -> CdiSpec:
    nodes = frozenset(_DEVICE.findall(text))
    return CdiSpec(
        path,
        drivers=frozenset(_LIBRARY.findall(text)),
        missing=frozenset(node for node in nodes if not hands.at(node).exists()),
        devices=frozenset(_NAME.findall(text)),
        lacks_uvm=bool(nodes) and UVM not in text,
        renumbered=frozenset(_renumbered(hands, text)),
    )


def _renumbered(hands: Hands, text: str) -> Iterator[str]:
    """Yield the device nodes that have other numbers than the description gives them. Without `major` it gives none."""
    for item in _ITEM.split(text):
        node: dict[str, str] = dict(_NODE.findall(item))
        path = node.get("hostPath") or node.get("path") or ""
        if "major" in node and "/dev/nvidia" in path:
            with contextlib.suppress(OSError, ValueError):
                numbers = os.makedev(int(node["major"]), int(node.get("minor", "0")))
                state = hands.at(path).stat()
                if stat.S_ISCHR(state.st_mode) and state.st_rdev != numbers:
                    yield path


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
    """Return whether the daemon may lock memory without limit, and if not, its hard limit in bytes (None: unknown)."""
    limits = hands.read(f"/proc/{pid}/limits") if pid else None
    found = re.search(r"^Max locked memory\s+\S+\s+(\S+)", limits or "", re.MULTILINE)
    if found is None:
        return False, None
    return found[1] == "unlimited", int(found[1]) if found[1].isdigit() else None
