"""A word that is empty, as of a variable that is not set: an error, never a default."""

from __future__ import annotations

import re

import pytest
from house import TRAIN, House


@pytest.mark.parametrize(
    "words",
    [
        ("run", "", "--", "true"),
        ("run", "--train", "", "--", "true"),
        (*TRAIN, "--resume", ""),
        (*TRAIN, "--device", ""),
        (*TRAIN, "--feed", ""),
        (*TRAIN, "--teacher", ""),
        ("run", "-v", "", "--", "true"),
        ("compare", "", "--train", "cifar10", "--engine", "local"),
        ("compare", "--train", "cifar10", "--engine", "local", "--vary", ""),
        ("suite", "articles", ""),
        ("logout", ""),
        ("login", ""),
        ("report", "--html", ""),
    ],
)
def test_an_empty_word_as_of_a_variable_that_is_not_set_is_not_taken_for_none(
    trained: House, words: tuple[str, ...]
) -> None:
    done = trained.run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.match("ngcdl: .*(is empty|REGISTRY: must be a host)", done.stderr)
    assert trained.store.ids() == [], "nothing was started"


def test_a_project_s_image_that_is_empty_is_no_image(house: House) -> None:
    (house.home / "ngcdl.toml").write_text('image = ""\n')
    done = house.run("run", "--", "true")
    assert (done.returncode, house.store.ids()) == (2, [])
    assert "'' is not an image name: it is empty" in done.stderr
