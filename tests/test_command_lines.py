"""A line that calls ngcdl can be typed as it is shown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from ngcdl import console
from ngcdl.cli.app import app
from ngcdl.command_lines import COMMANDS, TYPED, program, typable
from ngcdl.errors import NgcdlError


def _there(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    path.chmod(0o755)
    return path


def test_where_path_has_no_ngcdl_command_lines_have_what_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv(TYPED, "./my scripts/ngcdl")
    console.show_error(NgcdlError("It broke, says ngcdl run.", "Type:\n    A=1 ngcdl login && ngcdl run ... --gpus 1"))
    console.result("why  see ngcdl doctor; an older ngcdl reads less, ngcdl/run stays, my-ngcdl run too")
    console.result_json({"advice": "    ngcdl run"})
    seen = capsys.readouterr()
    assert seen.err == (
        "ngcdl: It broke, says './my scripts/ngcdl' run.\n  Type:\n"
        "      A=1 './my scripts/ngcdl' login && './my scripts/ngcdl' run ... --gpus 1\n"
    )
    assert "see './my scripts/ngcdl' doctor; an older ngcdl reads less, ngcdl/run stays, my-ngcdl run too\n" in seen.out
    assert '"    ngcdl run"' in seen.out, "what machines read is the same everywhere"
    _there(tmp_path / "bin/ngcdl")
    assert typable("    ngcdl login") == "    ngcdl login"


@pytest.mark.parametrize(("typed", "shown"), [
    (".venv/bin/ngcdl", ".venv/bin/ngcdl"), ("ngcdl", "ngcdl"), ("/venv/ngcdl/__main__.py", "ngcdl"), ("", "ngcdl"),
])  # fmt: skip
def test_a_program_that_was_typed_by_its_path_is_advised_by_it(
    typed: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TYPED, raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "argv", [typed])
    assert program() == shown


def test_every_command_of_the_application_is_known_in_a_command_line() -> None:
    commands: Any = typer.main.get_command(app)
    assert sorted(COMMANDS) == sorted(commands.commands)
