"""A line that a refusal advises is not refused in turn."""

from __future__ import annotations

import itertools
import re
import shlex

import pytest
from house import House

ENGINES = ("docker", "local", "slurm", "kubernetes")
# Options that only some engines take.
PLACED = ("--partition gpu", "--time 30", "--namespace ml", "--data-pvc cifar", "--sbatch=--exclusive", "--nodes 2")


def advised(told: str) -> list[str]:
    """The words of the first line that `told` advises."""
    line = re.search(r"^ +(?:timeout \S+ )?ngcdl (.+)$", told, re.MULTILINE)
    assert line, told
    return shlex.split(line[1])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_line_without_what_an_engine_does_not_use_has_nothing_else_that_it_does_not(
    house: House, engine: str
) -> None:
    for pair in itertools.combinations(PLACED, 2):
        typed = ["run", "--engine", engine, *" ".join(pair).split(), "x:1", "--dry-run", "--", "true"]
        told = house.run(*typed).stderr
        if "does not use it" in told:
            line = advised(told)
            assert "does not use it" not in house.run(*line).stderr, (typed, line)
