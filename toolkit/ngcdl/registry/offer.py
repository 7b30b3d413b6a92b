"""What an engine is offered of an image: its layers as they are, or unpacked on the way. Pure.

An engine unpacks layer after layer, each in one thread: https://github.com/moby/moby/issues/21814. A layer that comes
as a tar it need not decompress, and three of them come at once. Such a layer's name is the digest of what it holds, as
the image's configuration promises it: the engine checks that, and the image gets the same id.
https://github.com/opencontainers/image-spec/blob/main/config.md#layer-diffid
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ngcdl.registry import manifest
from ngcdl.registry.blobs import Blob
from ngcdl.registry.manifest import Document
from ngcdl.spec import ImageRef

# https://github.com/opencontainers/image-spec/blob/main/media-types.md and
# https://distribution.github.io/distribution/spec/manifest-v2-2/#media-types
_UNPACKED = {
    "application/vnd.docker.image.rootfs.diff.tar.gzip": "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.oci.image.layer.v1.tar+gzip": "application/vnd.oci.image.layer.v1.tar",
}


@dataclass(frozen=True)
class Offer:
    """The image: a manifest with its digest in `image`, and the blobs that it needs, the lowest layer first.

    `unpacked` has those that are offered as the tar in them, by the digest of that.
    """

    image: ImageRef
    media_type: str
    manifest: bytes = field(repr=False)
    blobs: tuple[Blob, ...]
    unpacked: Mapping[str, Blob] = field(default_factory=dict)


def contents(config: object, layers: int) -> tuple[str, ...] | None:
    """Read from an image's configuration what its layers hold, by digest; None where it does not tell that of all."""
    root = config.get("rootfs") if isinstance(config, dict) else None
    found = root.get("diff_ids") if isinstance(root, dict) else None
    if not isinstance(found, list) or len(found) != layers:
        return None
    return tuple(found) if all(isinstance(one, str) and manifest.is_digest(one) for one in found) else None


def packed(image: ImageRef, document: Document, blobs: Sequence[Blob]) -> Offer:
    """Offer the image as its registry has it."""
    return Offer(image, document.kind, document.body, tuple(blobs))


def unpacked(whole: Offer, tree: Mapping[str, Any], holds: Sequence[str], wanted: Collection[str]) -> Offer:
    """Offer each layer that holds one of `wanted`, and is a gzip, as a tar. `holds` are the layers' contents, `tree` is
    the manifest of `whole`."""
    found = {blob.digest: blob for blob in whole.blobs}
    tars: dict[str, Blob] = {}
    layers: list[Mapping[str, Any]] = []
    for layer, content in zip(tree["layers"], holds, strict=True):
        kind = _UNPACKED.get(str(layer.get("mediaType")))
        if kind is None or content not in wanted:
            layers.append(layer)
            continue
        tars[content] = found[layer["digest"]]
        # How long the tar is nobody knows yet, and Docker reads no size but the answer's own.
        layers.append({"mediaType": kind, "size": layer["size"], "digest": content})
    if not tars:
        return whole
    body = json.dumps({**tree, "layers": layers}).encode()
    image = ImageRef(whole.image.registry, whole.image.repository, None, manifest.digest(body))
    return Offer(image, whole.media_type, body, whole.blobs, tars)
