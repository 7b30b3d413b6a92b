"""Layers fed as tars: to which engine, under which names, and what happens if one takes none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from ngc_server import digest
from pulling_engine import GZIP, GZIPS, TARS, Table, put_image

from ngcdl.engines.values import LayerStore
from ngcdl.errors import DigestMismatch, DiskFull, EngineRefused, NgcdlError
from ngcdl.pulling import disk_space, given_as_tars
from ngcdl.pulling.relay import is_relays


@pytest.fixture
def packed(table: Table, tmp_path: Path) -> Table:
    """A table whose image's layers are gzips, and an engine with room."""
    put_image(table.ngc, layers=GZIPS, kind=GZIP)
    table.engine.store = LayerStore(None, folder=tmp_path)
    return table


def test_gzips_come_as_the_tars_in_them(packed: Table) -> None:
    packed.pull()
    assert packed.engine.layers == TARS
    assert packed.names() == [digest(tar) for tar in TARS]
    relay, real = packed.engine.pulls
    assert (is_relays(relay), real) == (True, packed.image)
    assert (packed.engine.untagged, packed.left(), packed.said) == ([relay], [], [])
    assert sorted(packed.blobs()[1:]) == sorted(digest(layer) for layer in GZIPS)


def test_a_tar_is_shown_as_the_layer_that_it_was_in(packed: Table) -> None:
    packed.pull()
    assert {one.layer for one in packed.shown} == {digest(layer)[7:19] for layer in GZIPS}
    ends = {one.layer: one.total_bytes for one in packed.shown if one.status == "Pull complete"}
    assert ends == {digest(layer)[7:19]: len(tar) for layer, tar in zip(GZIPS, TARS, strict=True)}


@pytest.mark.parametrize("store", [
    LayerStore(None), LayerStore(None, folder=Path("/"), keeps_packed=True),
], ids=["nobody-knows-where", "keeps-them"])  # fmt: skip
def test_an_engine_that_can_t_take_tars_gets_gzips(packed: Table, store: LayerStore) -> None:
    packed.engine.store = store
    packed.pull()
    assert packed.engine.layers == GZIPS


def test_an_engine_without_room_for_tars_gets_gzips(packed: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_space, "judge", lambda *_: disk_space.LayerForm.PACKED)
    packed.pull()
    assert packed.engine.layers == GZIPS


def test_what_is_no_gzip_the_engine_gets_as_it_is_and_nothing_travels_twice(packed: Table) -> None:
    put_image(packed.ngc, layers=[GZIPS[0], b"no gzip" * 10_000, GZIPS[2]], kind=GZIP)
    packed.pull()
    assert packed.engine.layers[-3:] == [GZIPS[0], b"no gzip" * 10_000, GZIPS[2]]
    assert packed.engine.pulls[-1] == packed.image
    assert len(packed.engine.untagged) == 2
    assert (packed.left(), packed.said) == ([], [])
    assert len(packed.from_their_beginning()) == len(set(packed.from_their_beginning()))


@pytest.mark.parametrize("error", [DigestMismatch("a layer"), EngineRefused("it knows no tar")])
def test_where_tars_are_refused_gzips_follow(packed: Table, error: NgcdlError) -> None:
    packed.engine.troubles = [error]
    packed.pull()
    assert (packed.engine.layers, packed.said) == (GZIPS, [])
    assert len(packed.from_their_beginning()) == len(set(packed.from_their_beginning()))


def test_a_disk_that_is_too_full_for_tars_may_do_for_gzips(packed: Table) -> None:
    packed.engine.troubles = [DiskFull("/var/lib/docker", "full")]
    packed.pull()
    assert packed.engine.layers == GZIPS
    packed.engine.troubles = [DiskFull("/var/lib/docker", "full")] * 2
    with pytest.raises(DiskFull):
        packed.pull()


def known_as(table: Table, tmp_path: Path, contents: Sequence[str], *handed_contents: str) -> None:
    """Store another image of `contents`, `handed_contents` of them as tars."""
    table.engine.store = LayerStore(None, folder=tmp_path, chains={"another": tuple(contents)})
    for content in handed_contents:
        given_as_tars.add(tmp_path, table.engine.identity, content)


def test_layers_are_asked_for_by_the_names_that_the_engine_knows_them_by(packed: Table, tmp_path: Path) -> None:
    tars, gzips = [digest(tar) for tar in TARS], [digest(layer) for layer in GZIPS]
    known_as(packed, tmp_path, tars[:2])
    packed.pull()
    assert packed.names() == [gzips[0], gzips[1], tars[2]], "somebody else has pulled the lower two"
    assert given_as_tars.read(tmp_path, packed.engine.identity) == {tars[2]}
    known_as(packed, tmp_path, tars[:2], tars[0])
    packed.pull()
    assert packed.names() == [tars[0], gzips[1], tars[2]]


def test_they_are_where_the_rest_comes_packed_too(
    packed: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tars, gzips = [digest(tar) for tar in TARS], [digest(layer) for layer in GZIPS]
    known_as(packed, tmp_path, tars[:2], *tars[:2])
    packed.engine.troubles = [EngineRefused("odd")]
    packed.pull()
    assert packed.names() == [tars[0], tars[1], gzips[2]], "the second time"
    monkeypatch.setattr(disk_space, "judge", lambda *_: disk_space.LayerForm.PACKED)
    packed.pull()
    assert packed.names() == [tars[0], tars[1], gzips[2]]


def test_an_image_of_layers_that_all_came_as_tars_for_another_is_not_fetched(packed: Table, tmp_path: Path) -> None:
    tars = [digest(tar) for tar in TARS]
    known_as(packed, tmp_path, [*tars, "more"], *tars)
    packed.pull()
    assert packed.names() == tars
    config = json.loads(packed.ngc.manifests[packed.ngc.tags["nvidia/tensorflow"]["18.01-py2"]][1])["config"]["digest"]
    packed.engine.store = LayerStore(None, folder=tmp_path, chains={config: tuple(tars)})
    packed.engine.pulls.clear()
    packed.pull()
    assert packed.engine.pulls == [packed.image], "and one that is there whole is only named"
