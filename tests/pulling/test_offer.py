"""What an engine is offered: which layers as tars, under which names; and what is remembered about it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from ngcdl.pulling import given_as_tars, offer
from ngcdl.pulling.blobs import Blob
from ngcdl.pulling.offer import Offer
from ngcdl.registry.manifest import Document
from ngcdl.spec import ImageRef

DOCKER = "application/vnd.docker.image.rootfs.diff.tar"
OCI = "application/vnd.oci.image.layer.v1.tar"
V2 = "application/vnd.docker.distribution.manifest.v2+json"
IMAGE = ImageRef("nvcr.io", "nvidia/tensorflow", None, f"sha256:{'9' * 64}")


def name(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def whole(folder: Path, kinds: list[str | None]) -> tuple[Offer, dict[str, Any]]:
    """Return an image with one layer of each kind."""
    layers = [{"mediaType": kind, "size": 10, "digest": name(f"layer {n}")} for n, kind in enumerate(kinds)]
    tree = {"schemaVersion": 2, "mediaType": V2, "config": {"digest": name("config")}, "layers": layers}
    blobs = [Blob(folder, name(text), 10) for text in ("config", *(f"layer {n}" for n in range(len(kinds))))]
    document = Document(V2, str(IMAGE.digest), tree, json.dumps(tree).encode())
    return offer.packed(IMAGE, document, blobs), tree


@pytest.mark.parametrize(("kind", "plain"), [(f"{DOCKER}.gzip", DOCKER), (f"{OCI}+gzip", OCI)])
def test_a_gzip_is_offered_as_the_tar_that_it_holds(tmp_path: Path, kind: str, plain: str) -> None:
    packed, tree = whole(tmp_path, [kind, kind])
    holds = [name("content 0"), name("content 1")]
    found = offer.unpacked(packed, tree, holds, [False, True])
    manifest = json.loads(found.manifest)
    assert manifest["layers"] == [tree["layers"][0], {"mediaType": plain, "size": 10, "digest": holds[1]}]
    assert {**manifest, "layers": None} == {**tree, "layers": None}
    assert {content: blob.digest for content, blob in found.unpacked.items()} == {holds[1]: name("layer 1")}
    assert found.image.digest == f"sha256:{hashlib.sha256(found.manifest).hexdigest()}"
    assert (found.image.registry, found.image.repository) == (IMAGE.registry, IMAGE.repository)


@pytest.mark.parametrize("kind", [f"{OCI}+zstd", OCI, DOCKER, None, "application/vnd.docker.image.rootfs.foreign.diff"])
def test_what_is_no_gzip_is_offered_as_it_is(tmp_path: Path, kind: str | None) -> None:
    packed, tree = whole(tmp_path, [kind])
    holds = [name("content 0")]
    assert offer.unpacked(packed, tree, holds, [True]) is packed


@pytest.mark.parametrize("config", [
    None, [], {}, {"rootfs": None}, {"rootfs": {"diff_ids": "none"}}, {"rootfs": {"diff_ids": [name("one")]}},
    {"rootfs": {"diff_ids": [name("one"), "../../etc/passwd"]}}, {"rootfs": {"diff_ids": [name("one"), 2]}},
])  # fmt: skip
def test_a_configuration_that_does_not_tell_what_layers_hold_tells_nothing(config: object) -> None:
    assert offer.contents(config, 2) is None


def test_what_layers_hold_is_told_in_their_order() -> None:
    holds = [name("one"), name("two")]
    assert offer.contents({"rootfs": {"type": "layers", "diff_ids": holds}}, 2) == tuple(holds)


def test_each_layer_is_offered_by_its_own_place_though_another_holds_the_same(tmp_path: Path) -> None:
    packed, tree = whole(tmp_path, [f"{DOCKER}.gzip"] * 3)
    empty = name("an empty tar")
    found = offer.unpacked(packed, tree, [empty, name("content 1"), empty], [False, False, True])
    assert [layer["digest"] for layer in json.loads(found.manifest)["layers"]] == [
        name("layer 0"), name("layer 1"), empty,
    ]  # fmt: skip


def test_of_two_gzips_of_one_tar_one_is_needed(tmp_path: Path) -> None:
    packed, tree = whole(tmp_path, [f"{DOCKER}.gzip"] * 3)
    empty = name("an empty tar")
    found = offer.unpacked(packed, tree, [empty, name("content 1"), empty], [True] * 3)
    assert [blob.digest for blob in found.blobs] == [name("config"), name("layer 0"), name("layer 1")]
    assert found.unpacked[empty].digest == name("layer 0")


# -- what is remembered ---------------------------------------------------------------------------------------------


def test_what_an_engine_got_is_remembered_of_it_alone(tmp_path: Path) -> None:
    assert given_as_tars.read(tmp_path, "engine") == frozenset()
    for text in ("one", "two", "one"):
        given_as_tars.add(tmp_path, "engine", name(text))
    assert given_as_tars.read(tmp_path, "engine") == {name("one"), name("two")}
    assert given_as_tars.read(tmp_path, "another") == given_as_tars.read(tmp_path, None) == frozenset()
    (path,) = tmp_path.iterdir()
    assert len(path.read_text().splitlines()) == 2


def test_what_is_no_digest_is_passed_over(tmp_path: Path) -> None:
    given_as_tars.add(tmp_path, "engine", name("one"))
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"\xff\x00\n" + path.read_bytes() + b"sha256:abc")
    assert given_as_tars.read(tmp_path, "engine") == {name("one")}


def test_a_folder_that_takes_nothing_is_no_error(tmp_path: Path) -> None:
    given_as_tars.add(tmp_path / "none", "engine", name("one"))
    assert list(tmp_path.iterdir()) == []
