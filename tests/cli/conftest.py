"""ngcdl as a process in an isolated home."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from house import House

GOLDEN = Path(__file__).parents[1] / "golden/run-format-1"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """A home without Docker, a GPU or TensorFlow."""
    with contextlib.closing(House(tmp_path)) as house:
        yield house


@pytest.fixture
def trained(house: House) -> House:
    """A home in which trainings end at once."""
    house.bring_trainer()
    return house


@pytest.fixture
def kept(house: House) -> House:
    """A home with the sample run of format 1."""
    shutil.copytree(GOLDEN, house.store.root / GOLDEN.name)
    return house
