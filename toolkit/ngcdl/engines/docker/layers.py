"""Which images and layers a Docker engine already has, and whether this host can hand it layers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ngcdl.engines.docker import host, podman
from ngcdl.engines.docker.messages import if_there
from ngcdl.engines.values import LayerStore, architecture


def layer_store(client: Any, info: Mapping[str, Any], is_here: bool) -> LayerStore:
    """List the images of `client` (docker.APIClient); `info` is the engine's."""
    platform = (str(info.get("OSType") or "linux"), architecture(info.get("Architecture")) or "amd64")
    foreign = _foreign(info, is_here)
    if foreign:
        return LayerStore(foreign, platform)
    folder = host.read(info, host.local_files()).images_folder
    return LayerStore(None, platform, Path(folder) if folder else None, _chains(client), host.is_containerd_store(info))


def _foreign(info: Mapping[str, Any], is_here: bool) -> str | None:
    if not is_here:
        return "the engine is not on this host"
    if host.has_option(info, "rootless"):
        # Its loopback is not this host's: https://docs.docker.com/engine/security/rootless/
        return "the engine is rootless and has its own network"
    return "the engine is podman" if podman.is_named(info.get("ServerVersion")) else None


def _chains(client: Any) -> dict[str, tuple[str, ...]]:
    chains = {}
    for name in set(client.images(quiet=True)):
        if found := if_there(client.inspect_image, name):  # else it has just been removed
            layers = (found.get("RootFS") or {}).get("Layers") or []
            chains[str(name)] = tuple(str(layer) for layer in layers)
    return chains
