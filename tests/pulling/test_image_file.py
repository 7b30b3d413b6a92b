"""An image in a file for another machine's docker load: whole, verified, resumed, the same bytes each time."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import signal
import tarfile
import time
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from ngc_server import SCHEMA_1, digest, reset, status
from pulling_engine import LAYERS, Table
from stand_ins import no_space

from ngcdl.engines.values import PullEvent
from ngcdl.errors import DigestMismatch, DiskFull, NgcdlError, NotWritten, RegistryAnswer, WrongPlatform
from ngcdl.pulling import disk_space, image_file
from ngcdl.spec import ImageRef


def save(table: Table, path: Path, architecture: str = "amd64") -> str:
    show, say = table.shown.append, table.said.append
    platform = "linux", architecture
    return image_file.Saving(table.image, path, None, table.folder, show, say, table.naps.append).save(platform)


def content(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {member.name: opened.read() for member in tar if (opened := tar.extractfile(member))}


def test_the_file_has_every_blob_under_its_digest_and_both_lists_of_contents(table: Table, tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    table.folder.mkdir()
    (table.folder / "sha256-ab.part").write_text("of a pull that was given up long ago")
    os.utime(table.folder / "sha256-ab.part", (1, 1))
    name = save(table, path)
    assert name == table.ngc.tags["nvidia/tensorflow"]["18.01-py2"]
    files = content(path)
    blobs = {member: body for member, body in files.items() if member.startswith("blobs/")}
    assert all(member == f"blobs/sha256/{hashlib.sha256(body).hexdigest()}" for member, body in blobs.items())
    assert sorted(files.keys() - blobs.keys()) == ["index.json", "manifest.json", "oci-layout"]
    ((older),) = json.loads(files["manifest.json"])
    assert older["RepoTags"] == [str(table.image)]
    assert [files[layer] for layer in older["Layers"]] == LAYERS
    assert json.loads(files[older["Config"]])["architecture"] == "amd64"
    (about,) = json.loads(files["index.json"])["manifests"]
    assert about["digest"] == name
    assert len(files[f"blobs/{name.replace(':', '/')}"]) == about["size"]
    assert table.left() == [], "the blobs are removed once the file is whole, and so are stale ones"
    layers = {digest(layer)[7:19] for layer in LAYERS}
    assert {event.layer for event in table.shown} == layers
    assert {event.layer for event in table.shown if event.status == "Pull complete"} == layers
    assert table.shown[: len(LAYERS)] == [
        PullEvent(digest(layer)[7:19], "Waiting", 0, len(layer)) for layer in LAYERS
    ], "the sizes of all are told before the first is fetched"


def test_the_same_image_gives_the_same_bytes(table: Table, tmp_path: Path) -> None:
    for name in ("a.tar", "b.tar"):
        save(table, tmp_path / name)
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_after_a_cut_the_next_try_fetches_only_the_rest(table: Table, tmp_path: Path) -> None:
    table.ngc.fail(f"/blobs/{digest(LAYERS[0])}", reset)
    with pytest.raises(NgcdlError):
        save(table, tmp_path / "image.tar")
    assert not (tmp_path / "image.tar").exists()
    assert digest(LAYERS[1]).replace(":", "-") in table.left()
    table.ngc.faults.clear()
    before = len(table.blobs())
    save(table, tmp_path / "image.tar")
    assert digest(LAYERS[1]) not in table.blobs()[before:]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["image.tar"]


def test_a_wait_that_the_registry_asks_of_every_connection_is_told_once(table: Table, tmp_path: Path) -> None:
    table.ngc.fail("/blobs/", status(429, Retry_After="45"), times=3)
    save(table, tmp_path / "image.tar")
    assert table.naps.count(45.0) == 3
    assert [line for line in table.said if "Waiting" in line] == [
        f"{table.ngc.host} is limiting the rate of requests. It asks to wait 45 s. Waiting 45 s."
    ]


def test_ctrl_c_ends_a_wait_of_minutes_that_the_registry_asks_for(table: Table, tmp_path: Path) -> None:
    table.ngc.fail("/blobs/", status(429, Retry_After="280"))

    def say(line: str) -> None:
        if "Waiting" in line:
            os.kill(os.getpid(), signal.SIGINT)

    began = time.monotonic()
    saving = image_file.Saving(table.image, tmp_path / "image.tar", None, table.folder, table.shown.append, say)
    with pytest.raises(KeyboardInterrupt):
        saving.save(("linux", "amd64"))
    assert time.monotonic() - began < 240


def test_a_layer_that_is_not_its_digest_makes_no_file(table: Table, tmp_path: Path) -> None:
    table.ngc.blobs[digest(LAYERS[2])] = b"pot"
    with pytest.raises(DigestMismatch):
        save(table, tmp_path / "image.tar")
    assert [path for path in tmp_path.iterdir() if path.is_file()] == []


def test_what_is_there_already_is_left_alone_and_nothing_is_asked(table: Table, tmp_path: Path) -> None:
    (tmp_path / "image.tar").write_text("mine")
    with pytest.raises(NotWritten, match="it is there already"):
        save(table, tmp_path / "image.tar")
    assert (tmp_path / "image.tar").read_text() == "mine"
    assert table.ngc.seen == []


def test_a_folder_that_is_not_there_is_named(table: Table, tmp_path: Path) -> None:
    with pytest.raises(NotWritten, match=r"none/image.tar can't be written: No such file"):
        save(table, tmp_path / "none/image.tar")
    assert table.ngc.seen == [], "nothing was asked, let alone fetched"


def test_a_blob_that_was_damaged_while_it_was_kept_makes_no_file_and_is_fetched_anew(
    table: Table, tmp_path: Path
) -> None:
    table.folder.mkdir()
    kept = table.folder / digest(LAYERS[0]).replace(":", "-")
    kept.write_bytes(bytes(len(LAYERS[0])))  # zeros, as after a power cut
    with pytest.raises(DigestMismatch, match="damaged"):
        save(table, tmp_path / "image.tar")
    assert not (tmp_path / "image.tar").exists()
    save(table, tmp_path / "image.tar")
    assert content(tmp_path / "image.tar")[f"blobs/{digest(LAYERS[0]).replace(':', '/')}"] == LAYERS[0]


def test_the_draft_of_a_process_that_was_killed_is_removed_and_that_of_a_living_one_is_not(
    table: Table, tmp_path: Path
) -> None:
    dead, alive = (tmp_path / f".ngcdl-{zlib.crc32(b'image.tar'):08x}{word}" for word in ("dead", "alive"))
    dead.write_bytes(b"half")
    with alive.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        save(table, tmp_path / "image.tar")
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {"image.tar", alive.name}


def test_what_appeared_under_that_name_meanwhile_is_left_alone(table: Table, tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    table.ngc.fail("/manifests/", lambda handler: path.write_text("mine") and handler.send(503, b""), times=1)
    with pytest.raises(NotWritten, match="File exists"):
        save(table, path)
    assert path.read_text() == "mine"


def test_a_file_system_without_hard_links_gets_the_file_too(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_links)  # as on a USB stick's exFAT
    save(table, tmp_path / "image.tar")
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {"image.tar"}


@pytest.mark.parametrize(
    ("name", "loaded"),
    [
        ("pytorch:25.03-py3", "nvcr.io/nvidia/pytorch:25.03-py3"),
        (f"pytorch:25.03-py3@sha256:{'ab' * 32}", "nvcr.io/nvidia/pytorch:25.03-py3"),
        (f"pytorch@sha256:{'ab' * 32}", "nvcr.io/nvidia/pytorch:sha256-abababababab"),
    ],
)
def test_an_engine_gets_a_name_that_it_takes(name: str, loaded: str) -> None:
    assert image_file.loaded_name(ImageRef.parse(name)) == loaded
    assert str(ImageRef.parse(loaded)) == loaded


def test_without_room_nothing_is_fetched(table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sum(map(len, LAYERS))
    monkeypatch.setattr(disk_space, "file_system_of", lambda *_, **__: disk_space.Room(1, 2 * whole - 1))
    with pytest.raises(DiskFull, match="are free"):
        save(table, tmp_path / "image.tar")
    assert table.blobs() == []


def test_a_cache_that_fills_up_or_can_t_be_made_is_told_with_what_helps(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotWritten, match=r"file/blobs can't be written: Not a directory") as told:
        save(replace(table, folder=tmp_path / "file/blobs"), tmp_path / "image.tar")
    assert told.value.commands == ["export XDG_CACHE_HOME=DIR"]

    monkeypatch.setattr(os, "pwrite", no_space)
    with pytest.raises(DiskFull, match=f"No space left in {table.folder}"):
        save(table, tmp_path / "image.tar")


def test_of_several_platforms_the_named_one_is_taken(table: Table, tmp_path: Path) -> None:
    name = table.offer_for("arm64")
    assert save(table, tmp_path / "arm.tar", "arm64") == name
    with pytest.raises(WrongPlatform, match="linux/arm64"):
        save(table, tmp_path / "amd.tar")


def test_an_image_of_before_2017_is_refused(table: Table, tmp_path: Path) -> None:
    body = json.dumps({
        "schemaVersion": 1, "architecture": "amd64", "fsLayers": [], "history": [{"v1Compatibility": "{}"}],
    }).encode()  # fmt: skip
    table.ngc.manifests[digest(body)] = (SCHEMA_1, body)
    table.ngc.tags["nvidia/tensorflow"]["18.01-py2"] = digest(body)
    with pytest.raises(RegistryAnswer, match="schema 1"):
        save(table, tmp_path / "image.tar")


@pytest.mark.parametrize("size", [(8 << 20) + 1, -1, None])
def test_a_configuration_of_no_size_or_a_huge_one_is_refused_as_at_a_pull(
    table: Table, tmp_path: Path, size: int | None
) -> None:
    ((kind, body),) = table.ngc.manifests.values()
    tree = json.loads(body)
    tree["config"]["size"] = size
    body = json.dumps(tree).encode()
    table.ngc.manifests[digest(body)] = (kind, body)
    table.ngc.tags["nvidia/tensorflow"]["18.01-py2"] = digest(body)
    for fetch in (table.pull, lambda: save(table, tmp_path / "image.tar")):
        with pytest.raises(RegistryAnswer, match="a configuration of no size, or of a huge one"):
            fetch()
