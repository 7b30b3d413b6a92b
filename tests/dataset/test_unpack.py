from __future__ import annotations

import errno
import os
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngcdl.dataset.unpack import unpack
from ngcdl.errors import DatasetWrong, DiskFull

from . import small
from .host import files
from .small import FILES, FOLDER, Entry, honest


def attempt(home: Path, packed: bytes) -> Path:
    """Unpack into home/cache/cifar-10, with a file above it that must not change."""
    cache = home / "cache"
    cache.mkdir()
    (home / "precious").write_text("precious")
    (home / "packed.tar.gz").write_bytes(packed)
    unpack(home / "packed.tar.gz", small.archive_of(packed), cache / "cifar-10")
    return cache / "cifar-10"


def untouched(home: Path, packed: bytes) -> bool:
    return files(home) == {"precious": b"precious", "packed.tar.gz": packed} and not list((home / "cache").iterdir())


def replaced(name: str, **changes: object) -> list[Entry]:
    entries = honest()
    for entry in entries:
        if entry.name == f"{FOLDER}/{name}":
            for field, value in changes.items():
                setattr(entry, field, value)
    return entries


def path_max() -> list[Entry]:
    """The escape of CVE-2025-4517: links whose resolved path exceeds PATH_MAX, then one that steps out.

    Python 3.11.7's extractall(filter="data") then overwrites the file outside the folder.
    """
    entries, path, step = [], FOLDER, "d" * 247
    for letter in "abcdefghijklmnop":
        entries.append(Entry(f"{path}/{step}", type=tarfile.DIRTYPE))
        entries.append(Entry(f"{path}/{letter}", type=tarfile.SYMTYPE, link=step))
        path = f"{path}/{step}"
    short = "/".join("abcdefghijklmnop") + "/" + "l" * 254
    entries.append(Entry(f"{FOLDER}/{short}", type=tarfile.SYMTYPE, link="../" * 16))
    entries.append(Entry(f"{FOLDER}/escape", type=tarfile.SYMTYPE, link=f"{short}/../../precious"))
    return [*entries, Entry(f"{FOLDER}/escape", b"gone"), *honest()]


BATCH = FILES["data_batch_1.bin"]
HOSTILE = {
    "parent": [*honest(), Entry(f"{FOLDER}/../../precious", b"gone")],
    "absolute": [*honest(), Entry("/tmp/precious", b"gone")],
    "symlink": replaced("data_batch_1.bin", content=b"", type=tarfile.SYMTYPE, link="../../precious"),
    "symlinked folder": [Entry(FOLDER, type=tarfile.SYMTYPE, link=".."), *honest()[1:]],
    "hardlink": replaced("data_batch_1.bin", content=b"", type=tarfile.LNKTYPE, link="../../precious"),
    "device": replaced("data_batch_1.bin", content=b"", type=tarfile.CHRTYPE),
    "fifo": replaced("data_batch_1.bin", content=b"", type=tarfile.FIFOTYPE),
    "twice": [*honest(), Entry(f"{FOLDER}/data_batch_1.bin", BATCH)],
    "oversized": replaced("data_batch_1.bin", content=BATCH + b"x"),
    "short": replaced("data_batch_1.bin", content=BATCH[:-1]),
    "a text that is none": replaced("readme.html", content=b"x" * 70_000),
    "swelling": [Entry("x" * 200, b"\0" * 30_000_000), *honest()],
    "swelling headers": [Entry(FOLDER, type=tarfile.DIRTYPE, headers={"comment": "x" * 3_000_000}), *honest()],
    "extra": [*honest(), Entry(f"{FOLDER}/data_batch_6.bin", BATCH)],
    "missing": honest()[:-3],
    "sparse": replaced("readme.html", headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}),
    "path_max": path_max(),
    "nothing": [],
}


def test_an_honest_archive_becomes_a_folder(tmp_path: Path) -> None:
    folder = attempt(tmp_path, small.PACKED)
    assert files(folder) == {f"{FOLDER}/{name}": content for name, content in FILES.items()}
    assert [path.name for path in folder.parent.iterdir()] == ["cifar-10"]


def test_a_set_user_id_bit_is_not_taken_over(tmp_path: Path) -> None:
    folder = attempt(tmp_path, small.pack(replaced("test_batch.bin", mode=0o6777)))
    assert (folder / FOLDER / "test_batch.bin").stat().st_mode & 0o7111 == 0


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_and_nothing_changes(tmp_path: Path, name: str) -> None:
    packed = small.pack(HOSTILE[name])
    with pytest.raises(DatasetWrong):
        attempt(tmp_path, packed)
    assert untouched(tmp_path, packed)


def test_another_hash_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    (tmp_path / "packed").write_bytes(small.PACKED[:-1])
    with pytest.raises(DatasetWrong, match="sha256"):
        unpack(tmp_path / "packed", small.archive_of(small.PACKED), tmp_path / "into")
    assert not (tmp_path / "into").exists()


@pytest.mark.parametrize("cut", [0, 1, 10, 1000, len(small.PACKED) // 2, len(small.PACKED) - 1])
def test_half_an_archive_is_refused(tmp_path: Path, cut: int) -> None:
    packed = small.PACKED[:cut]
    with pytest.raises(DatasetWrong):
        attempt(tmp_path, packed)
    assert untouched(tmp_path, packed)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []

    def full(handle: int) -> None:
        synced.append(handle)
        if len(synced) == 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFull):
        attempt(tmp_path, small.PACKED)
    assert untouched(tmp_path, small.PACKED)


_PIECES = st.sampled_from([FOLDER, "..", ".", "", "/", "precious", "a", *FILES, "x" * 300, "é\n\x1b"])
_NAMES = st.one_of(
    st.lists(_PIECES, min_size=1, max_size=5).map("/".join),
    st.sampled_from([f"{FOLDER}/{name}" for name in FILES]),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20),
)
_TYPES = [
    tarfile.REGTYPE,
    tarfile.AREGTYPE,
    tarfile.CONTTYPE,
    tarfile.LNKTYPE,
    tarfile.SYMTYPE,
    tarfile.DIRTYPE,
    tarfile.FIFOTYPE,
    tarfile.CHRTYPE,
    tarfile.BLKTYPE,
    tarfile.GNUTYPE_SPARSE,
]
_CONTENTS = st.sampled_from([b"", b"x", BATCH, BATCH[:-1]])
_ENTRIES = st.builds(Entry, _NAMES, _CONTENTS, st.sampled_from(_TYPES), _NAMES, st.integers(0, 0o7777))
_LISTS = st.one_of(
    st.lists(_ENTRIES, max_size=8),
    st.tuples(st.permutations(honest()), st.lists(_ENTRIES, max_size=2)).map(lambda both: [*both[0], *both[1]]),
)


@settings(max_examples=200, deadline=None)
@given(_LISTS)
def test_whatever_an_archive_lists_no_file_lands_outside(entries: list[Entry]) -> None:
    packed = small.pack(entries)
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        try:
            folder = attempt(home, packed)
        except DatasetWrong:
            assert untouched(home, packed)
        else:
            inside = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
            assert inside == {FOLDER} | {f"{FOLDER}/{name}" for name in FILES}
            assert (home / "precious").read_text() == "precious"
            assert len(list(home.iterdir())) == 3


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=2000), st.integers(0, len(small.PACKED)))
def test_junk_is_refused_as_such(junk: bytes, at: int) -> None:
    packed = small.PACKED[:at] + junk
    with tempfile.TemporaryDirectory() as name:
        try:
            attempt(Path(name), packed)
        except DatasetWrong:
            assert untouched(Path(name), packed)
