"""What an engine is offered of an image: its layers as they are, or decompressed on the way. Pure.

An engine unpacks layer after layer, each in one thread: https://github.com/moby/moby/issues/21814. It need not
decompress a layer that arrives as a tar, and three of them arrive at once. Such a layer is named by its content's
digest, as listed in the image's configuration: the engine verifies that, and the image gets the same id.
https://github.com/opencontainers/image-spec/blob/main/config.md#layer-diffid
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ngcdl.pulling.blobs import Blob
from ngcdl.registry import manifest
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
    """The image: a manifest with its digest in `image`, and the blobs that it names, lowest layer first.

    `unpacked` maps the digests of tars that the manifest names instead of blobs to those blobs.
    """

    image: ImageRef
    media_type: str
    manifest: bytes = field(repr=False)
    blobs: tuple[Blob, ...]
    unpacked: Mapping[str, Blob] = field(default_factory=dict)


def contents(config: object, layers: int) -> tuple[str, ...] | None:
    """Return the layers' diff IDs from an image's configuration, None if it does not list them all."""
    root = config.get("rootfs") if isinstance(config, dict) else None
    found = root.get("diff_ids") if isinstance(root, dict) else None
    if not isinstance(found, list) or len(found) != layers:
        return None
    return tuple(found) if all(isinstance(one, str) and manifest.is_digest(one) for one in found) else None


def packed(image: ImageRef, document: Document, blobs: Sequence[Blob]) -> Offer:
    """Offer the image as its registry has it."""
    return Offer(image, document.kind, document.body, tuple(blobs))


def unpacked(whole: Offer, tree: Mapping[str, Any], holds: Sequence[str], as_tars: Sequence[bool]) -> Offer:
    """Offer each layer that is a gzip and marked in `as_tars` as a tar. `holds` are the diff IDs of the layers of
    `tree`, the manifest of `whole`, in its order."""
    found = {blob.digest: blob for blob in whole.blobs}
    tars: dict[str, Blob] = {}
    layers: list[Mapping[str, Any]] = []
    for layer, content, as_tar in zip(tree["layers"], holds, as_tars, strict=True):
        kind = _UNPACKED.get(str(layer.get("mediaType")))
        if kind is None or not as_tar:
            layers.append(layer)
            continue
        tars.setdefault(content, found[layer["digest"]])  # two gzips of one tar: either will do
        # The tar's length is not known yet, and Docker reads only the size in the answer.
        layers.append({"mediaType": kind, "size": layer["size"], "digest": content})
    if not tars:
        return whole
    named = {tree["config"]["digest"], *(layer["digest"] for layer in layers), *(blob.digest for blob in tars.values())}
    body = json.dumps({**tree, "layers": layers}).encode()
    image = ImageRef(whole.image.registry, whole.image.repository, None, manifest.digest(body))
    return Offer(image, whole.media_type, body, tuple(blob for blob in whole.blobs if blob.digest in named), tars)
