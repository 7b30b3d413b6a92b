"""With slurmdbd a run's end is known even if the controller has forgotten it and the script could not record it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_user import TRAIN, Cluster, Someone
from house import STAND_IN, until

pytestmark = pytest.mark.lab


@pytest.fixture
def someone(lab: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Someone]:
    folder = tmp_path_factory.mktemp("dbd")
    home = folder / "home"
    home.mkdir()
    with Cluster(folder / "c", Path(lab["cache"]), nodes=1, accounting=True) as cluster:
        one = Someone(home, cluster)
        one.brings("python", sys.executable, str(STAND_IN))
        yield one


def test_what_the_controller_forgot_the_accounting_tells(someone: Someone) -> None:
    assert someone.run(*TRAIN, env={"STAND_IN": "fail", "SLURM_CLUSTERS": "lab"}).returncode == 7
    run_id = someone.submits("--gpus", "none", STAND_IN="wait")
    someone.begun(run_id)
    job = someone.job(run_id)
    someone.slurm("scancel", job)
    until(lambda: someone.slurm("sacct", "-X", "-n", "-j", job, "-o", "State").startswith("CANC"), "its end")  # it lags
    until(lambda: someone.state(run_id) == "CANCELLED", "the end of its script")  # 24.11 does not wait for it
    someone.brings("squeue", "sh", "-c", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    (someone.folder(run_id) / "exit.json").unlink(missing_ok=True)
    run = someone.ended(run_id)
    assert (run["status"], run["exit_code"], run["reason"]) == ("interrupted", None, "Slurm: CANCELLED")
    assert run["container"] == f"slurm:{job}"
