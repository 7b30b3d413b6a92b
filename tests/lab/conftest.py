"""A docker client at the bench, and a registry front, for each test."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from callers import Docker, Front


@pytest.fixture
def docker(lab: dict[str, Any], tmp_path: Path) -> Docker:
    return Docker(lab, tmp_path / "docker-config")


@pytest.fixture
def front(lab: dict[str, Any], tmp_path: Path) -> Iterator[Front]:
    """A registry front for one test, so that its faults meet nobody else."""
    (tmp_path / "faults.json").write_text("{}")
    command = [
        *lab["registry"]["front"],
        "--faults",
        f"{tmp_path}/faults.json",
        "--log",
        f"{tmp_path}/log.jsonl",
        "--port",
        "0",
        "--cdn-port",
        "0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        ports = json.loads(process.stdout.readline())
        yield Front(ports["port"], tmp_path / "faults.json", tmp_path / "log.jsonl", lab["registry"]["key"])
        process.terminate()
