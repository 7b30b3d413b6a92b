"""This host's processes, and how a process of ngcdl starts another one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.parametrize(
    ("options", "script"),
    [
        (["-u", "-sB", "/a b/train.py", "--key", "hush"], "train.py"),
        (["-Em", "x"], None),
        (["-m", "torch.distributed.run", "train.py"], "-m torch.distributed.run"),
        (["-mjson.tool", "x"], "-m json.tool"),
        (["-c", "print()"], None),
        (["-"], None),
        (["-X", "dev", "train.py"], None),
        ([], None),
    ],
)
def test_of_a_python_its_script_or_module_is_told_and_no_other_word(
    options: list[str], script: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(processes, "_PROC", tmp_path)
    (tmp_path / "7").mkdir()
    for program, told in (("/opt/venv/bin/python3.12", script), ("python", script), ("/usr/bin/vim", None)):
        (tmp_path / "7/cmdline").write_text("".join(f"{word}\0" for word in (program, *options)))
        assert processes.script(7) == told
    assert processes.script(8) is None


def test_when_a_process_began_is_unknown_if_there_is_none() -> None:
    assert processes.began(os.getpid())
    assert processes.began(2**22 + 1) is None
