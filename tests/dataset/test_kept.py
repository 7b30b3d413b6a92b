from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from ngcdl.dataset.kept import CachedArchive
from ngcdl.dataset.unpack import unpack

from . import small


@dataclass
class Calendar:
    t: float = 1e9

    def __call__(self) -> float:
        return self.t


@pytest.fixture
def calendar() -> Calendar:
    return Calendar()


@pytest.fixture
def kept(tmp_path: Path, calendar: Calendar) -> CachedArchive:
    (tmp_path / "packed").write_bytes(small.PACKED)
    kept = CachedArchive(tmp_path / "cache", small.archive_of(small.PACKED), calendar)
    unpack(tmp_path / "packed", kept.archive, kept.folder)
    return kept


def test_without_a_stamp_there_is_nothing(kept: CachedArchive) -> None:
    assert kept.check() == (None, None)


def test_a_stamped_set_is_whole(kept: CachedArchive) -> None:
    assert kept.stamp() == small.TRAINING_SHA256
    assert kept.check() == (small.TRAINING_SHA256, None)


def test_new_dates_alone_are_no_damage_and_are_stamped(kept: CachedArchive) -> None:
    kept.stamp()
    stamp = kept.cache / "cifar-10.json"
    before = stamp.read_text()
    os.utime(kept.folder / small.FOLDER / "test_batch.bin")
    assert kept.check() == (small.TRAINING_SHA256, None)
    after = stamp.read_text()
    assert before != after
    assert kept.check() == (small.TRAINING_SHA256, None)
    assert stamp.read_text() == after


def test_after_a_day_every_byte_is_read_again(kept: CachedArchive, calendar: Calendar) -> None:
    kept.stamp()
    path = kept.cache / "cifar-10.json"
    stamp = json.loads(path.read_text())
    stamp["files"]["data_batch_1.bin"]["sha256"] = "0" * 64  # stands for bit rot with unchanged dates
    path.write_text(json.dumps(stamp))
    assert kept.check() == (small.TRAINING_SHA256, None)
    calendar.t += 25 * 3600
    assert kept.check() == (None, "data_batch_1.bin has changed since it was unpacked")


def test_a_missing_file_is_damage(kept: CachedArchive) -> None:
    kept.stamp()
    (kept.folder / small.FOLDER / "readme.html").unlink()
    training, damage = kept.check()
    assert training is None
    assert "readme.html" in (damage or "")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", '{"format": 2}', '{"format": 1, "archive": "x", "files": {}}', "\udcff"]
)
def test_a_stamp_that_can_not_be_read_counts_as_none(kept: CachedArchive, text: str) -> None:
    (kept.cache / "cifar-10.json").write_text(text, encoding="utf-8", errors="surrogateescape")
    assert kept.check() == (None, None)


def test_each_field_of_a_stamp_is_looked_at(kept: CachedArchive) -> None:
    kept.stamp()
    path = kept.cache / "cifar-10.json"
    stamp = json.loads(path.read_text())
    for key in stamp:
        nonsense: tuple[object, ...] = (None, 7, "x", [], {})
        for wrong in nonsense:
            path.write_text(json.dumps(stamp | {key: wrong}))
            assert kept.check() == (None, None), (key, wrong)
