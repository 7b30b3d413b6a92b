"""Layers on their way to an engine: what it is fed, what it pulls by itself and why, and what is taken away after."""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import http.client
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeEngine, FakeJob

sys.path.append(str(Path(__file__).parent / "registry"))

from ngc_server import KEY, SCHEMA_1, V2, Handler, NgcServer, digest, serving, status

from ngcdl import fetch
from ngcdl.engines.base import LayerStore, PullEvent, Show
from ngcdl.errors import (
    BadOption,
    BlobMissing,
    DigestMismatch,
    DiskFull,
    EngineLost,
    EngineRefused,
    LoginNeeded,
    NgcdlError,
    RegistryAnswer,
    RegistryUnreachable,
)
from ngcdl.feed import Feed
from ngcdl.registry import handed, room
from ngcdl.registry.key import Credential, Secret
from ngcdl.registry.relay import is_relays
from ngcdl.spec import ImageRef

LAYERS = [b"lowest" * 40_000, b"middle" * 20_000, b"top"]
GZIP = "application/vnd.docker.image.rootfs.diff.tar.gzip"
TARS = LAYERS
GZIPS = [gzip.compress(tar) for tar in TARS]
CONTENTS = [f"sha256:{hashlib.sha256(b'unpacked' + layer).hexdigest()}" for layer in LAYERS]


@dataclass
class PullingEngine(FakeEngine):
    """Fetches what it is told to pull from a relay, over HTTP as an engine does, and believes the rest."""

    job: Any = field(default_factory=FakeJob)
    store: LayerStore = field(default_factory=lambda: LayerStore(None))
    troubles: list[NgcdlError] = field(default_factory=list)  # of its pulls from a relay, one each
    asks_first: bool = True
    pulls: list[ImageRef] = field(default_factory=list)
    untagged: list[ImageRef] = field(default_factory=list)
    layers: list[bytes] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def layer_store(self) -> LayerStore:
        return self.store

    def untag(self, image: ImageRef) -> None:
        self.untagged.append(image)

    def pull(self, image: ImageRef, show: Show, auth: Mapping[str, str] | None = None) -> str:
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
        connection = http.client.HTTPConnection(image.registry, timeout=20)
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
    """Somebody at an engine, with a registry that has one image."""

    ngc: NgcServer
    engine: PullingEngine
    folder: Path
    said: list[str] = field(default_factory=list)
    shown: list[PullEvent] = field(default_factory=list)
    credential: Credential | None = None

    @property
    def image(self) -> ImageRef:
        return ImageRef(self.ngc.host, "nvidia/tensorflow", "18.01-py2")

    def pull(self) -> None:
        with Feed(self.engine, self.image, self.credential, self.folder, self.shown.append, self.said.append) as feed:
            feed.bring()
            self.engine.pull(self.image, self.shown.append)
            feed.tidy()

    def names(self) -> list[str]:
        """By which digests the engine asked for layers, in its last pull from a relay."""
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


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    monkeypatch.delenv("NGCDL_PULL", raising=False)
    ngc = NgcServer()
    put_image(ngc)
    with serving(ngc):
        yield Table(ngc, PullingEngine(), tmp_path / "blobs")


def test_the_engine_gets_the_layers_from_here_and_then_pulls_the_real_name(table: Table) -> None:
    table.pull()
    assert table.engine.layers == LAYERS
    relay, real = table.engine.pulls
    assert (is_relays(relay), real) == (True, table.image)
    assert relay.digest == table.ngc.tags["nvidia/tensorflow"]["18.01-py2"]
    assert table.engine.untagged == [relay]
    assert (table.left(), table.said) == ([], [])
    assert sorted(table.blobs()[1:]) == sorted(digest(layer) for layer in LAYERS)


def test_the_key_is_not_sent_to_the_relay(table: Table) -> None:
    table.ngc.public, table.ngc.gated = set(), {"nvidia/tensorflow"}
    table.credential = Credential("$oauthtoken", Secret(KEY), "a test")
    table.pull()
    assert table.engine.layers == LAYERS
    assert table.engine.auths == [None, None]


def test_every_layer_is_shown_with_its_bytes_and_no_line_of_the_relay_is(table: Table) -> None:
    table.pull()
    for layer in LAYERS:
        events = [one for one in table.shown if one.layer == digest(layer)[7:19]]
        assert {one.status for one in events} >= {"Downloading", "Download complete", "Pull complete"}
        assert {one.total_bytes for one in events if one.status == "Downloading"} == {len(layer)}
    assert [one for one in table.shown if one.layer is None] == []


def test_a_configuration_that_was_damaged_here_is_fetched_once_more(table: Table) -> None:
    name = json.loads(next(iter(table.ngc.manifests.values()))[1])["config"]["digest"]
    config = table.ngc.blobs[name]
    table.folder.mkdir()
    (table.folder / name.replace(":", "-")).write_bytes(b"\0" * len(config))  # as after a power cut
    table.pull()
    assert table.blobs().count(name) == 1
    assert table.engine.layers == list(LAYERS)


def test_a_configuration_that_is_none_is_told(table: Table) -> None:
    ngc, text = table.ngc, b"[1]"
    body = json.dumps({
        "schemaVersion": 2, "mediaType": V2, "layers": [], "config": {"digest": digest(text), "size": len(text)},
    }).encode()  # fmt: skip
    ngc.blobs[digest(text)], ngc.manifests[digest(body)] = text, (V2, body)
    ngc.tags["nvidia/tensorflow"] = {"18.01-py2": digest(body)}
    with pytest.raises(RegistryAnswer, match="a configuration that can't be read"):
        table.pull()


def test_a_disk_that_is_full_where_names_are_kept_leaves_the_pull_to_the_engine(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwrite", full)
    table.pull()
    assert any("The engine pulls by itself" in line for line in table.said)


def full(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_only_layers_that_the_engine_lacks_are_fetched_ahead(table: Table) -> None:
    table.engine.store = LayerStore(None, chains={"1": (CONTENTS[0], "another"), "2": tuple(CONTENTS[:2])})
    table.engine.troubles = [EngineRefused("the engine wants no layer in this test")] * 2
    table.pull()
    assert set(table.blobs()[1:]) <= {digest(LAYERS[2])}


def test_an_engine_that_has_all_layers_is_fed_nothing(table: Table) -> None:
    table.engine.store = LayerStore(None, chains={"1": tuple(CONTENTS)})
    table.pull()
    assert table.engine.pulls == [table.image]
    assert table.left() == []


@pytest.mark.parametrize(("prepare", "why"), [
    (lambda table: setattr(table.engine, "store", LayerStore("the engine is podman")), "the engine is podman"),
    (lambda table: table.ngc.fail("/manifests/", status(500)), "from here 127.0.0.1"),
    (lambda table: table.ngc.fail("/manifests/", lambda handler: handler.send(
        200, {"schemaVersion": 1, "history": [{"v1Compatibility": "{}"}]}, Content_Type=SCHEMA_1)), "schema 1"),
    (lambda table: table.folder.write_text("no folder"), "can't be kept in"),
    (lambda table: (setattr(table.engine, "asks_first", False),
                    table.engine.troubles.append(RegistryUnreachable("127.0.0.1:1", "refused"))), "can't take"),
    (lambda table: table.engine.troubles.extend([EngineRefused("odd"), EngineRefused("odd")]), "can't take"),
    (lambda table: table.engine.troubles.append(DigestMismatch("a layer")), "can't take"),
], ids=["podman", "500", "schema-1", "folder", "unreachable", "refused", "damaged"])  # fmt: skip
def test_where_the_relay_can_t_help_the_engine_pulls_by_itself_and_why_is_said(
    table: Table, prepare: Callable[[Table], object], why: str
) -> None:
    prepare(table)
    table.pull()
    assert table.engine.pulls[-1] == table.image
    (line,) = table.said
    assert line.startswith("The engine pulls by itself: ")
    assert why in line


def test_what_the_engine_refuses_once_it_may_take_the_second_time(table: Table) -> None:
    table.engine.troubles = [EngineRefused("the transfer of another pull broke off")]
    table.pull()
    assert (table.engine.layers, table.said) == (LAYERS, [])


@pytest.mark.parametrize("error", [EngineLost("the pull"), DiskFull("/var/lib/docker", "full")])
def test_an_engine_in_trouble_is_not_asked_to_pull_by_itself(table: Table, error: NgcdlError) -> None:
    table.engine.troubles = [error]
    with pytest.raises(type(error)):
        table.pull()
    assert len(table.engine.pulls) == 1


def test_a_layer_that_is_not_there_ends_the_pull_and_the_others_are_kept(table: Table) -> None:
    def missing(handler: Handler) -> None:
        handler.send(404, {"errors": [{"code": "BLOB_UNKNOWN"}]})

    table.ngc.fail(f"/blobs/{digest(LAYERS[2])}", missing)
    with pytest.raises(BlobMissing):
        table.pull()
    assert digest(LAYERS[2]).replace(":", "-") not in "".join(table.left())
    table.ngc.faults.clear()
    table.ngc.seen.clear()
    table.pull()
    assert table.engine.layers[-3:] == LAYERS
    assert table.left() == []


def test_an_image_that_can_t_fit_is_refused_before_a_layer_is_fetched(table: Table, tmp_path: Path) -> None:
    put_image(table.ngc, {0: 1 << 60})
    table.engine.store = LayerStore(None, folder=tmp_path)
    with pytest.raises(DiskFull, match=rf"{tmp_path}.* needs 1152921504\.61 GB there at the very least"):
        table.pull()
    assert len(set(table.blobs())) == 1, "only the configuration was fetched"


# -- tars -----------------------------------------------------------------------------------------------------------


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
    monkeypatch.setattr(room, "judge", lambda *_: room.Verdict.PACKED)
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
    """The engine has another image, of `contents`; those layers it got as tars."""
    table.engine.store = LayerStore(None, folder=tmp_path, chains={"another": tuple(contents)})
    for content in handed_contents:
        handed.add(tmp_path, table.engine.identity, content)


def test_layers_are_asked_for_by_the_names_that_the_engine_knows_them_by(packed: Table, tmp_path: Path) -> None:
    tars, gzips = [digest(tar) for tar in TARS], [digest(layer) for layer in GZIPS]
    known_as(packed, tmp_path, tars[:2])
    packed.pull()
    assert packed.names() == [gzips[0], gzips[1], tars[2]], "somebody else has pulled the lower two"
    assert handed.read(tmp_path, packed.engine.identity) == {tars[2]}
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
    monkeypatch.setattr(room, "judge", lambda *_: room.Verdict.PACKED)
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


# -- what ends a pull -----------------------------------------------------------------------------------------------


def test_another_way_than_the_two_is_no_way(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGCDL_PULL", "teleport")
    with pytest.raises(BadOption, match="one of relay, engine"):
        table.pull()


def test_what_the_registry_refuses_ends_a_pull_before_the_engine_is_asked(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("NGC_API_KEY", "NGC_CLI_API_KEY", "DOCKER_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    table.ngc.public, table.ngc.gated = set(), {"nvidia/tensorflow"}
    with pytest.raises(LoginNeeded):
        fetch.image(table.engine, table.image, table.shown.append, table.said.append)
    assert table.engine.pulls == []
