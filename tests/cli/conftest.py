"""ngcdl as a process, in a home of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from house import House


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A home without Docker, without a GPU and without TensorFlow."""
    return House(tmp_path)


@pytest.fixture
def trained(house: House) -> House:
    """A home in which trainings end at once."""
    house.bring_trainer()
    return house
