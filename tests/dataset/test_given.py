from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from ngcdl.errors import DatasetWrong, Several

from . import small
from .host import Host, files, whole
from .small import FILES, FOLDER, NAMES

PICKLED = "cifar-10-batches-py"


def pickled(into: Path) -> Path:
    folder = into / PICKLED
    folder.mkdir(parents=True)
    for name in NAMES:
        rows = np.frombuffer(FILES[name], np.uint8).reshape(-1, 3073)
        batch = {"data": rows[:, 1:].copy(), "labels": rows[:, 0].tolist(), "filenames": ["a.png"] * len(rows)}
        (folder / name.removesuffix(".bin")).write_bytes(pickle.dumps(batch, protocol=2))
    return folder


def test_a_folder_with_the_binary_form_is_taken_as_it_is(host: Host, tmp_path: Path) -> None:
    small.unpacked(tmp_path / "mine")
    dataset = host.prepare(str(tmp_path / "mine"))
    assert (dataset.kind, dataset.folder) == ("cifar10", tmp_path / "mine")
    assert dataset.sha256 == small.TRAINING_SHA256
    assert dataset.note == "the official files, bit for bit"
    assert not host.cache.exists()


def test_other_bytes_with_good_sizes_and_labels_are_taken_and_said(host: Host, tmp_path: Path) -> None:
    path = small.unpacked(tmp_path / "mine") / "data_batch_2.bin"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    dataset = host.prepare(str(tmp_path / "mine"))
    assert dataset.sha256 != small.TRAINING_SHA256
    assert "not identical to the official files (other bytes: data_batch_2.bin)" in (dataset.note or "")


@pytest.mark.parametrize("name", [FOLDER, "any name"])
def test_of_the_batches_own_folder_only_the_batches_are_mounted(host: Host, tmp_path: Path, name: str) -> None:
    small.unpacked(tmp_path / "home").rename(tmp_path / "home" / name) if name != FOLDER else small.unpacked(
        tmp_path / "home"
    )
    (tmp_path / "home" / "secret").write_text("secret")
    for _ in range(2):
        folder = host.prepare(str(tmp_path / "home" / name)).folder
        assert folder is not None
        assert folder.parent == host.cache
        assert files(folder) == {f"{FOLDER}/{name}": FILES[name] for name in NAMES}


def test_links_to_elsewhere_are_resolved_before_a_container_sees_them(host: Host, tmp_path: Path) -> None:
    small.unpacked(tmp_path / "real")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / FOLDER).symlink_to(tmp_path / "real" / FOLDER)
    folder = host.prepare(str(tmp_path / "mine")).folder
    assert folder is not None
    assert not any(path.is_symlink() for path in folder.rglob("*"))
    assert set(files(folder)) == {f"{FOLDER}/{name}" for name in NAMES}


def test_where_no_hard_link_can_be_made_the_files_are_copied(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: object, target: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    mine = small.unpacked(tmp_path)
    for _ in range(2):
        folder = host.prepare(str(mine)).folder
        assert folder is not None
        assert (folder / FOLDER / NAMES[0]).read_bytes() == FILES[NAMES[0]]
        assert (folder / FOLDER / NAMES[0]).stat().st_ino != (mine / NAMES[0]).stat().st_ino


def test_what_a_killed_ngcdl_left_half_done_is_never_written_through_to_a_file_of_the_user_s(
    host: Host, tmp_path: Path
) -> None:
    mine = small.unpacked(tmp_path / "mine")
    placed = host.prepare(str(mine)).folder
    assert placed
    other, name = tmp_path / "another-set.bin", NAMES[0]
    other.write_bytes(b"mine, too")
    (placed / FOLDER / name).unlink()
    os.link(other, placed / FOLDER / f".{name}.{os.getpid()}")  # by a process that had the same PID
    host.prepare(str(mine))
    assert (placed / FOLDER / name).read_bytes() == FILES[name]
    assert other.read_bytes() == b"mine, too"


def test_the_pickled_form_is_taken(host: Host, tmp_path: Path) -> None:
    pickled(tmp_path / "mine")
    dataset = host.prepare(str(tmp_path / "mine"))
    assert dataset.folder == tmp_path / "mine"
    assert "sizes and labels are right" in (dataset.note or "")
    inner = host.prepare(str(tmp_path / "mine" / PICKLED))
    assert inner.sha256 == dataset.sha256
    assert inner.folder is not None
    assert (inner.folder / PICKLED / "test_batch").is_file()


def test_the_official_archive_in_a_folder_is_unpacked_into_the_cache(host: Host, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    packed = tmp_path / "mine" / "cifar-10-binary.tar.gz"
    packed.write_bytes(small.PACKED)
    for choice in (packed.parent, packed):
        dataset = host.prepare(str(choice))
        assert whole(dataset)
        assert dataset.folder == host.cache / "cifar-10"
    assert host.prepare("auto") == dataset


def test_another_archive_is_refused(host: Host, tmp_path: Path) -> None:
    packed = tmp_path / "cifar-10-binary.tar.gz"
    packed.write_bytes(small.PACKED[:1000])
    with pytest.raises(DatasetWrong, match="not the official one") as caught:
        host.prepare(str(tmp_path))
    assert str(packed) in str(caught.value)


def _flip_label(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[3073 * 4] = 10
    path.write_bytes(content)


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda path: path.unlink(), "it is missing"),
        (lambda path: path.write_bytes(b"x" * 10), "10 bytes instead of 30730"),
        (lambda path: path.write_bytes(b""), "0 bytes instead of 30730"),
        (_flip_label, "record 4 has the label 10"),
        (_fifo, "not a file"),
    ],
    ids=["missing", "short", "empty", "label", "fifo"],
)
@pytest.mark.parametrize("name", ["data_batch_4.bin", "test_batch.bin"])
def test_a_wrong_file_is_named(host: Host, tmp_path: Path, name: str, harm: object, words: str) -> None:
    assert callable(harm)
    harm(small.unpacked(tmp_path / "mine") / name)
    for choice in (tmp_path / "mine", tmp_path / "mine" / FOLDER):
        with pytest.raises(DatasetWrong, match=words) as caught:
            host.prepare(str(choice))
        assert name in str(caught.value)


def test_all_wrong_files_are_named_at_once(host: Host, tmp_path: Path) -> None:
    folder = small.unpacked(tmp_path / "mine")
    (folder / "data_batch_2.bin").unlink()
    (folder / "test_batch.bin").write_bytes(b"x")
    with pytest.raises(Several) as caught:
        host.prepare(str(tmp_path / "mine"))
    assert caught.value.message == (
        f"{folder}/data_batch_2.bin is not CIFAR-10: it is missing. "
        f"{folder}/test_batch.bin is not CIFAR-10: it has 1 bytes instead of 30730."
    )
    assert caught.value.hint.count("--data takes a folder") == 1


def test_a_folder_of_other_things_is_refused_with_what_it_holds(host: Host, tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("1,2")
    with pytest.raises(DatasetWrong, match=r"it holds train\.csv, but no batches and no cifar-10-binary\.tar\.gz"):
        host.prepare(str(tmp_path))
    with pytest.raises(DatasetWrong, match="there is no such folder"):
        host.prepare(str(tmp_path / "gone"))


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch /tmp/never",)


def _data(name: str = NAMES[0]) -> np.ndarray:
    return np.frombuffer(FILES[name], np.uint8).reshape(-1, 3073)[:, 1:].copy()


@pytest.mark.parametrize(
    ("batch", "protocol", "words"),
    [
        ({"data": _data(), "labels": Evil()}, 2, "could run code"),
        ({"data": _data(), "labels": Evil()}, 4, "could run code"),
        ({"data": _data(), "labels": Evil()}, 0, "could run code"),
        ({"data": _data(), "labels": [0] * 9}, 2, "9 labels instead of 10"),
        ({"data": _data(), "labels": [0] * 9 + [10]}, 2, "the label 10"),
        ({"data": _data()[1:], "labels": [0] * 10}, 2, "no array of 10 images"),
        ({"labels": [0] * 10}, 2, "no array of 10 images"),
    ],
)
def test_a_pickle_that_is_no_batch_is_refused_without_running_it(
    host: Host, tmp_path: Path, batch: object, protocol: int, words: str
) -> None:
    (pickled(tmp_path) / "data_batch_5").write_bytes(pickle.dumps(batch, protocol=protocol))
    with pytest.raises(DatasetWrong, match=words) as caught:
        host.prepare(str(tmp_path))
    assert "data_batch_5" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\x80", b"not a pickle at all", b"\x80\x02}q\x01"])
def test_a_file_that_is_no_pickle_is_refused(host: Host, tmp_path: Path, content: bytes) -> None:
    (pickled(tmp_path) / "test_batch").write_bytes(content)
    with pytest.raises(DatasetWrong, match="test_batch"):
        host.prepare(str(tmp_path))
