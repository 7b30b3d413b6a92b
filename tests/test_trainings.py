"""A bundled training is one file: what it can't do is read from it, and only there is its name known."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ngcdl import trainings
from ngcdl.choice import DEFAULT_FRAMEWORKS
from ngcdl.errors import BadOption
from ngcdl.spec import FEEDS

ROOT = Path(__file__).resolve().parents[1]
NAMES = frozenset(trainings.names())
# Names with other meanings, such as data, a feed or a loss: they count only when compared with a name.
ELSEWHERE = frozenset({*FEEDS, *(trainings.bundled(name).data for name in NAMES), "distill"})
OF_A_NAME = ("name", "workload", "train")


def compared(source: str) -> Iterator[str]:
    """Yield the trainings that a source compares a value with, literally or through a module constant."""
    tree = ast.parse(source)
    constants = {
        target.id: one.value
        for one in tree.body
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    for one in ast.walk(tree):
        if isinstance(one, ast.Compare):
            yield from _named([one.left, *one.comparators], constants)
        elif isinstance(one, ast.Match):
            patterns = [part.value for part in ast.walk(one) if isinstance(part, ast.MatchValue)]
            yield from _named([one.subject, *patterns], constants)


def _named(operands: list[ast.expr], constants: dict[str, ast.expr]) -> Iterator[str]:
    parts = [part for one in operands for part in (one.elts if isinstance(one, ast.Tuple) else [one])]
    is_of_a_name = any(_last(part) in OF_A_NAME for part in parts)
    for one in (constants.get(one.id, one) if isinstance(one, ast.Name) else one for one in operands):
        for part in ast.walk(one):
            if isinstance(part, ast.Constant) and part.value in NAMES and (is_of_a_name or part.value not in ELSEWHERE):
                yield part.value


def _last(one: ast.AST) -> str | None:
    """The last name in x or a.b.x."""
    return one.id if isinstance(one, ast.Name) else one.attr if isinstance(one, ast.Attribute) else None


@pytest.mark.parametrize(("source", "found"), [
    ("x.name == 'cifar10'", ["cifar10"]),
    ("_RACE = 'cifar10-94'\ndef f(x):\n    return x == _RACE", ["cifar10-94"]),
    ("_SOME = ('scaling', 'cifar10')\nx.workload in _SOME", ["scaling", "cifar10"]),
    ("(vary, workload) == ('batch', 'inference')", ["inference"]),
    ("known.name == 'distill' and recipe.loss == 'distill'", ["distill"]),
    ("_TOLD = {'catdog': 1}\nx not in _TOLD", ["catdog"]),
    ("match x:\n    case 'smoke' | 'lstm':\n        pass", ["smoke", "lstm"]),
    ("workload.data == 'cifar10' or workload.feed == 'resident'", []),
    ("print('ngcdl run --train cifar10'); x.name == 'mine'", []),
])  # fmt: skip
def test_a_comparison_with_the_name_of_a_training_is_seen(source: str, found: list[str]) -> None:
    assert list(compared(source)) == found


@pytest.mark.parametrize("folder", ["toolkit/ngcdl", "containers/trainer"])
def test_no_module_knows_a_training_by_its_name(folder: str) -> None:
    modules = {path: list(compared(path.read_text())) for path in sorted((ROOT / folder).rglob("*.py"))}
    assert len(modules) > len(NAMES)
    assert {str(path.relative_to(ROOT)): names for path, names in modules.items() if names} == {}


def test_the_trainings_are_the_files_of_the_trainer() -> None:
    assert "cifar10" in trainings.names()
    assert not [name for name in trainings.names() if name.startswith("_")]


def test_what_a_training_is_stands_in_its_file_and_is_read_without_running_it() -> None:
    keras = trainings.bundled("cifar10-keras")
    assert (keras.parameters, keras.forward_macs, keras.flops_per_example) == (1_667_594, 14_439_424, 84_867_072)
    assert (keras.batch, keras.input, keras.data, keras.unit) == (32, (32, 32, 3), "cifar10", "images")
    for name in trainings.names():
        known = trainings.bundled(name)
        least = 4 if known.trains else 2  # backward is up to twice forward, at 2 FLOP a MAC
        assert known.flops_per_example >= least * known.forward_macs > 0
        assert set(known.frameworks) <= {"pytorch", "tf1", "tf2"}
        assert known.source


def test_every_training_has_images_that_can_run_it() -> None:
    assert trainings.bundled("cifar10").image_frameworks == DEFAULT_FRAMEWORKS
    assert all(trainings.bundled(name).image_frameworks for name in NAMES)


def test_a_file_that_does_not_say_all_is_told_what_it_lacks(tmp_path: Path) -> None:
    whole = (trainings.containers_folder() / "trainer/workloads/cifar10.py").read_text()
    mine = tmp_path / "my_own.py"
    mine.write_text(whole)
    assert trainings.read(mine) == replace(trainings.bundled("cifar10"), name="my-own")
    mine.write_text(whole.replace("MACS =", "MORE =").replace("STEPS = 1000", "STEPS = 10 * BATCH"))
    with pytest.raises(BadOption, match="--train my-own: its file sets no plain value for MACS, STEPS") as refused:
        trainings.read(mine)
    assert refused.value.hint == f"    {mine}"
    mine.write_text("STEPS = 1\nBATCH = (\n")
    with pytest.raises(BadOption, match=r"my_own\.py: line 2: '\(' was never closed"):
        trainings.read(mine)


def test_of_a_record_s_training_whose_file_is_broken_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> trainings.Bundled:
        raise BadOption(f"--train {name}: its file sets no plain value for MACS.")

    monkeypatch.setattr(trainings, "bundled", broken)
    assert trainings.find("lstm") is None


def test_of_a_record_s_training_that_is_not_here_nothing_is_known() -> None:
    assert trainings.find("of-another-ngcdl") is trainings.find(None) is None
    assert trainings.find("lstm") == trainings.bundled("lstm")


@pytest.mark.parametrize("typed", ["batchsweep", "batch_sweep", "Batch-Sweep"])
def test_a_misspelt_training_is_told_what_may_be_meant(typed: str) -> None:
    with pytest.raises(BadOption, match=f"--train {typed}: choose one of alexnet-r, ") as refused:
        trainings.bundled(typed)
    assert refused.value.hint == "Did you mean --train batch-sweep?\n    ngcdl workloads"
