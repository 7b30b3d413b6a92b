"""How a process of ngcdl starts another one."""

from __future__ import annotations

import subprocess
import sys

import pytest
from house import ROOT


@pytest.mark.parametrize("options", [[], ["-E"]])
def test_what_this_process_ignores_of_the_environment_the_next_one_ignores_too(options: list[str]) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from ngcdl import processes; print(*processes.of_ngcdl('x', 'y'))"
    )
    words = [sys.executable, *options, "-c", code, str(ROOT / "toolkit")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [sys.executable, *options, "-P", "-m", "x", "y"]
