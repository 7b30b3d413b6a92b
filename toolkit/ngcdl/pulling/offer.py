"""The form in which an engine is offered an image: its layers as they are, or decompressed on the way. Pure.

An engine unpacks layer after layer, each in one thread: https://github.com/moby/moby/issues/21814. If layers arrive as
tars, three at once, the engine need not decompress them. A tar is named by the digest of its content, which the image's
configuration lists: the engine verifies that digest, and the image gets the same id.
https://github.com/opencontainers/image-spec/blob/main/config.md#layer-diffid
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from ngcdl.frozen import dataclass
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
    """An image on offer: its manifest, whose digest is in `image`, and the blobs for it, lowest layer first.

    `unpacked` maps the digest of each tar that the manifest names to the blob that holds the tar compressed.
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
    """Offer as a tar each layer that is a gzip and is marked in `as_tars`.

    `tree` is the manifest of `whole`; `holds` are the diff IDs of its layers, in its order."""
    found = {blob.digest: blob for blob in whole.blobs}
    tars: dict[str, Blob] = {}
    layers: list[Mapping[str, Any]] = []
    for layer, content, as_tar in zip(tree["layers"], holds, as_tars, strict=True):
        kind = _UNPACKED.get(str(layer.get("mediaType")))
        if kind is None or not as_tar:
            layers.append(layer)
            continue
        tars.setdefault(content, found[layer["digest"]])  # two gzips of one tar: either will do
        # The gzip's size, as the tar's is not known yet. Docker reads only the size in the answer.
        layers.append({"mediaType": kind, "size": layer["size"], "digest": content})
    if not tars:
        return whole
    named = {tree["config"]["digest"], *(layer["digest"] for layer in layers), *(blob.digest for blob in tars.values())}
    body = json.dumps({**tree, "layers": layers}).encode()
    image = ImageRef(whole.image.registry, whole.image.repository, None, manifest.digest(body))
    return Offer(image, whole.media_type, body, tuple(blob for blob in whole.blobs if blob.digest in named), tars)
