"""Other projects' programs to compare with, installed by pip into a temporary environment."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def installed(names: Sequence[str]) -> Iterator[dict[str, Path]]:
    """Yield "name version" -> the program of that name, for each package that can be installed; report the others."""
    with tempfile.TemporaryDirectory(prefix="ngcdl-peers-") as folder:
        venv.create(folder, with_pip=True)
        found: dict[str, Path] = {}
        for name in names:
            program = Path(folder, "bin", name)
            pip = [f"{folder}/bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
            done = subprocess.run([*pip, "install", name], capture_output=True, text=True, check=False)
            if done.returncode or not program.exists():
                print(f"    {name} can't be installed here, and is not measured", file=sys.stderr)
                continue
            code = f"from importlib.metadata import version; print(version({name!r}))"
            version = subprocess.run([f"{folder}/bin/python", "-c", code], capture_output=True, text=True, check=True)
            found[f"{name} {version.stdout.strip()}"] = program
        yield found
