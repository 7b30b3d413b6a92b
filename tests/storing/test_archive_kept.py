"""What was exported or imported survives a power cut, and a second import at the same moment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from house import strace, until
from made_runs import Made

from ngcdl.storing import archive
from ngcdl.storing.store import Store

BEGIN = """
import sys
from pathlib import Path
from ngcdl.storing import archive
from ngcdl.storing.store import Store
store, file = Store(Path(sys.argv[1])), Path(sys.argv[2])
"""
EXPORT = "archive.export(store, [store.load('run-1')], file)"
IMPORT = "print(archive.take_in(store, file, print))"


@pytest.fixture
def file(store: Store, tmp_path: Path) -> Path:
    Made(steps=50).keep(store, "run-1")
    (tmp_path / "out").mkdir()
    return tmp_path / "out/x.tar"


@pytest.fixture
def other(tmp_path: Path) -> Store:
    return Store(tmp_path / "elsewhere/runs")


def traced(calls: Path, code: str, store: Store, file: Path, *options: str) -> subprocess.Popen[str]:
    """Start `code` under strace, which writes the system calls that change names, or bring files to the disk."""
    which = ["-e", "trace=rename,link,fsync,syncfs", *options]
    return subprocess.Popen(
        [strace(), "-f", "-qq", "-y", "-o", calls, *which, sys.executable, "-c", BEGIN + code, store.root, file],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip


def test_what_was_exported_is_on_the_disk_and_so_is_its_name(store: Store, file: Path, tmp_path: Path) -> None:
    with traced(tmp_path / "calls", EXPORT, store, file) as going:
        assert going.wait(240) == 0
    contents, named, name = (tmp_path / "calls").read_text().splitlines()
    assert (" fsync(" in contents, " link(" in named) == (True, True)
    assert f"<{file.parent}>) = 0" in name


def test_what_was_imported_is_on_the_disk_before_it_has_its_name(
    store: Store, other: Store, file: Path, tmp_path: Path
) -> None:
    archive.export(store, [store.load("run-1")], file)
    with traced(tmp_path / "calls", IMPORT, other, file) as going:
        assert going.wait(240) == 0
    *_, contents, named, name = (tmp_path / "calls").read_text().splitlines()
    assert (" syncfs(" in contents, " rename(" in named and "/run-1" in named) == (True, True)
    assert f"<{other.root}>) = 0" in name


def test_of_two_imports_at_once_one_brings_a_run_and_the_other_says_that_it_is_there(
    store: Store, other: Store, file: Path, tmp_path: Path
) -> None:
    archive.export(store, [store.load("run-1")], file)
    calls, late = tmp_path / "calls", ("-e", "inject=rename:delay_enter=5s:when=2")
    with traced(calls, IMPORT, other, file, *late) as going:
        until(lambda: calls.exists() and "syncfs(" in calls.read_text(), "its last step")
        assert archive.take_in(other, file, print) == ["run-1"]
        out, _ = going.communicate(timeout=240)
    assert out == "run-1 is here already, and is left as it is\n[]\n"
    assert not [*other.root.glob(".import*")]
