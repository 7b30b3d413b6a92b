"""scripts/lab_parts/lanes.py: all groups' results become one line and one exit code."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter, deque
from pathlib import Path

import pytest
from house import ROOT
from lab_parts import lanes

LANES = ROOT / "scripts" / "lab_parts" / "lanes.py"
# Stands for pytest: the last word names the results file.
WRITES = """for word; do :; done
echo '<testsuites>{}</testsuites>' >"${{word#--junitxml=}}"
"""
WELL = WRITES.format('<testsuite tests="3" failures="0" errors="0" skipped="1"/>')
BADLY = WRITES.format(
    '<testsuite tests="3" failures="1" errors="0" skipped="1">'
    '<testcase classname="tests.test_x" name="test_it[1]"><failure message="assert 1&#10;  == 2">...</failure>'
    "</testcase></testsuite>"
)
KILLED = ["failed: networks left no results", "failed: trainer left no results"]
GIVEN_UP = [f"failed: {name} ended with 3, though none of its tests failed" for name in ("networks", "trainer")]
TOLD = ["failed: tests.test_x::test_it[1]  assert 1 == 2"] * 2


@pytest.mark.parametrize(
    ("trainer", "codes", "lines"),
    [
        (WELL, (0, 0, 0), ["24 passed, 0 failed, 12 skipped"]),
        ("kill -9 $$", (0, 1, 1), [*KILLED, "20 passed, 2 failed, 10 skipped"]),
        (f"{WELL}exit 3", (0, 1, 1), [*GIVEN_UP, "24 passed, 2 failed, 12 skipped"]),
        (f"{BADLY}exit 1", (0, 1, 1), [*TOLD, "22 passed, 2 failed, 12 skipped"]),
    ],
    ids=["well", "killed", "given up", "failed"],
)
def test_what_failed_is_named_and_a_group_that_was_killed_or_that_pytest_gave_up_fails_all(
    tmp_path: Path, trainer: str, codes: tuple[int, ...], lines: list[str]
) -> None:
    pythons = {"ngcdl": WELL, "trainer": trainer}
    for name, does in pythons.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    ngcdl, frameworks = (str(tmp_path / name) for name in pythons)
    done = [
        subprocess.run([sys.executable, LANES, what, tmp_path, *more], capture_output=True, text=True, check=False)
        for what, more in (("early", [ngcdl]), ("late", [ngcdl, frameworks]), ("sum", []))
    ]
    assert tuple(one.returncode for one in done) == codes, done
    assert done[-1].stdout.splitlines() == lines


def test_the_lane_of_the_early_tests_joins_the_others_once_those_have_ended(tmp_path: Path) -> None:
    code, shared = tmp_path / "ngcdl.code", deque(lanes.late()[:2])
    joining = iter(lanes.after(code, shared, pause=code.touch))
    assert next(joining).name == lanes.late()[1].name
    assert code.exists(), "it has waited for them"
    shared.clear()
    assert list(joining) == []
    code.unlink()
    assert list(lanes.after(code, shared)) == [], "where nothing is left, it ends without them"


def test_every_file_of_tests_is_of_one_group() -> None:
    """Where groups are told apart by a mark, either may take a file."""
    groups = [*lanes.early(), *lanes.late()]
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        name = path.relative_to(ROOT).as_posix()
        takers = {group.name for group in groups if takes(group.words, name)}
        assert len(takers - {"parts"}) == 1, (name, takers)
        assert ("parts" in takers) == ("ngcdl" in takers and "mark.lab" in path.read_text()), (name, takers)
    named = [word.removeprefix("--ignore=") for group in groups for word in group.words]
    assert [name for name in named if name.startswith("tests") and not (ROOT / name).exists()] == []


def test_no_two_files_of_tests_are_one_module() -> None:
    """A pytest that collects both, as `scripts/test -k ...` does, fails."""
    paths = [path for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py"]
    found = Counter(module(path) for path in paths)
    assert [name for name, times in found.items() if times > 1] == []


def test_no_test_imports_from_a_conftest() -> None:
    """Where two folders are collected, the module of this name is one's, and the other's tests fail on it."""
    texts = {path: path.read_text() for path in (ROOT / "tests").rglob("*.py")}
    assert [
        path for path, text in texts.items() if re.search(r"^from \S*conftest import|^import conftest", text, re.M)
    ] == []


def module(path: Path) -> str:
    """The module name pytest gives a file: its stem, or with its package."""
    top = path.parent
    while (top / "__init__.py").exists():
        top = top.parent
    return path.relative_to(top).as_posix()


def takes(words: tuple[str, ...], name: str) -> bool:
    """Does pytest with these words collect this file?"""
    ignored = [word.removeprefix("--ignore=") for word in words if word.startswith("--ignore=")]
    wanted = [word for word in words if word.startswith("tests")]
    return any(is_in(name, one) for one in wanted) and not any(is_in(name, one) for one in ignored)


def is_in(name: str, place: str) -> bool:
    return name == place or name.startswith(f"{place}/")
