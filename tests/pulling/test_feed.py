"""Layers on their way to an engine: what the relay offers, what the engine pulls itself and why, what is removed."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from house import until
from ngc_server import KEY, SCHEMA_1, V2, Handler, digest, reset, status
from pulling_engine import CONTENTS, LAYERS, Table, put_image
from stand_ins import no_space

from ngcdl.engines.values import LayerStore, PullEvent
from ngcdl.errors import (
    BadOption,
    BlobMissing,
    DigestMismatch,
    DiskFull,
    EngineLost,
    EngineRefused,
    LoginNeeded,
    NgcdlError,
    RateLimited,
    RealmRefused,
    RegistryAnswer,
    RegistryUnreachable,
)
from ngcdl.pulling import disk_space, fetch
from ngcdl.pulling.pull_lock import PullLock
from ngcdl.pulling.relay import is_relays
from ngcdl.registry.key import Credential, Secret


def test_the_engine_gets_the_layers_from_here_and_then_pulls_the_real_name(table: Table) -> None:
    table.pull()
    assert table.engine.layers == LAYERS
    relay, real = table.engine.pulls
    assert (is_relays(relay), real) == (True, table.image)
    assert relay.digest == table.ngc.tags["nvidia/tensorflow"]["18.01-py2"]
    assert table.engine.untagged == [relay]
    assert (table.left(), table.said) == ([], [])
    assert sorted(table.blobs()[1:]) == sorted(digest(layer) for layer in LAYERS)


def test_of_an_image_for_several_platforms_each_document_is_fetched_once(table: Table) -> None:
    name = table.offer_for("amd64")
    table.pull()
    assert table.engine.layers == LAYERS
    asked = [Path(seen.path).name for seen in table.ngc.seen if "/manifests/" in seen.path and seen.authorization]
    assert asked == ["18.01-py2", name]


def test_the_key_is_not_sent_to_the_relay(table: Table) -> None:
    table.ngc.gated = {"nvidia/tensorflow"}
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


def test_the_sizes_of_all_layers_are_told_before_the_first_is_fetched(table: Table) -> None:
    table.pull()
    assert table.shown[: len(LAYERS)] == [
        PullEvent(digest(layer)[7:19], "Waiting", 0, len(layer)) for layer in LAYERS
    ]  # fmt: skip


def test_while_another_ngcdl_pulls_a_layer_of_which_nothing_came_has_no_size_as_it_may_never_be_fetched(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ngcdl.pulling.feed._LOOK_SECONDS", 0.001)
    table.folder.mkdir()
    (table.folder / f"{digest(LAYERS[0]).replace(':', '-')}.part").write_bytes(b"low")
    with PullLock(table.folder, next(iter(table.ngc.manifests)), table.engine.identity) as another:
        assert another.take()
        worker = threading.Thread(target=table.pull)
        worker.start()
        until(lambda: len(table.shown) >= len(LAYERS), "a look at its progress")
        table.engine.store = LayerStore(None, chains={"1": tuple(CONTENTS)})
    worker.join(240)
    assert table.engine.pulls == [table.image], "the engine has the layers now"
    begun, *others = LAYERS
    assert table.shown[: len(LAYERS)] == [
        PullEvent(digest(begun)[7:19], "Downloading", 3, len(begun)),
        *[PullEvent(digest(layer)[7:19], "Waiting") for layer in others],
    ]


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
    monkeypatch.setattr(os, "pwrite", no_space)
    with table.feed() as feed:
        feed.bring()
        assert any("The engine pulls by itself" in line for line in table.said)
        assert [name for name in table.left() if name.startswith("sha256")] == [], "it may need the space"


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
    (lambda table: table.ngc.fail("/blobs/", status(503)), "from here 127.0.0.1"),
    (lambda table: table.ngc.fail("/blobs/", reset), "from here 127.0.0.1"),
    (lambda table: table.ngc.fail("/blobs/", status(429)), "from here 127.0.0.1"),
    (lambda table: table.folder.write_text("no folder"), "can't be kept in"),
    (lambda table: (setattr(table.engine, "asks_first", False),
                    table.engine.troubles.append(RegistryUnreachable("127.0.0.1:1", "refused"))), "can't take"),
    (lambda table: table.engine.troubles.extend([EngineRefused("odd"), EngineRefused("odd")]), "can't take"),
    (lambda table: table.engine.troubles.append(DigestMismatch("a layer")), "can't take"),
], ids=["podman", "500", "schema-1", "503", "cut", "429", "folder", "unreachable", "refused", "damaged"])  # fmt: skip
def test_where_the_relay_can_t_help_the_engine_pulls_by_itself_and_why_is_said(
    table: Table, prepare: Callable[[Table], object], why: str
) -> None:
    prepare(table)
    table.pull()
    assert table.engine.pulls[-1] == table.image
    (line,) = table.said
    assert line.startswith("The engine pulls by itself: ")
    assert why in line


def test_where_layers_in_transit_have_no_room_those_of_an_earlier_pull_make_room_for_the_engine_s_own(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.folder.mkdir()
    (table.folder / f"{digest(LAYERS[0])}.part".replace(":", "-")).write_bytes(LAYERS[0][:1000])
    monkeypatch.setattr(disk_space, "judge", lambda *_: disk_space.LayerForm.NOT_HERE)
    with table.feed() as feed:
        feed.bring()
        assert [name for name in table.left() if name.startswith("sha256")] == []
        assert "no room" in table.said[-1]
    assert table.engine.pulls == []


def test_a_large_pull_is_announced_once_before_its_first_layer(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_space, "_LARGE_BYTES", 1)
    table.engine.troubles = [EngineRefused("the transfer of another pull broke off")]  # a second try says nothing new
    table.pull()
    (line,) = [line for line in table.said if "to fetch" in line]
    assert line.startswith(f"{table.image}: 351.6 KiB to fetch, about 878.9 KiB on disk")
    assert line == table.said[0]


def test_a_wait_that_the_registry_asks_for_is_told_once(table: Table) -> None:
    table.ngc.fail("/blobs/", status(429, Retry_After="45"), times=1)
    table.pull()
    assert 45.0 in table.naps
    assert table.said == [f"{table.ngc.host} is limiting the rate of requests. It asks to wait 45 s. Waiting 45 s."]
    assert table.engine.layers == LAYERS


@pytest.mark.parametrize("path", ["proxy_auth", "/manifests/"])
def test_the_wait_that_it_asks_for_before_the_first_layer_is_waited_for_too(table: Table, path: str) -> None:
    table.ngc.fail(path, status(429, Retry_After="100"), times=1)
    table.pull()
    assert table.naps == [100.0]
    assert table.said == [f"{table.ngc.host} is limiting the rate of requests. It asks to wait 100 s. Waiting 100 s."]
    assert table.engine.layers == LAYERS


def test_a_wait_for_longer_than_anyone_waits_is_not_begun(table: Table) -> None:
    table.ngc.fail("/manifests/", status(429, Retry_After="900"))
    table.pull()
    assert table.naps == []
    assert "It asks to wait 900 s" in table.said[0]


def test_connections_that_wait_at_the_same_time_tell_it_once(table: Table) -> None:
    with table.feed() as feed:
        for _ in range(6):
            feed.patient(RateLimited("nvcr.io", 400.0), 300.0)
    assert table.said == ["nvcr.io is limiting the rate of requests. It asks to wait 400 s. Waiting 300 s."]


def test_what_the_engine_refuses_once_it_may_take_the_second_time(table: Table) -> None:
    table.engine.troubles = [EngineRefused("the transfer of another pull broke off")]
    table.pull()
    assert (table.engine.layers, table.said) == (LAYERS, [])


@pytest.mark.parametrize("error", [EngineLost("was pulling the image"), DiskFull("/var/lib/docker", "full")])
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
    with pytest.raises(DiskFull, match=rf"{tmp_path}.* needs 1073741824\.0 GiB there at least, and about 2684354560"):
        table.pull()
    assert len(set(table.blobs())) == 1, "only the configuration was fetched"


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
    table.ngc.gated = {"nvidia/tensorflow"}
    with pytest.raises(LoginNeeded):
        fetch.image(table.engine, table.image, table.shown.append, table.said.append)
    assert table.engine.pulls == []


def test_a_key_that_must_not_go_where_a_registry_says_is_not_handed_to_the_engine_either(table: Table) -> None:
    table.ngc.realm = "http://elsewhere.example/token"
    table.credential = Credential("$oauthtoken", Secret(KEY), "a test")
    with pytest.raises(RealmRefused, match=r"http://elsewhere\.example/token, where ngcdl does not go"):
        table.pull()
    assert table.engine.pulls == []
