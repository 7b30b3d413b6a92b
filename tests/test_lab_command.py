"""scripts/lab without a lab: whatever is typed, it says what is wrong and what to type, and leaves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from house import ROOT
from stand_ins import refuses

LAB = ROOT / "scripts" / "lab"


# The script sees the user id that the test wants.
AS = "import os, runpy, sys; os.geteuid = lambda: {}; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"


def typed(folder: Path, *words: str, user: int = 0, path: str = os.defpath) -> tuple[int, str, str]:
    environment = {"PATH": path, "HOME": str(folder), "NGCDL_LAB_DIR": str(folder / "a lab")}
    command = [sys.executable, "-B", "-c", AS.format(user), LAB, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return done.returncode, done.stdout, done.stderr


def test_what_is_asked_of_no_lab_is_answered_with_how_to_start_one(tmp_path: Path) -> None:
    none = f"no lab in {tmp_path}/a lab; to start one:  scripts/lab up\n"
    assert typed(tmp_path, "status") == (3, none, "")
    assert typed(tmp_path, "env") == (1, "", f"lab: {none}")
    assert typed(tmp_path, "exec", "--", "docker", "info") == (1, "", f"lab: {none}")
    assert typed(tmp_path, "down") == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_can_t_be_one_is_named_with_the_variables_that_name_another() -> None:
    code, _, err = typed(Path("/dev/null"), "status")
    assert (code, err.count("\n")) == (1, 1)
    assert "/dev/null/a lab" in err
    assert "NGCDL_LAB_DIR" in err


@pytest.mark.parametrize("words", [(), ("--engine", "existing"), ("--engine", "existing", "--engine-only", "--floor")])
def test_who_is_not_root_is_told_before_anything_is_fetched(tmp_path: Path, words: tuple[str, ...]) -> None:
    said = "lab: the lab's engines and images need root:  sudo -E scripts/lab up\n"
    assert typed(tmp_path, "up", *words, user=1000) == (1, "", said)
    assert list(tmp_path.iterdir()) == []


def test_without_docker_the_engine_that_is_here_can_t_be_taken_and_nothing_is_fetched(tmp_path: Path) -> None:
    code, _, err = typed(tmp_path, "up", "--engine", "existing", user=0, path="/nowhere")
    assert (code, err.partition(":  ")[2]) == (1, "NGCDL_LAB=off scripts/test\n")
    refuses(tmp_path, "docker", "Cannot connect")
    code, _, err = typed(tmp_path, "up", "--engine", "existing", user=0, path=str(tmp_path))
    assert (code, "no Docker Engine answers" in err, "DOCKER_HOST" in err) == (1, True, True)
    assert not (tmp_path / "a lab").exists()


def test_a_command_ends_as_a_shell_would_tell_it(tmp_path: Path) -> None:
    (tmp_path / "a lab").mkdir()
    (tmp_path / "a lab/lab.json").write_text(json.dumps({"engine": {"host": "unix:///nowhere"}}))
    assert typed(tmp_path, "exec", "--", "sh", "-c", "echo $DOCKER_HOST; exit 3") == (3, "unix:///nowhere\n", "")
    assert typed(tmp_path, "exec", "sh", "-c", "kill -9 $$") == (137, "", "")
    assert typed(tmp_path, "exec", "--", "/nowhere") == (
        1,
        "",
        "lab: /nowhere can't be run: No such file or directory\n",
    )
    assert typed(tmp_path, "exec", "--", "/dev/null")[0::2] == (1, "lab: /dev/null can't be run: Permission denied\n")
    assert typed(tmp_path, "exec") == (1, "", "lab: exec needs a command: scripts/lab exec -- docker info\n")
