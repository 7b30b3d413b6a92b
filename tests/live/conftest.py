"""Users and images for the tests that run ngcdl against the lab."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faulty_front import Front
from ngcdl_child import User, user_in
from own_engine import OwnEngine, engine_of_ones_own
from patient import Look, Patient

IMAGES = ("tensorflow:18.01-py2", "pytorch:26.07-py3", "busybox:1", "busybox:entry")


@pytest.fixture(scope="session")
def images(lab: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Pull the images once, as a signed-in user does; return name -> digest."""
    with user_in(tmp_path_factory.mktemp("pulls"), lab) as user:
        user.login()
        for name in IMAGES:
            done = user.run("pull", name, seconds=240)
            assert done.code == 0, done
    return {name: str(lab["images"][name]) for name in IMAGES}


@pytest.fixture
def user(lab: dict[str, Any], images: dict[str, str], tmp_path: Path) -> Iterator[User]:
    """A user who never signed in; the images are there already."""
    with user_in(tmp_path, lab) as somebody:
        yield somebody


@pytest.fixture(scope="session")
def own_engine(lab: dict[str, Any]) -> Iterator[OwnEngine]:
    """An engine without images; to pull onto, not to kill."""
    with engine_of_ones_own(lab) as engine:
        yield engine


@pytest.fixture
def puller(lab: dict[str, Any], own_engine: OwnEngine, front: Front, tmp_path: Path) -> Iterator[User]:
    """A user of an engine without images, with the registry `front`."""
    with user_in(tmp_path, lab, own_engine.host) as somebody:
        somebody.environment["NGCDL_REGISTRY"] = front.host
        yield somebody
        somebody.docker("image", "prune", "-af")


@pytest.fixture
def patient(lab: dict[str, Any], tmp_path: Path) -> Iterator[Patient]:
    """A signed-in user of the lab's main engine with two cards."""
    with user_in(tmp_path, lab) as user:
        one = Patient(user)
        user.login()
        yield one


@pytest.fixture
def before(patient: Patient) -> Look:
    """Doctor's result while nothing is broken."""
    look = patient.look()
    assert "broken" not in look.but_disk.values(), look.states
    return look
