"""The picture holds: floors, and who may import what."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "toolkit/ngcdl"
TRAINER = ROOT / "containers/trainer"
MODULES = sorted(PACKAGE.rglob("*.py"))
# library -> the one place that imports it
OWNERS = {
    "docker": "engines/docker/",
    "pynvml": "telemetry/gpu.py",
    "typer": "cli/",
}


def imported(path: Path) -> Iterator[tuple[str, bool]]:
    """The absolute names that a file imports, and whether that happens at import."""
    tree = ast.parse(path.read_text())
    inner = {
        id(one)
        for made in ast.walk(tree)
        if isinstance(made, ast.FunctionDef | ast.AsyncFunctionDef)
        for one in ast.walk(made)
    }
    for one in ast.walk(tree):
        if isinstance(one, ast.Import):
            yield from ((alias.name, id(one) not in inner) for alias in one.names)
        elif isinstance(one, ast.ImportFrom) and not one.level and one.module:
            yield one.module, id(one) not in inner


@pytest.mark.parametrize("library", OWNERS)
def test_a_library_has_one_owner(library: str) -> None:
    users = {
        str(path.relative_to(PACKAGE))
        for path in MODULES
        for name, _ in imported(path)
        if name.split(".")[0] == library
    }
    assert [user for user in users if not user.startswith(OWNERS[library])] == []


def test_the_trainer_imports_nothing_of_ngcdl_and_nothing_of_it_is_imported() -> None:
    assert [path for path in TRAINER.rglob("*.py") for name, _ in imported(path) if name.split(".")[0] == "ngcdl"] == []
    assert [path for path in MODULES for name, _ in imported(path) if name.split(".")[0] == "trainer"] == []


def test_no_module_imports_a_heavy_library_at_import_but_its_owner_s() -> None:
    heavy = ("docker", "requests", "pynvml", "rich", "tensorflow", "torch", "numpy")
    found = {
        (str(path.relative_to(PACKAGE)), name)
        for path in MODULES
        for name, at_import in imported(path)
        if at_import and name.split(".")[0] in heavy and "TYPE_CHECKING" not in path.read_text()
    }
    assert {user for user, name in found if not user.startswith(("registry/", "dataset/"))} == set()


def test_nothing_happens_at_import(tmp_path: Path) -> None:
    names = [str(path.relative_to(PACKAGE.parent).with_suffix("")).replace("/", ".") for path in MODULES]
    names = [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]
    code = f"import importlib\nfor name in {names!r}: importlib.import_module(name)\nimport threading\n"
    code += "assert threading.active_count() == 1"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False,
        env={"HOME": str(tmp_path), "PYTHONPATH": str(PACKAGE.parent), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_every_module_begins_with_its_answer() -> None:
    assert [str(path) for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_the_layers_are_all_there_is() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(one for one in contracts if one["type"] == "layers")
    named = {name.strip() for layer in layers["layers"] for name in layer.split("|")}
    there = {path.stem if path.suffix else path.name for path in PACKAGE.iterdir() if path.name != "py.typed"}
    assert named == there - {"__init__", "__main__", "__pycache__", "containers", "requirements"}


def test_an_engine_s_name_leads_to_a_module_that_connects() -> None:
    from ngcdl.engines import ENGINES

    assert all(callable(importlib.import_module(module).connect) for module in ENGINES.values())
