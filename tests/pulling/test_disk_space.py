"""Whether there is room for layers: where an engine stores its images, and in the cache on their way there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ngcdl.errors import DiskFull
from ngcdl.pulling import disk_space
from ngcdl.pulling.disk_space import LayerForm, Need, Room

ENGINES, OWN = Path("/engine"), Path("/own")
NEED = Need("an image", missing_bytes=100, here_bytes=40, likely_bytes=250)


def test_a_folder_that_only_root_may_look_into_has_the_room_of_the_one_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden, stat = tmp_path / "containerd", Path.stat

    def forbid(path: Path, **_: bool) -> os.stat_result:
        if hidden in path.parents:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return stat(path)

    hidden.mkdir()
    monkeypatch.setattr(Path, "stat", forbid)
    there = disk_space.file_system_of(hidden / "daemon", as_root=True)
    assert there is not None
    assert there.device == hidden.stat().st_dev


@pytest.mark.parametrize(("engines", "own", "verdict"), [
    (Room(1, 751), Room(2, 60), LayerForm.UNPACKED),
    (Room(1, 750), Room(2, 60), LayerForm.PACKED),
    (Room(1, 751), Room(2, 59), LayerForm.NOT_HERE),
    (Room(1, 811), Room(1, 811), LayerForm.UNPACKED),
    (Room(1, 810), Room(1, 810), LayerForm.PACKED),
    (Room(1, 310), Room(1, 310), LayerForm.PACKED),
    (Room(1, 309), Room(1, 309), LayerForm.NOT_HERE),
    (None, Room(2, 60), LayerForm.PACKED),
    (Room(1, 751), None, LayerForm.UNPACKED),
])  # fmt: skip
def test_what_fits_is_judged_by_both_folders(
    monkeypatch: pytest.MonkeyPatch, engines: Room | None, own: Room | None, verdict: LayerForm
) -> None:
    monkeypatch.setattr(disk_space, "file_system_of", lambda folder, **_: engines if folder == ENGINES else own)
    said: list[str] = []
    assert (disk_space.judge(NEED, ENGINES, OWN, said.append), said) == (verdict, [])


def test_what_may_not_fit_is_said_and_what_can_t_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    free = Room(1, 249)
    monkeypatch.setattr(disk_space, "file_system_of", lambda folder, **_: free if folder == ENGINES else None)
    said: list[str] = []
    assert disk_space.judge(NEED, ENGINES, OWN, said.append) is LayerForm.PACKED
    (line,) = said
    assert line.startswith("This may not fit: an image needs ")
    free = Room(1, 99)
    with pytest.raises(DiskFull, match="No space left in /engine: an image needs"):
        disk_space.judge(NEED, ENGINES, OWN, said.append)


def test_before_a_large_pull_its_size_and_its_place_are_said() -> None:
    need = Need("nvcr.io/nvidia/pytorch:26.07-py3", 9_800_000_000, 0, 24_500_000_000)
    assert disk_space.announced(need, Path("/var/lib/docker")) == (
        "nvcr.io/nvidia/pytorch:26.07-py3: 9.1 GiB to fetch, about 22.8 GiB on disk in /var/lib/docker; "
        "Ctrl-C keeps what has arrived."
    )
    nearly_here = Need(need.image, need.missing_bytes, 9_000_000_000, need.likely_bytes)
    assert disk_space.announced(nearly_here, None) is None
