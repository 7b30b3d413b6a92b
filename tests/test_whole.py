"""Replacing a file: whole or not at all, with the right mode from the start, and no leftovers beside it."""

from __future__ import annotations

import errno
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from stand_ins import no_space

from ngcdl.whole import sync_all, written


@contextmanager
def room_for(size_bytes: int) -> Iterator[None]:
    """Limit file sizes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def beside(path: Path) -> list[Path]:
    return [one for one in path.parent.iterdir() if one != path]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


@pytest.mark.parametrize("sync", [True, False])
def test_until_all_of_it_is_written_the_one_before_is_there(path: Path, sync: bool) -> None:
    path.write_bytes(b"before")
    with written(path, sync=sync) as file:
        file.write(b"after")
        assert path.read_bytes() == b"before"
        (draft,) = beside(path)
        assert draft.name.startswith("."), "who lists the folder does not see it"
    assert path.read_bytes() == b"after"
    assert beside(path) == []


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_its_mode_is_right_from_the_beginning_whatever_the_one_before_had(path: Path, mode: int) -> None:
    path.touch(0o640)
    before = os.umask(0o022)
    try:
        with written(path, mode) as file:
            assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == mode
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize("fault", [ValueError, KeyboardInterrupt])
def test_who_fails_while_it_is_written_leaves_the_one_before_and_nothing_else(
    path: Path, fault: type[BaseException]
) -> None:
    path.write_bytes(b"before")

    def half() -> None:
        with written(path) as file:
            file.write(b"half")
            raise fault

    with pytest.raises(fault):
        half()
    assert path.read_bytes() == b"before"
    assert beside(path) == []


def test_a_full_disk_leaves_the_one_before_and_nothing_else(path: Path) -> None:
    path.write_bytes(b"before")
    with room_for(10), pytest.raises(OSError, match="too large"), written(path) as file:
        file.write(b"a key that is longer")
    assert path.read_bytes() == b"before"
    assert beside(path) == []


def test_a_place_that_can_t_be_taken_leaves_nothing_beside_it(path: Path) -> None:
    path.mkdir()
    with pytest.raises(IsADirectoryError), written(path):
        pass
    assert beside(path) == []
    with pytest.raises(FileNotFoundError), written(path.with_name("none") / "file"):
        pass


def test_a_new_one_never_takes_the_place_of_another(path: Path) -> None:
    with written(path, is_new=True) as file:
        file.write(b"first")
    with pytest.raises(FileExistsError), written(path, is_new=True) as file:
        file.write(b"second")
    assert path.read_bytes() == b"first"
    assert beside(path) == []


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP])
def test_where_there_are_no_hard_links_a_new_one_is_written_and_another_is_left_alone(
    path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", no_links)  # as on FAT
    test_a_new_one_never_takes_the_place_of_another(path)


def test_a_link_that_fails_for_another_reason_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", no_space)
    with pytest.raises(OSError, match="No space left"), written(path, is_new=True):
        pass
    assert not path.exists()
    assert beside(path) == []


def test_a_link_is_replaced_and_what_it_leads_to_stays(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"mine")
    path.symlink_to(other)
    with written(path) as file:
        file.write(b"new")
    assert not path.is_symlink()
    assert other.read_bytes() == b"mine"


def test_of_two_writers_at_once_one_is_there_whole(path: Path) -> None:
    with written(path) as one, written(path) as other:
        one.write(b"one" * 10_000)
        other.write(b"other" * 10_000)
    assert path.read_bytes() == b"one" * 10_000, "who was done last"
    assert beside(path) == []


def test_what_a_killed_writer_left_goes_with_the_next_file_and_what_is_still_written_stays(path: Path) -> None:
    code = "import sys, pathlib; from ngcdl.whole import written\n"
    code += "with written(pathlib.Path(sys.argv[1])): print('up', flush=True); sys.stdin.read()"
    words, pipe = [sys.executable, "-P", "-c", code, path], subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe) as writer:
        assert writer.stdout
        try:
            assert writer.stdout.readline()
            (draft,) = beside(path)
            for other in (f".ngcdl-{'x' * 16}", ".ngcdl-notes"):
                draft.with_name(other).touch()
            draft.with_name(f".ngcdl-{'0' * 16}").mkdir()  # a run may nest folders deeper than can be followed
            for one in beside(path):
                os.utime(one, (1, 1))
            with written(path):
                pass
            assert draft.exists(), "its writer lives"
        finally:
            writer.kill()
    draft.touch()
    with written(path):
        pass
    assert draft.exists(), "it may be so new that it is not locked yet"
    os.utime(draft, (1, 1))
    with written(path):
        pass
    assert not draft.exists()
    assert len(beside(path)) == 3, "what is no draft stays"


def test_the_name_may_be_as_long_as_a_name_can_be(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    with written(path) as file:
        file.write(b"x")
    assert path.read_bytes() == b"x"


def test_the_file_system_of_a_folder_is_brought_to_its_disk_and_what_is_no_folder_is_told(tmp_path: Path) -> None:
    sync_all(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync_all(tmp_path / "none")
