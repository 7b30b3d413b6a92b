"""A docker client for the lab, for each test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from docker_client import Docker


@pytest.fixture
def docker(lab: dict[str, Any], tmp_path: Path) -> Docker:
    return Docker(lab, tmp_path / "docker-config")
