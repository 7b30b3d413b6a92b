"""The stand-in NVML library, compiled once."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from .stand_in import SOURCE, Host


def _compile(folder: Path, *flags: str) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (gcc or cc) to build the stand-in NVML library with")
    target = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", *flags, "-o", str(target), str(SOURCE)], check=True)
    return folder


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _compile(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _compile(tmp_path_factory.mktemp("nvml-old"), "-DNGCDL_OLD_DRIVER")


@pytest.fixture(scope="session")
def wide_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _compile(tmp_path_factory.mktemp("nvml-wide"), "-DNGCDL_WIDE_RECORDS")


@pytest.fixture
def card(library: Path, tmp_path: Path) -> Host:
    """A host with the two cards of nvml.state."""
    host = Host(library, tmp_path / "nvml.state")
    host.set()
    return host
