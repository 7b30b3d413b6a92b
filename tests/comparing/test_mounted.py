"""Changes to the source files of a command are detected."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ngcdl.comparing import mounted
from ngcdl.spec import Mount


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "models").mkdir(parents=True)
    (folder / "train.py").write_text("import models.net\n")
    (folder / "models" / "net.py").write_text("LAYERS = 5\n")
    (folder / "notes.txt").write_text("\n")
    return folder


def found(*hosts: Path | str) -> mounted.Sources:
    return mounted.sources([Mount(str(host), "/work", writable=True) for host in hosts])


def names(sources: mounted.Sources) -> list[str]:
    return [path.name for path, _ in sources.digests]


def test_an_edit_or_a_deletion_is_named_and_what_a_run_leaves_is_not(project: Path) -> None:
    sources, net = found(project), project / "models" / "net.py"
    assert (names(sources), sources.unwatched) == (["net.py", "train.py"], ())
    (project / "checkpoint.pt").write_bytes(b"\0")
    (project / "notes.txt").write_text("epoch 1\n")
    (project / "copy.py").write_text("LAYERS = 5\n")
    assert sources.edited() is None
    net.write_text("LAYERS = 6\n")
    assert sources.edited() == net
    net.write_text("LAYERS = 5\n")
    assert sources.edited() is None
    (project / "train.py").unlink()
    assert sources.edited() == project / "train.py"


@pytest.mark.parametrize("folder", [".venv", "__pycache__", "node_modules", "lib/site-packages"])
def test_what_is_installed_there_is_left_out(project: Path, folder: str) -> None:
    (project / folder).mkdir(parents=True)
    (project / folder / "much.py").write_text("\n")
    assert names(found(project)) == ["net.py", "train.py"]


def test_what_can_not_be_read_to_its_end_is_not_read(project: Path) -> None:
    (project / "again").symlink_to(project)
    os.mkfifo(project / "pipe.py")
    (project / "zero.py").symlink_to("/dev/zero")
    (project / "long.py").symlink_to("x" * 300)  # as in a folder without search permission, which root always has
    sources = found(project)
    assert names(sources) == ["net.py", "train.py"]
    (project / "train.py").unlink()
    os.mkfifo(project / "train.py")
    assert sources.edited() == project / "train.py"


def test_a_single_file_two_mounts_of_one_folder_and_one_that_is_missing(project: Path, tmp_path: Path) -> None:
    assert names(found(project / "train.py")) == ["train.py"]
    assert names(found(project, project)) == ["net.py", "train.py"]
    assert found(tmp_path / "missing") == mounted.Sources((), ())


def test_a_volume_and_what_is_too_much_to_look_at_are_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found("a-volume", project).unwatched == ("a-volume",)
    monkeypatch.setattr(mounted, "MOST_BYTES", 20)
    assert found(project, project / "train.py").unwatched == (str(project),), "the others are looked at"
    monkeypatch.undo()
    monkeypatch.setattr(mounted, "MOST_SECONDS", -1.0)
    assert found(project).unwatched == (str(project),)
