"""A user of an engine that really pulls from a relay, and a registry with one image."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.client
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fakes import FakeEngine, FakeJob
from ngc_server import OCI_INDEX, V2, NgcServer, digest

from ngcdl.engines.values import LayerStore, PullEvent, ShowPull
from ngcdl.errors import EngineRefused, NgcdlError
from ngcdl.pulling.feed import Feed
from ngcdl.pulling.relay import is_relays
from ngcdl.registry.key import Credential
from ngcdl.spec import ImageRef

LAYERS = [b"lowest" * 40_000, b"middle" * 20_000, b"top"]
GZIP = "application/vnd.docker.image.rootfs.diff.tar.gzip"
TARS = LAYERS
GZIPS = [gzip.compress(tar) for tar in TARS]
CONTENTS = [f"sha256:{hashlib.sha256(b'unpacked' + layer).hexdigest()}" for layer in LAYERS]


@dataclass
class PullingEngine(FakeEngine):
    """Pulls from a relay over HTTP as an engine does, and treats other pulls as done."""

    job: Any = field(default_factory=FakeJob)
    store: LayerStore = field(default_factory=lambda: LayerStore(None))
    troubles: list[NgcdlError] = field(default_factory=list)  # one per pull from a relay
    asks_first: bool = True
    pulls: list[ImageRef] = field(default_factory=list)
    untagged: list[ImageRef] = field(default_factory=list)
    layers: list[bytes] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def layer_store(self) -> LayerStore:
        return self.store

    def untag(self, image: ImageRef) -> None:
        self.untagged.append(image)

    def pull(self, image: ImageRef, show: ShowPull, auth: Mapping[str, str] | None = None) -> str:
        self.pulls.append(image)
        self.auths.append(auth)
        if not is_relays(image):
            return str(self.pulled)
        manifest = json.loads(self._get(image, f"manifests/{image.digest}") if self.asks_first else b'{"layers": []}')
        if self.troubles:
            raise self.troubles.pop(0)
        for layer in manifest["layers"]:
            self.asked.append(layer["digest"])
            self.layers.append(self._get(image, f"blobs/{layer['digest']}"))
            show(PullEvent(layer["digest"][7:19], "Pull complete"))
        return str(image.digest)

    def _get(self, image: ImageRef, path: str) -> bytes:
        connection = http.client.HTTPConnection(image.registry, timeout=240)
        with contextlib.closing(connection):
            connection.request("GET", f"/v2/{image.repository}/{path}")
            answer = connection.getresponse()
            try:
                body = answer.read()
            except http.client.HTTPException as error:
                raise EngineRefused("unexpected EOF") from error
        if answer.status != 200:
            raise EngineRefused(f"{answer.status}")
        return body


@dataclass
class Table:
    """A user of an engine, and a registry with one image."""

    ngc: NgcServer
    engine: PullingEngine
    folder: Path
    said: list[str] = field(default_factory=list)
    shown: list[PullEvent] = field(default_factory=list)
    naps: list[float] = field(default_factory=list)
    credential: Credential | None = None

    @property
    def image(self) -> ImageRef:
        return ImageRef(self.ngc.host, "nvidia/tensorflow", "18.01-py2")

    def offer_for(self, architecture: str) -> str:
        """Offer the image in an index, for one platform of several; return its manifest's digest."""
        ((name, (_, one)),) = self.ngc.manifests.items()
        about = {"digest": name, "size": len(one), "platform": {"os": "linux", "architecture": architecture}}
        index = json.dumps({"schemaVersion": 2, "manifests": [about]}).encode()
        self.ngc.manifests[digest(index)] = (OCI_INDEX, index)
        self.ngc.tags["nvidia/tensorflow"]["18.01-py2"] = digest(index)
        return name

    def feed(self) -> Feed:
        show, say = self.shown.append, self.said.append
        return Feed(self.engine, self.image, self.credential, self.folder, show, say, self.naps.append)

    def pull(self) -> None:
        with self.feed() as feed:
            feed.bring()
            self.engine.pull(self.image, self.shown.append)
            feed.tidy()

    def names(self) -> list[str]:
        """Return the layer digests requested in the engine's last pull from a relay."""
        return self.engine.asked[-len(LAYERS) :]

    def blobs(self) -> list[str]:
        return [Path(one.path).name for one in self.ngc.seen if "/blobs/" in one.path and one.authorization]

    def from_their_beginning(self) -> list[str]:
        return [
            Path(one.path).name
            for one in self.ngc.seen
            if "/blobs/" in one.path and one.authorization and not one.range
        ]

    def left(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*"))


def put_image(
    ngc: NgcServer, sizes: dict[int, int] | None = None, layers: Sequence[bytes] = LAYERS, kind: str | None = None
) -> None:
    holds = [digest(tar) for tar in TARS] if kind else CONTENTS
    config = json.dumps({"architecture": "amd64", "rootfs": {"type": "layers", "diff_ids": holds}}).encode()
    about_layers = [
        {"mediaType": kind, "digest": digest(layer), "size": (sizes or {}).get(number, len(layer))}
        for number, layer in enumerate(layers)
    ]
    for blob in (config, *layers):
        ngc.blobs[digest(blob)] = blob
    about = {"digest": digest(config), "size": len(config)}
    body = json.dumps({"schemaVersion": 2, "mediaType": V2, "config": about, "layers": about_layers}).encode()
    ngc.manifests[digest(body)] = (V2, body)
    ngc.tags["nvidia/tensorflow"] = {"18.01-py2": digest(body)}
