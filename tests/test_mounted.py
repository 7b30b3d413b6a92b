"""Whether the code of a command is still what it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from ngcdl import mounted
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
    sources = mounted.sources([Mount(str(host), "/work", writable=True) for host in hosts])
    assert sources is not None
    return sources


def test_an_edit_or_a_deletion_is_seen_and_what_a_run_leaves_is_not(project: Path) -> None:
    sources = found(project)
    assert [file.name for file in sources.files] == ["net.py", "train.py"]
    (project / "checkpoint.pt").write_bytes(b"\0")
    (project / "notes.txt").write_text("epoch 1\n")
    (project / "copy.py").write_text("LAYERS = 5\n")
    assert not sources.are_edited()
    (project / "models" / "net.py").write_text("LAYERS = 6\n")
    assert sources.are_edited()
    (project / "models" / "net.py").write_text("LAYERS = 5\n")
    assert not sources.are_edited()
    (project / "train.py").unlink()
    assert sources.are_edited()


@pytest.mark.parametrize("folder", [".venv", "__pycache__", "node_modules", "lib/site-packages"])
def test_what_is_installed_there_is_left_out(project: Path, folder: str) -> None:
    (project / folder).mkdir(parents=True)
    (project / folder / "much.py").write_text("\n")
    assert len(found(project).files) == 2


def test_a_single_file_a_volume_and_a_link_in_a_circle(project: Path, tmp_path: Path) -> None:
    (project / "again").symlink_to(project)
    assert len(found(project).files) == 2
    assert [file.name for file in found(project / "train.py").files] == ["train.py"]
    assert found("a-volume", tmp_path / "missing").files == ()


def test_too_much_to_look_at_is_said_as_none(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = [Mount(str(project), "/work")]
    monkeypatch.setattr(mounted, "MOST_NAMES", 3)
    assert mounted.sources(mounts) is None
    monkeypatch.setattr(mounted, "MOST_NAMES", 4)
    assert mounted.sources(mounts) is not None
    monkeypatch.setattr(mounted, "MOST_BYTES", 10)
    assert mounted.sources(mounts) is None
