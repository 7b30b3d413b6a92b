"""A cluster's programs: run as daemons, or to query it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

from lab_parts import processes
from lab_parts.where import Lab, LabError


class Daemons:
    """The programs of the cluster in `lab.dir`, which has their pids; bin has the script that starts each."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.conf, self.bin = lab.dir / "slurm.conf", lab.dir / "bin"

    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.conf), "PATH": f"{self.bin}:{os.environ.get('PATH', '')}"}

    def start(self, name: str, words: list[str], ready: Callable[[], object], program: str | None = None) -> None:
        """Start a program, under its own name or another one, and wait until it is ready."""
        environment = {**os.environ, **self.environment()}
        processes.start(self._lab, name, [self.at(program or name), *words], lambda: bool(ready()), env=environment)

    def at(self, name: str) -> str:
        return str(self.bin / name)

    def says(self, name: str, *words: str) -> str | None:
        """Return a program's stdout (" " if empty); None if it fails or takes more than 5 s."""
        try:
            done = subprocess.run([self.at(name), *words], capture_output=True, text=True, timeout=5)
        except subprocess.TimeoutExpired:
            return None
        return (done.stdout or " ") if done.returncode == 0 else None

    def run(self, name: str, *words: str) -> None:
        done = subprocess.run([self.at(name), *words], capture_output=True, text=True, timeout=240)
        if done.returncode:
            raise LabError(f"{name} {' '.join(words)} failed: {(done.stderr or done.stdout).strip()[-500:]}")
