"""The parts of a job's bash: bash can read each as it is, and their names are replaced by values, once."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ngcdl.engines.slurm.bash import __file__ as beside
from ngcdl.engines.slurm.bash import bash

PARTS = sorted(Path(beside).parent.glob("*.sh"))


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_bash_can_read_each_part_as_it_is(part: Path) -> None:
    subprocess.run(["bash", "-n", part], check=True)


def test_a_value_is_put_in_as_it_is_though_it_looks_like_a_name() -> None:
    text = bash("memlock", LIMIT="@IMAGE@", CLIENT="\\1", IMAGE="## x", OTHERS="")
    assert text.startswith("memlock=(--ulimit memlock=@IMAGE@)\n"), "without the comment for readers of the file"
    assert '&& \\1 run --rm "${memlock[@]}" --entrypoint true ## x 2>&1' in text


def test_a_line_for_a_value_that_is_empty_is_left_out_and_a_name_without_a_value_is_a_bug() -> None:
    assert bash("child", HOME="", LOOK="", BEFORE="", AFTER="").startswith("{ trap : TERM; ")
    with pytest.raises(KeyError):
        bash("child", HOME="", LOOK="", BEFORE="")
