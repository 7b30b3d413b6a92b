"""The real CIFAR-10, if present: in the folder named by NGCDL_TEST_CIFAR10, or packed beside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ngcdl.dataset import CIFAR10, prepare
from ngcdl.dataset.official import BINARY

PACKED = Path(__file__).parents[3] / "shared" / "cifar10"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = os.environ.get("NGCDL_TEST_CIFAR10")
    if named:
        return Path(named)
    if not (PACKED / "unpack.py").is_file():
        pytest.skip("CIFAR-10 is not here: name a folder with it in NGCDL_TEST_CIFAR10")
    folder = tmp_path_factory.mktemp("cifar10")
    subprocess.run([sys.executable, str(PACKED / "unpack.py"), str(folder)], check=True)
    return folder


def test_the_real_one_is_taken_within_seconds(real: Path, tmp_path: Path) -> None:
    said: list[str] = []
    begin = time.monotonic()
    dataset = prepare(str(real), cache=tmp_path, say=said.append, environ={})
    assert time.monotonic() - begin < 30
    assert dataset.kind == "cifar10"
    assert dataset.folder is not None
    for member in CIFAR10.batches:
        assert (dataset.folder / BINARY / member.name).stat().st_size == 30_730_000
    assert said == []
