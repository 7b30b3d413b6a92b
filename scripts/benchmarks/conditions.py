"""The conditions of a measurement: machine, load, programs, date. Standard library only."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path


def here() -> dict[str, str]:
    """Return the conditions here and now. Runs on the same machine have the same `machine`; so have runs on any other
    whose processor has that name, as many virtual ones do."""
    told = {
        "machine": f"{_cpu()}, {os.cpu_count()} cores",
        "kernel": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "docker": docker(),
        "load": f"{os.getloadavg()[0]:.1f}",  # before the first round
        "date": time.strftime("%Y-%m-%d"),
    }
    return {name: value for name, value in told.items() if value}


def told(conditions: Mapping[str, str]) -> str:
    named = {"kernel": "", "machine": "", "card": "", "date": "", "load": "load ", "pytorch": "PyTorch "}
    return ", ".join(f"{named.get(name, f'{name.capitalize()} ')}{value}" for name, value in conditions.items())


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def docker(environment: Mapping[str, str] | None = None) -> str:
    """Return the version of the engine that answers with `environment` (default: ours); "" if none does."""
    if not shutil.which("docker"):
        return ""
    command = ["docker", "version", "--format", "{{.Server.Version}}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return "" if done.returncode else done.stdout.strip()
