"""A Slurm with two nodes in the lab, and a user of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_user import Someone
from house import STAND_IN
from lab_parts.slurm import Cluster


@pytest.fixture(scope="session")
def cluster(lab: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("slurm") / "c", Path(lab["cache"])) as found:
        yield found


@pytest.fixture
def someone(cluster: Cluster, tmp_path: Path) -> Iterator[Someone]:
    one = Someone(tmp_path, cluster)
    one.brings("python", sys.executable, str(STAND_IN))
    cluster.wait_idle()
    yield one
    one.slurm("scancel", "--user", str(os.geteuid()))
