"""What a manifest says about an image before any layer is pulled: platform, config blob, layers and their sizes. Pure.

https://github.com/opencontainers/image-spec/blob/main/manifest.md
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from ngcdl.frozen import dataclass

INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
IMAGE_TYPES = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
# From about 2017. Docker 26 and newer refuse to pull it: https://docs.docker.com/engine/deprecated/
SCHEMA_1_TYPES = (
    "application/vnd.docker.distribution.manifest.v1+prettyjws",
    "application/vnd.docker.distribution.manifest.v1+json",
)
ACCEPT = ", ".join(INDEX_TYPES + IMAGE_TYPES + SCHEMA_1_TYPES)
UNNAMED = ""  # the platform of an index's entry that names none
CONFIG_LIMIT_BYTES = 8 << 20  # of a manifest, too: both are read into memory
_ALGORITHMS = {"sha256": 64, "sha384": 96, "sha512": 128}


@dataclass(frozen=True)
class Layer:
    digest: str
    size_bytes: int


@dataclass(frozen=True)
class Document:
    """What a registry has under one name: an index of several platforms, or one image's manifest; `kind` says which."""

    kind: str
    digest: str
    tree: Mapping[str, Any] = field(repr=False)
    body: bytes = field(repr=False, default=b"")  # what `digest` covers

    @property
    def is_index(self) -> bool:
        return self.kind in INDEX_TYPES


@dataclass(frozen=True)
class Manifest:
    """One image for one platform. `digest` is this manifest's own, not an enclosing index's.

    `platforms` are all that the index offers, as linux/arm64, and `platform` is the one that this image is for; without
    an index that names platforms they are () and None, and the configuration names the platform.

    A schema-1 image has no sizes and no config blob: `config_digest` and `compressed_bytes` are None, `layers` is (),
    and its configuration is the text `inline_config`.
    """

    digest: str
    media_type: str
    config_digest: str | None
    layers: tuple[Layer, ...]
    inline_config: str | None = None
    platform: str | None = None
    platforms: tuple[str, ...] = ()

    @property
    def is_schema_1(self) -> bool:
        return self.media_type in SCHEMA_1_TYPES

    @property
    def compressed_bytes(self) -> int | None:
        """The sum of the distinct layers' sizes as downloaded."""
        if self.is_schema_1:
            return None
        return sum({layer.digest: layer.size_bytes for layer in self.layers}.values())


def media_type(tree: Mapping[str, Any], content_type: str) -> str:
    """Return a manifest's media type: from its own field, else from the header, else from its shape."""
    own = tree.get("mediaType")
    known = INDEX_TYPES + IMAGE_TYPES + SCHEMA_1_TYPES
    for name in (own, content_type.split(";", 1)[0].strip().lower()):
        if isinstance(name, str) and name in known:
            return name
    if tree.get("schemaVersion") == 1:
        return SCHEMA_1_TYPES[0]
    if "manifests" in tree:
        return INDEX_TYPES[0]
    if "config" in tree:
        return IMAGE_TYPES[0]
    raise ValueError(f"a manifest of an unknown kind ({str(own or content_type)[:80]})")


def image(tree: Mapping[str, Any], kind: str, digest: str) -> Manifest:
    """Parse one image's manifest. Raise ValueError if it is malformed."""
    if kind in SCHEMA_1_TYPES:
        return Manifest(digest, kind, None, (), _inline_config(tree))
    config, layers = tree.get("config"), tree.get("layers")
    if not isinstance(config, dict) or not isinstance(layers, list):
        raise ValueError("a manifest without config or layers")
    return Manifest(digest, kind, _digest_of(config), tuple(_layer(layer) for layer in layers))


def configuration(tree: Mapping[str, Any]) -> Layer:
    """Return the configuration of one image's manifest as a blob. Raise ValueError if it has no size, or a huge one."""
    size = tree["config"].get("size")
    if not isinstance(size, int) or not 0 <= size <= CONFIG_LIMIT_BYTES:
        raise ValueError("a manifest with a configuration of no size, or of a huge one")
    return Layer(_digest_of(tree["config"]), size)


def _layer(entry: object) -> Layer:
    size = entry.get("size") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ValueError("a manifest with a layer without a size")
    return Layer(_digest_of(entry), size)


def _digest_of(entry: Mapping[str, Any]) -> str:
    digest = entry.get("digest")
    if not isinstance(digest, str) or not is_digest(digest):
        raise ValueError("a manifest with an invalid digest")
    return digest


def _inline_config(tree: Mapping[str, Any]) -> str | None:
    history = tree.get("history")
    first = history[0] if isinstance(history, list) and history else None
    text = first.get("v1Compatibility") if isinstance(first, dict) else None
    return text if isinstance(text, str) else None


def offered(tree: Mapping[str, Any]) -> dict[str, str]:
    """Map an index's platforms, as linux/amd64 and in its order, to their images' digests. If it names none, its first
    image is UNNAMED, as Docker pulls it. Raise ValueError."""
    entries = tree.get("manifests")
    if not isinstance(entries, list):
        raise ValueError("an index without manifests")
    found: dict[str, str] = {}
    unnamed: list[dict[str, Any]] = []
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        about = entry.get("platform")
        if not isinstance(about, dict):
            unnamed.append(entry)
            continue
        name = (str(about.get("os", "")), str(about.get("architecture", "")))
        if "unknown" in name:  # attestations: https://docs.docker.com/build/metadata/attestations/attestation-storage/
            continue
        found.setdefault("/".join(name)[:60], _digest_of(entry))
    return {UNNAMED: _digest_of(unnamed[0])} if unnamed and not found else found


def is_digest(text: str) -> bool:
    """Return whether `text` is a well-formed digest, of an algorithm that can be checked here."""
    algorithm, _, hexadecimal = text.partition(":")
    return len(hexadecimal) == _ALGORITHMS.get(algorithm) and all(digit in "0123456789abcdef" for digit in hexadecimal)


def digest(body: bytes, like: str = "sha256:") -> str:
    """Return the digest of `body`, with the algorithm that `like` begins with."""
    algorithm = like.partition(":")[0]
    return f"{algorithm}:{hashlib.new(algorithm, body).hexdigest()}"


def parse(body: bytes) -> dict[str, Any]:
    """Parse a JSON object. Raise ValueError."""
    try:
        tree = json.loads(body)
    except RecursionError as error:
        raise ValueError("JSON that is nested too deeply") from error
    if not isinstance(tree, dict):
        raise ValueError("JSON, but not an object")
    return tree


def error_codes(body: bytes) -> set[str]:
    """Return the codes in a registry's error body; empty for anything else, such as a web page."""
    try:
        errors = parse(body).get("errors")
    except ValueError:
        return set()
    if not isinstance(errors, list):
        return set()
    return {str(error.get("code")) for error in errors if isinstance(error, dict)}
