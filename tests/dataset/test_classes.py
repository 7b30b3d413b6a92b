"""A folder of images: how many classes it has, counted as the trainer does."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from house import LIKE_OTHERS

from ngcdl import trainings
from ngcdl.dataset import classes, pictures
from ngcdl.errors import BadOption


def folder(root: Path, *files: str) -> Path:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    return root


@pytest.mark.parametrize(("files", "names"), [
    (("cats/1.jpg", "dogs/1.PNG"), ("cats", "dogs")),
    (("train/cats/1.jpeg", "train/dogs/1.jpg", "test/cats/1.jpg", "val/x/1.jpg"), ("cats", "dogs")),
    (("cats/1.jpg", "dogs/read.me", "test/cats/1.jpg"), ("cats",)),
    (("1.jpg",), ()),
    (("cats/1.jpg", "dogs/._1.jpg", ".ipynb_checkpoints/1.jpg"), ("cats",)),
])  # fmt: skip
def test_a_class_is_a_folder_with_pictures_and_no_split(tmp_path: Path, files: tuple[str, ...], names: object) -> None:
    place, found = classes.find(folder(tmp_path, *files))
    assert (place.name == "train", found) == ("train/cats/1.jpeg" in files, names)


def test_a_folder_that_can_be_listed_but_not_entered_has_classes_that_are_not_known(tmp_path: Path) -> None:
    folder(tmp_path / "listed", "cats/1.jpg", "dogs/1.jpg").chmod(0o600)
    code = "import pathlib, sys; from ngcdl.dataset.classes import find; print(find(pathlib.Path(sys.argv[1])))"
    words = [*LIKE_OTHERS, sys.executable, "-c", code, str(tmp_path / "listed")]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.endswith(", None)\n")


def test_it_is_the_trainer_s_way_to_count() -> None:
    trainer = trainings.containers_folder() / "trainer" / "pictures.py"
    said = {
        statement.targets[0].id: ast.literal_eval(statement.value)
        for statement in ast.parse(trainer.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and statement.targets[0].id in ("SPLITS", "ENDINGS")
    }
    assert said["SPLITS"] == {"train": classes.TRAINING, "test": classes.TESTING}
    assert said["ENDINGS"] == classes.ENDINGS


@pytest.mark.parametrize(("files", "said"), [
    ((), "has no folder of images; it needs 2, one per class"),
    (("cats/1.jpg",), "has one folder of images, cats; it needs 2"),
    (("a/1.jpg", "b/1.jpg", "c/1.jpg"), "has the folders of images a, b, c; it needs 2"),
])  # fmt: skip
def test_too_few_or_too_many_classes_are_refused(tmp_path: Path, files: tuple[str, ...], said: str) -> None:
    with pytest.raises(BadOption, match=said) as refused:
        pictures(str(folder(tmp_path, *files)), 2)
    assert "ngcdl run ... --data synthetic" in str(refused.value.hint)
    pictures(str(tmp_path))  # without a count, the trainer checks


@pytest.mark.parametrize(("files", "said"), [
    (("1.jpg",), "test has no folder of images; the test needs the same classes as the training, cats, dogs"),
    (("cats/1.jpg", "hounds/1.jpg"), "test has the folders of images cats, hounds; the test needs"),
])  # fmt: skip
def test_other_classes_to_test_with_are_refused_where_it_is_tested(
    tmp_path: Path, files: tuple[str, ...], said: str
) -> None:
    place = str(folder(tmp_path, "cats/1.jpg", "dogs/1.jpg", *(f"test/{name}" for name in files)))
    with pytest.raises(BadOption, match=said) as refused:
        pictures(place, 2)
    assert "--no-eval" in str(refused.value.hint)
    pictures(place, 2, is_tested=False)
    pictures(place)


def test_the_classes_of_a_test_may_be_written_in_capitals(tmp_path: Path) -> None:
    pictures(str(folder(tmp_path, "train/cats/1.jpg", "train/dogs/1.jpg", "val/Dogs/1.jpg", "val/cats/1.jpg")), 2)


def test_what_can_t_be_read_is_left_to_the_trainer(tmp_path: Path) -> None:
    assert classes.find(tmp_path / "gone") == (tmp_path / "gone", None)
