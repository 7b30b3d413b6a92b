"""A copy of the parts of a clone that its scripts need, with programs of a test's own on PATH."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from house import ROOT

# Stands for uv: makes an environment that borrows this one's packages, and logs its requests.
UV = f"""#!/bin/sh
echo "$1" >> "$HOME/asked"
case $1 in
venv) for folder; do :; done; exec {sys.executable} -m venv --without-pip "$folder" ;;
pip)
    [ "$7" = --compile-bytecode ] || exit 9 # others than its maker may use it, who can't write there
    packages=$("$5" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo {sysconfig.get_path("purelib")} > "$packages/borrowed.pth" ;;
esac
"""


def cloned(tmp_path: Path) -> Path:
    folder = tmp_path / "a clone"
    for name in ("scripts", "requirements", "toolkit"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "bin").mkdir()
    put(folder, "uv", UV)
    return folder


def put(clone: Path, name: str, text: str) -> None:
    """Put a program on PATH."""
    program = clone.parent / "bin" / name
    program.write_text(text)
    program.chmod(0o755)


def scripted(clone: Path, name: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script through a link, from another folder, in a clone whose path has a space, without a lab."""
    (clone / "scripts/lab").write_text("#!/bin/sh\nexit 1\n")
    link = clone.parent / "bin" / f"my-{name}"
    link.symlink_to(clone / "scripts" / name)
    environment = {"HOME": str(clone.parent), "PATH": f"{clone.parent}/bin:{os.defpath}", **variables}
    return subprocess.run(
        [link, *words], capture_output=True, text=True, check=False, env=environment, cwd=clone.parent
    )  # fmt: skip
