"""--pip: names and requirements files become the lines of one list, and what a record can't repeat is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ngcdl.errors import BadOption
from ngcdl.planning.requirements import listed


def test_names_and_the_lines_of_files_are_one_list_without_doubles_or_comments(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "requirements.txt").write_text(
        "# what train.py needs\n\ntransformers==4.57.1 \\\n    --hash=sha256:abc  # pinned\n-r more/base.txt\n"
        "--extra-index-url https://download.example/whl\ngit+https://example.com/a/b.git@main\n"
        "-e git+https://example.com/a/c.git#egg=c\nlocal @ https://example.com/a.whl\n"
    )
    (tmp_path / "more/base.txt").write_text("numpy\r\neinops # small\r\n--requirement=deep.txt\r\n")
    (tmp_path / "more/deep.txt").write_text("numpy\nscipy[all]>=1 ; python_version > '3'\n")
    assert listed(["einops", "requirements.txt", "tqdm"], tmp_path) == (
        "einops",
        "transformers==4.57.1      --hash=sha256:abc",
        "numpy",
        "scipy[all]>=1 ; python_version > '3'",
        "--extra-index-url https://download.example/whl",
        "git+https://example.com/a/b.git@main",
        "-e git+https://example.com/a/c.git#egg=c",
        "local @ https://example.com/a.whl",
        "tqdm",
    )


def test_a_variable_keeps_a_secret_out_of_the_list(tmp_path: Path) -> None:
    line = "--index-url https://${TOKEN}@example.com/simple"
    (tmp_path / "r.txt").write_text(f"{line}\n")
    assert listed(["r.txt"], tmp_path) == (line,)
    (tmp_path / "r.txt").write_text("--index-url https://me:hunter2hunter2@example.com/simple\n")
    with pytest.raises(BadOption, match="has a secret in it") as told:
        listed(["r.txt"], tmp_path)
    assert "hunter2" not in told.value.message + told.value.hint
    assert "${TOKEN}" in told.value.hint


@pytest.mark.parametrize(
    "line", [".", "./pkg", "../pkg", "/srv/pkg", "~/pkg", "-e .", "-e pkg", "--editable=./pkg", "pkg @ file:///srv/p"]
)
def test_what_may_change_unnoticed_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "r.txt").write_text(f"{line}\n")
    with pytest.raises(BadOption, match="may change") as told:
        listed(["r.txt"], tmp_path)
    assert "PYTHONPATH=/work" in told.value.hint


@pytest.mark.parametrize(
    ("word", "files", "why"),
    [
        ("none.txt", {}, "can't be read: No such file"),
        ("r.txt", {"r.txt": "-r gone.txt"}, "gone.txt can't be read"),
        ("r.txt", {"r.txt": "-r r.txt"}, "name each other"),
        ("r.txt", {"r.txt": "-c pins.txt"}, "no constraints file"),
        ("numpy scipy", {}, "one package each"),
        ("pyproject.toml", {"pyproject.toml": "[project]"}, "must be a requirements file"),
    ],
)
def test_what_is_no_list_is_refused(tmp_path: Path, word: str, files: dict[str, str], why: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(BadOption, match=why):
        listed([word], tmp_path)


def test_a_version_with_blanks_is_one_package(tmp_path: Path) -> None:
    assert listed(["transformers >= 4.57"], tmp_path) == ("transformers >= 4.57",)
