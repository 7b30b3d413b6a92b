"""scripts/lab_parts/lanes.py: what came out of all groups is one line and one exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from house import ROOT

LANES = ROOT / "scripts" / "lab_parts" / "lanes.py"
# Stands for pytest: the last word says where the results go.
WELL = """for word; do :; done
echo '<testsuites><testsuite tests="3" failures="0" errors="0" skipped="1"/></testsuites>' >"${word#--junitxml=}"
"""


@pytest.mark.parametrize(
    ("trainer", "code", "line"),
    [
        (WELL, 0, "16 passed, 0 failed, 8 skipped"),
        ("kill -9 $$", 1, "14 passed, 1 failed, 7 skipped"),
        (f"{WELL}exit 3", 1, "16 passed, 0 failed, 8 skipped"),
    ],
)
def test_a_group_that_was_killed_or_that_pytest_gave_up_fails_all(
    tmp_path: Path, trainer: str, code: int, line: str
) -> None:
    pythons = {"ngcdl": WELL, "trainer": trainer}
    for name, does in pythons.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    command = [sys.executable, LANES, *(tmp_path / name for name in pythons)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (code, line), done.stderr
