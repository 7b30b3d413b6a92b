"""Which images and layers an engine has, and which engines can't be handed layers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import docker.errors
import pytest

from ngcdl.engines.docker import DockerEngine
from ngcdl.engines.docker.layers import layer_store
from ngcdl.engines.values import LayerStore
from ngcdl.spec import ImageRef

INFO: dict[str, Any] = {"Architecture": "aarch64", "OSType": "linux", "DockerRootDir": "/var/lib/docker"}


@dataclass
class Daemon:
    images_there: dict[str, list[str] | None] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    base_url: str = "http+docker://localhost"

    def images(self, quiet: bool) -> list[str]:
        assert quiet
        return [*self.images_there, *self.images_there]  # once for each name

    def inspect_image(self, name: str) -> dict[str, Any]:
        layers = self.images_there[name]
        if layers is None:
            raise docker.errors.ImageNotFound(name)
        return {"RootFS": {"Type": "layers", "Layers": layers}}

    def remove_image(self, name: str) -> None:
        self.removed.append(name)
        raise docker.errors.ImageNotFound(name)


def test_an_engine_on_this_host_tells_the_layers_of_its_images() -> None:
    store = layer_store(Daemon({"a": ["1", "2"], "gone": None, "b": ["1"]}), INFO, is_here=True)
    assert (store.foreign, store.platform, str(store.folder)) == (None, ("linux", "arm64"), "/var/lib/docker")
    assert sorted(store.chains.values()) == [("1",), ("1", "2")]


@pytest.mark.parametrize(("address", "folder"), [
    ("/run/containerd/containerd.sock", "/var/lib/containerd"),
    ("/var/run/docker/containerd/containerd.sock", "/var/lib/docker/containerd/daemon"),
])  # fmt: skip
def test_room_is_needed_where_containerd_keeps_images_if_the_engine_leaves_them_to_it(
    address: str, folder: str
) -> None:
    containerd = {"DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]}
    store = layer_store(Daemon(), INFO | containerd | {"Containerd": {"Address": address}}, is_here=True)
    assert (str(store.folder), store.keeps_packed) == (folder, True)


@pytest.mark.parametrize(("daemon", "info", "is_here", "why"), [
    (Daemon(), INFO, False, "not on this host"),
    (Daemon(), INFO | {"SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"]}, True, "rootless"),
    (Daemon(), INFO | {"SecurityOptions": ["name=seccomp,profile=/rootless.json"]}, True, ""),
    (Daemon(), INFO | {"ServerVersion": "Podman 4.3.1"}, True, "podman"),
])  # fmt: skip
def test_who_can_t_be_handed_layers_is_said(daemon: Daemon, info: dict[str, Any], is_here: bool, why: str) -> None:
    foreign = layer_store(daemon, info, is_here).foreign
    assert why in (foreign or "")
    assert bool(foreign) == bool(why)


@pytest.mark.parametrize(("chains", "count"), [
    ((), 0), ((("1", "2", "3"),), 2), ((("1",), ("1", "2")), 2), ((("2", "1"),), 0), ((("x", "2"),), 0),
])  # fmt: skip
def test_a_layer_is_there_where_all_below_it_are(chains: tuple[tuple[str, ...], ...], count: int) -> None:
    assert LayerStore(None, chains={str(n): chain for n, chain in enumerate(chains)}).has(["1", "2"]) == count


def test_a_name_that_is_gone_already_is_fine() -> None:
    daemon = Daemon()
    DockerEngine(daemon).untag(ImageRef("127.0.0.1:1", "ngcdl/x", None, f"sha256:{'a' * 64}"))
    assert daemon.removed == [f"127.0.0.1:1/ngcdl/x@sha256:{'a' * 64}"]
