"""What `docker info` reports about an engine's machine: where images are, CDI, and the kind of engine. Pure.

https://docs.docker.com/reference/api/engine/version/v1.50/#tag/System/operation/SystemInfo
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ngcdl.engines.values import EngineFacts, architecture
from ngcdl.frozen import dataclass

# Identifies the containerd image store, the default of new installations since Docker 29:
# https://docs.docker.com/engine/storage/containerd/
_CONTAINERD_STORE = "io.containerd.snapshotter.v1"
_CONTAINERD_FOLDER = "/var/lib/containerd"
_SYSTEM_S_CONTAINERD = ("/run/containerd/", "/var/run/containerd/")
_RUNC = "org.opencontainers.runc.version"
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?[\w.+~-]*")
_SPEC_LIMIT_BYTES = 4 << 20


@dataclass(frozen=True)
class Files:
    """Access to the files of the engine's machine: `read` returns a text, `list` the paths in a folder,
    `free_bytes` the free space on a folder's disk. Each returns None if it has no access.
    """

    read: Callable[[str], str | None]
    list: Callable[[str], list[str] | None]
    free_bytes: Callable[[str], int | None]


def read(info: Mapping[str, Any], files: Files | None = None) -> EngineFacts:
    """Interpret what `docker info` returned. `files` None: the engine is on another machine, its files unknown."""
    root = _text(info, "DockerRootDir")
    folder = _images_folder(info, root, files) if is_containerd_store(info) else root
    folders = tuple(str(one) for one in info.get("CDISpecDirs") or ())
    return EngineFacts(
        version=_text(info, "ServerVersion"),
        name=_text(info, "Name"),
        architecture=architecture(info.get("Architecture")),
        images_folder=folder,
        free_bytes=_free_bytes(folder, root, files),
        default_runtime=_text(info, "DefaultRuntime"),
        cdi_dirs=folders,
        cdi_devices=tuple(_devices(info, folders, files)),
        is_rootless=has_option(info, "rootless"),
        is_snap=(root or "").startswith("/var/snap/"),
        is_desktop=info.get("OperatingSystem") == "Docker Desktop",
        cgroup_driver=_text(info, "CgroupDriver"),
        live_restore=value if isinstance(value := info.get("LiveRestoreEnabled"), bool) else None,
        authorization_plugins=_authorization_plugins(info),
        http_proxy=_proxy(info, "HttpProxy"),
        https_proxy=_proxy(info, "HttpsProxy"),
        runc_version=_runc(info),
        kernel=_text(info, "KernelVersion"),
        cores=_count(info, "NCPU"),
        memory_bytes=_count(info, "MemTotal"),
    )


def has_option(info: Mapping[str, Any], name: str) -> bool:
    """Whether the daemon lists `name` among its security options, as in name=rootless."""
    return any(f"name={name}" in str(option).split(",") for option in info.get("SecurityOptions") or ())


def local_files() -> Files:
    """Return access to this machine's files."""
    return Files(_read, _list, free_bytes)


def free_bytes(folder: str) -> int | None:
    """Return the bytes that this user may still write on a folder's disk; None if the folder is inaccessible."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _text(info: Mapping[str, Any], key: str) -> str | None:
    value = info.get(key)
    return value if isinstance(value, str) and value else None


def _count(info: Mapping[str, Any], key: str) -> int | None:
    """Return a positive count: a daemon that does not know it reports 0."""
    value = info.get(key)
    return value if isinstance(value, int) and value > 0 else None


def is_containerd_store(info: Mapping[str, Any]) -> bool:
    """Whether the images are in containerd's store, not in the engine's own."""
    return any(list(pair) == ["driver-type", _CONTAINERD_STORE] for pair in info.get("DriverStatus") or ())


def _images_folder(info: Mapping[str, Any], root: str | None, files: Files | None) -> str:
    """Find the folder of the containerd that the engine uses: the system's, or its own below its data root."""
    own = f"{root}/containerd/daemon"
    address = str((info.get("Containerd") or {}).get("Address") or "")  # reported since Docker 27
    if root and address:
        is_own = address.endswith("/containerd/containerd.sock") and not address.startswith(_SYSTEM_S_CONTAINERD)
        return own if is_own else _CONTAINERD_FOLDER
    return own if root and files and files.free_bytes(own) is not None else _CONTAINERD_FOLDER


def _free_bytes(folder: str | None, root: str | None, files: Files | None) -> int | None:
    if folder is None or files is None:
        return None
    found = files.free_bytes(folder)
    # Only root may access folders below the data root; they are nearly always on the data root's own disk.
    if found is None and root and folder.startswith(f"{root}/"):
        return files.free_bytes(root)
    return found


def _devices(info: Mapping[str, Any], folders: tuple[str, ...], files: Files | None) -> list[str]:
    told = [str(one.get("ID")) for one in info.get("DiscoveredDevices") or () if one.get("Source") == "cdi"]
    described = [one for folder in folders if files for one in _described(folder, files)]
    return list(dict.fromkeys(told + described))


def _described(folder: str, files: Files) -> Iterator[str]:
    """Yield the devices in a folder's CDI descriptions, which are JSON or YAML."""
    for path in files.list(folder) or ():
        text = files.read(path) if path.endswith((".json", ".yaml")) else None
        if text is not None:
            kind, names = _from_json(text) if path.endswith(".json") else _from_yaml(text)
            yield from (f"{kind}={name}" for name in names if kind)


def _from_json(text: str) -> tuple[str, list[str]]:
    try:
        tree = json.loads(text)
        return str(tree["kind"]), [str(device["name"]) for device in tree["devices"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "", []


def _from_yaml(text: str) -> tuple[str, list[str]]:
    """Extract kind and names from what `nvidia-ctk cdi generate` writes: block style, with plain or quoted strings.

    https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
    """
    kind = re.search(r"^kind:\s*[\"']?([^\"'\s#]+)", text, re.MULTILINE)
    section = re.search(r"^devices:[ \t]*\n((?:[ \t#-].*\n?|\n)*)", text, re.MULTILINE)
    first = re.match(r"(?:\s*#.*\n|\s*\n)*( *)-", section[1]) if section else None
    if kind is None or section is None or first is None:
        return "", []
    names = re.findall(rf"^{first[1]}[ -] name:\s*[\"']?([^\"'\s#]+)", section[1], re.MULTILINE)
    return kind[1], names


def _runc(info: Mapping[str, Any]) -> str | None:
    """Return runc's version: Docker reports it among its features since 25.0, before that sometimes in the commit."""
    runc = (info.get("Runtimes") or {}).get("runc") or {}
    try:
        features = json.loads((runc.get("status") or {}).get("org.opencontainers.runtime-spec.features") or "{}")
        told = (features.get("annotations") or {}).get(_RUNC)
    except (ValueError, AttributeError):
        told = None
    found = _VERSION.search(str(told or (info.get("RuncCommit") or {}).get("ID") or ""))
    return re.sub(r"-\d+-g[0-9a-f]+$", "", found[0]) if found else None  # what `git describe` adds


def _proxy(info: Mapping[str, Any], key: str) -> str | None:
    address = _text(info, key)
    return without_password(address) if address else None


def without_password(proxy: str) -> str:
    """Return a proxy's address without user and password. These end at the last @: a password may have a slash that is
    not encoded, at which a parser of addresses takes the host to end."""
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", proxy)
    begins = scheme[0] if scheme else ""
    return begins + proxy.removeprefix(begins).rpartition("@")[2].partition("/")[0]


def _read(path: str) -> str | None:
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return file.read(_SPEC_LIMIT_BYTES)
    except OSError:
        return None


def _list(folder: str) -> list[str] | None:
    try:
        return sorted(str(path) for path in Path(folder).iterdir())
    except OSError:
        return None


def _authorization_plugins(info: Mapping[str, Any]) -> tuple[str, ...] | None:
    plugins = info.get("Plugins")
    if not isinstance(plugins, Mapping):
        return None
    named = plugins.get("Authorization")
    return tuple(str(one) for one in named) if isinstance(named, list) else ()
