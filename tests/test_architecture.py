"""The picture holds: floors, and who may import what."""

from __future__ import annotations

import ast
import functools
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest

from ngcdl import engines
from ngcdl.catalog.chips import ON_ARM_CHIPS
from ngcdl.spec import KINDS, MISSED, Kind, Placement, kind_of

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "toolkit/ngcdl"
TRAINER = ROOT / "containers/trainer"
MODULES = sorted(PACKAGE.rglob("*.py"))
# library -> where it may be imported
OWNERS = {
    "docker": {"engines/docker"},
    "pynvml": {"telemetry/gpu.py"},
    "rich": {"console.py", "terminal_text.py", "cli/gpu.py", "cli/live.py", "cli/screen.py"},
    "typer": {"cli"},
}

# The modules that may name an engine: choosing one, or Docker's state on a host, is their very purpose.
NAME_ENGINES = ("spec", "engines", "choice.py", "doctor", "cli/images.py")


@functools.cache  # several tests ask this of every module
def imported(source: str) -> tuple[tuple[str, bool], ...]:
    """The absolute names that a source imports, and whether that is done at import."""
    return tuple(_imported(source))


def _imported(source: str) -> Iterator[tuple[str, bool]]:
    tree = ast.parse(source)
    later = {id(inner) for one in ast.walk(tree) for part in _not_run(one) for inner in ast.walk(part)}
    for one in ast.walk(tree):
        match one:
            case ast.Import():
                yield from ((alias.name, id(one) not in later) for alias in one.names)
            case ast.ImportFrom(level=0, module=str(name)):
                yield name, id(one) not in later
            case ast.Call(ast.Name("import_module") | ast.Attribute(attr="import_module"), [ast.Constant(str(name))]):
                yield name, id(one) not in later


def _not_run(one: ast.AST) -> list[ast.stmt]:
    """The part of a statement not run at import: a function, and what only type checkers read."""
    if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
        return [one]
    return one.body if isinstance(one, ast.If) and ast.unparse(one.test) == "TYPE_CHECKING" else []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import docker.errors", ("docker.errors", True)),
        ("def f():\n    from rich import live", ("rich", False)),
        ("if TYPE_CHECKING:\n    import rich\nelse:\n    import numpy", ("numpy", True)),
        ("if TYPE_CHECKING:\n    import rich\nelse:\n    import numpy", ("rich", False)),
        ("import importlib\ndef f():\n    importlib.import_module('pynvml')", ("pynvml", False)),
        ("x = import_module('pynvml')", ("pynvml", True)),
    ],
)
def test_an_import_is_seen_and_whether_it_happens_at_import(source: str, found: tuple[str, bool]) -> None:
    assert found in imported(source)


@pytest.mark.parametrize("library", OWNERS)
def test_a_library_is_imported_by_its_owners_and_by_all_of_them(library: str) -> None:
    users = [
        path.relative_to(PACKAGE)
        for path in MODULES
        for name, _ in imported(path.read_text())
        if name.split(".")[0] == library
    ]
    owner = {user: next((one for one in OWNERS[library] if user.is_relative_to(one)), str(user)) for user in users}
    assert set(owner.values()) == OWNERS[library]


def test_the_trainer_imports_nothing_of_ngcdl_and_nothing_of_it_is_imported() -> None:
    for paths, other in ((TRAINER.rglob("*.py"), "ngcdl"), (MODULES, "trainer")):
        users = [path for path in paths for name, _ in imported(path.read_text()) if name.split(".")[0] == other]
        assert users == []


def test_the_trainer_which_imports_nothing_names_the_same_gpus_that_use_the_machine_s_memory() -> None:
    named = {ast.unparse(one.targets[0]): one.value for one in _assigned((TRAINER / "nvml.py").read_text())}
    assert frozenset(ast.literal_eval(named["ON_ARM_CHIPS"])) == ON_ARM_CHIPS


def test_the_trainer_calls_missed_ticks_by_the_words_by_which_they_are_no_reason_of_a_gap() -> None:
    named = {ast.unparse(one.targets[0]): one.value for one in _assigned((TRAINER / "sampler.py").read_text())}
    assert ast.literal_eval(named["MISSED"]) == MISSED


def _assigned(source: str) -> list[ast.Assign]:
    return [one for one in ast.parse(source).body if isinstance(one, ast.Assign)]


def test_no_module_imports_a_heavy_library_at_import_but_its_owner_s() -> None:
    heavy = ("docker", "requests", "pynvml", "rich", "tensorflow", "torch", "numpy")
    found = {
        (str(path.relative_to(PACKAGE)), name)
        for path in MODULES
        for name, at_import in imported(path.read_text())
        if at_import and name.split(".")[0] in heavy
    }
    assert {user for user, name in found if not user.startswith(("registry/", "dataset/"))} == set()


def test_what_only_a_run_s_end_or_a_failure_needs_is_not_loaded_before_its_start() -> None:
    ours = ("report.measured.figures", "report.measured.told", "catalog.failures", "storing.comparisons")
    late = {"statistics", "psutil", *(f"ngcdl.{one}" for one in ours)}
    code = f"import sys; import ngcdl.cli.run, ngcdl.engines.docker; print(*sorted({late!r} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


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


def test_no_character_stands_by_its_name_for_which_the_compiler_would_import_a_module() -> None:
    assert not [one for one in MODULES if re.search(r"(?<!\\)\\N\{", one.read_text())], "Ctrl-C is a SyntaxError then"


def test_every_module_begins_with_its_answer() -> None:
    assert [str(path) for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_the_layers_are_all_there_is() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(one for one in contracts if one["type"] == "layers")
    named = {name.strip() for layer in layers["layers"] for name in layer.split("|")}
    there = {path.stem if path.suffix else path.name for path in PACKAGE.iterdir() if path.name != "py.typed"}
    assert named == there - {"__init__", "__main__", "__pycache__", "containers", "requirements"}


def test_what_engines_differ_in_is_a_fact_of_their_kind_and_no_question_of_their_name() -> None:
    named = {
        f"{path.relative_to(PACKAGE)}:{one.lineno}: {one.value}"
        for path in MODULES
        if not any(path.relative_to(PACKAGE).is_relative_to(owner) for owner in NAME_ENGINES)
        for one in ast.walk(ast.parse(path.read_text()))
        if isinstance(one, ast.Constant) and one.value in KINDS
    }
    assert named == set()


def test_each_kind_of_engine_is_a_module_that_connects_and_each_module_a_kind() -> None:
    there = {path.stem for path in (PACKAGE / "engines").iterdir() if not path.name.startswith("_")}
    assert there - {"base", "values", "yaml"} == set(KINDS)
    for name in KINDS:
        engine = get_type_hints(importlib.import_module(f"ngcdl.engines.{name}").connect)["return"]
        assert engine.name == name
        assert engine.has_containers is engines.OfKind.has_containers, "it has no other word on that than its kind"
        assert engine.is_cluster is engines.OfKind.is_cluster


def test_what_a_kind_of_engine_takes_are_fields_of_a_placement_and_each_is_taken() -> None:
    taken = {name for one in KINDS.values() for name in one.takes}
    assert taken == {one.name for one in fields(Placement)}
    assert all(bool(one.takes) == one.is_cluster for one in KINDS.values())
    assert kind_of("auto") == kind_of("compose") == kind_of(None) == Kind()
