"""The stand-in NVML library as other drivers are, each compiled once."""

from __future__ import annotations

from pathlib import Path

import pytest

from .stand_in import compiled


@pytest.fixture(scope="session")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("nvml-old"), "-DNGCDL_OLD_DRIVER")


@pytest.fixture(scope="session")
def wide_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("nvml-wide"), "-DNGCDL_WIDE_RECORDS")
