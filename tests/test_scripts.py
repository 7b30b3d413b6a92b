"""scripts/ngcdl from a clone: its environment is made once, and again where the clone or the Python is another one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from house import ROOT

from ngcdl import __version__

# Stands for uv: an environment that borrows the packages of this one. Says what it was asked.
UV = f"""#!/bin/sh
echo "$1" >> "$HOME/asked"
case $1 in
venv) for folder; do :; done; exec {sys.executable} -m venv --without-pip "$folder" ;;
pip)
    packages=$("$5" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo {sysconfig.get_path("purelib")} > "$packages/borrowed.pth" ;;
esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "a clone"
    for name in ("scripts", "requirements", "toolkit"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/uv").write_text(UV)
    (tmp_path / "bin/uv").chmod(0o755)
    return folder


def told(clone: Path) -> tuple[str, str, list[str]]:
    """What `scripts/ngcdl --version` said on stdout and stderr, and what uv was asked for it."""
    home = clone.parent
    (home / "asked").write_text("")
    environment = {"HOME": str(home), "PATH": f"{home}/bin:{os.defpath}", "NGCDL_PYTHON": sys.executable}
    done = subprocess.run(
        [clone / "scripts/ngcdl", "--version"], capture_output=True, text=True, check=False, env=environment
    )
    return done.stdout, done.stderr, (home / "asked").read_text().split()


def test_the_first_call_makes_the_environment_and_the_next_one_starts_it(clone: Path) -> None:
    out, err, asked = told(clone)
    assert (out, asked) == (f"ngcdl {__version__}\n", ["venv", "pip"]), err
    assert told(clone) == (f"ngcdl {__version__}\n", "", [])


def test_a_clone_that_was_moved_starts_its_own_source(clone: Path) -> None:
    told(clone)
    moved = clone.rename(clone.with_name("moved"))
    (moved / "toolkit/ngcdl/__init__.py").write_text('__version__ = "moved"\n')
    assert told(moved) == ("ngcdl moved\n", "", [])


@pytest.mark.parametrize("change", ["gone", "another version"])
def test_a_python_that_is_gone_or_another_one_makes_the_environment_anew(clone: Path, change: str) -> None:
    told(clone)
    if change == "gone":
        (clone / ".venv/bin/python").unlink()
        (clone / ".venv/bin/python").symlink_to("/usr/bin/python3.0")
    else:
        (packages,) = (clone / ".venv/lib").glob("python3.*")
        packages.rename(packages.with_name("python3.0"))
        (clone / ".venv/.place").write_text(f"{clone} /usr/bin/python3.0\n")
    out, err, asked = told(clone)
    assert (out, asked) == (f"ngcdl {__version__}\n", ["venv", "pip"]), err
    assert "is gone, or is another one now" in err
