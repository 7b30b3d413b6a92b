"""A host whose driver is the stand-in NVML library, and children that use it through NVIDIA's own binding."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "scripts/lab_parts/nvml.c"
EXAMPLE = ROOT / "scripts/lab_parts/nvml.state"
# The stand-in lists every process, also if the tests run in a container.
VISIBLE = "from ngcdl.telemetry import container; container.pids_are_the_hosts = lambda: True\n"


@dataclass(frozen=True)
class Host:
    """A host whose driver says what `state` says. `forks`: its children are forks, with all of ngcdl loaded."""

    library: Path
    state: Path
    forks: bool = False

    def set(self, **changes: object) -> None:
        """Write the example state with lines replaced (None: removed); two underscores in a key mean a dot."""
        write_state(self.state, {key.replace("__", "."): value for key, value in changes.items()})

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.library),
            "NGCDL_NVML_STATE": str(self.state),
            "PYTHONPATH": str(ROOT / "toolkit"),
            "NO_COLOR": "1",
        }

    def python(self, code: str, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run code in a child: LD_LIBRARY_PATH is read only when a process starts."""
        import forking  # here, as a child's code may load this file

        words, warnings = [VISIBLE + code, *arguments], {"PYTHONWARNINGS": "error"}
        if self.forks and (
            found := forking.run(words, self.environment(), Path.cwd(), b"", timeout, is_code=True, at_start=warnings)
        ):
            status, out, err = found
            return subprocess.CompletedProcess(words, status, out.decode(), err.decode())
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", *words], capture_output=True, text=True, timeout=timeout,
            env=self.environment(), check=False,
        )  # fmt: skip

    def ask(self, code: str, *arguments: str) -> Any:
        """Run code that prints JSON."""
        done = self.python(code, *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def write_state(path: Path, changes: Mapping[str, object]) -> None:
    lines = dict(line.split("=", 1) for line in EXAMPLE.read_text().splitlines() if "=" in line)
    for key, value in changes.items():
        lines.pop(key, None)
        if value is not None:
            lines[key] = str(value)
    fresh = path.with_suffix(".new")
    fresh.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    fresh.replace(path)


def compiled(folder: Path, *flags: str) -> Path:
    """Build the library into this folder."""
    import pytest  # here, as a child's code may load this file

    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (gcc or cc) to build the stand-in NVML library with")
    target = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", *flags, "-o", str(target), str(SOURCE)], check=True)
    return folder
