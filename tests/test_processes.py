"""This host's processes, and how a process of ngcdl starts another one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from house import ROOT

from ngcdl import processes


@pytest.mark.parametrize("options", [[], ["-E"]])
def test_what_this_process_ignores_of_the_environment_the_next_one_ignores_too(options: list[str]) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from ngcdl import processes; print(*processes.of_ngcdl('x', 'y'))"
    )
    words = [sys.executable, *options, "-c", code, str(ROOT / "toolkit")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [sys.executable, *options, "-P", "-m", "x", "y"]


def test_when_a_process_began_is_unknown_if_there_is_none() -> None:
    assert processes.began(os.getpid())
    assert processes.began(2**22 + 1) is None
