"""What a Docker engine has of images already, and whether layers can be handed to it from this host."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ngcdl.engines.base import LayerStore
from ngcdl.engines.docker.host import is_containerd_store
from ngcdl.spec import ImageRef

# As `docker info` names processors, and as registries do: https://go.dev/doc/install/source#environment
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def layer_store(client: Any, info: Mapping[str, Any], is_here: bool) -> LayerStore:
    """Look at the images of `client` (docker.APIClient); `info` is what it said of itself."""
    machine = str(info.get("Architecture") or "x86_64")
    platform = (str(info.get("OSType") or "linux"), _ARCHITECTURES.get(machine, machine))
    foreign = _foreign(client, info, is_here)
    if foreign:
        return LayerStore(foreign, platform)
    folder = info.get("DockerRootDir")
    return LayerStore(None, platform, Path(folder) if folder else None, _chains(client), is_containerd_store(info))


def _foreign(client: Any, info: Mapping[str, Any], is_here: bool) -> str | None:
    if not is_here:
        return "the engine is not on this host"
    if any("rootless" in option for option in info.get("SecurityOptions") or []):
        # Its loopback is another one: https://docs.docker.com/engine/security/rootless/
        return "the engine is rootless and has a network of its own"
    names = [str(part.get("Name", "")) for part in client.version().get("Components") or []]
    return "the engine is podman" if any("podman" in name.lower() for name in names) else None


def _chains(client: Any) -> dict[str, tuple[str, ...]]:
    import docker.errors

    chains = {}
    for name in set(client.images(quiet=True)):
        with contextlib.suppress(docker.errors.NotFound):  # somebody removes it just now
            layers = (client.inspect_image(name).get("RootFS") or {}).get("Layers") or []
            chains[str(name)] = tuple(str(layer) for layer in layers)
    return chains


def untag(client: Any, image: ImageRef) -> None:
    """Take one name away. Layers that another name needs stay; a name that is not there is fine."""
    import docker.errors

    with contextlib.suppress(docker.errors.APIError):
        client.remove_image(image.pinned(image.digest) if image.digest else str(image))
