"""A docker client for the lab, and a registry front, for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker_client import Docker
from faulty_front import Front, front_in


@pytest.fixture
def docker(lab: dict[str, Any], tmp_path: Path) -> Docker:
    return Docker(lab, tmp_path / "docker-config")


@pytest.fixture
def front(lab: dict[str, Any], tmp_path: Path) -> Iterator[Front]:
    with front_in(tmp_path / "front", lab) as one:
        yield one
