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
        "--trusted-host pypi.example\nlocal @ https://example.com/a.whl\n"
    )
    (tmp_path / "more/base.txt").write_text("numpy\r\neinops # small\r\n--requirement=deep.txt\r\n")
    (tmp_path / "more/deep.txt").write_text("numpy\nscipy[all]>=1 ; python_version > '3'\n")
    assert listed(["einops", "-r requirements.txt", "tqdm"], tmp_path) == (
        "einops",
        "transformers==4.57.1     --hash=sha256:abc",
        "numpy",
        "scipy[all]>=1 ; python_version > '3'",
        "--extra-index-url https://download.example/whl",
        "git+https://example.com/a/b.git@main",
        "--trusted-host pypi.example",
        "local @ https://example.com/a.whl",
        "tqdm",
    )


def test_a_list_without_a_usual_name_is_known_by_its_folder_and_a_package_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "deps").mkdir()
    for name in ("deps/base", "tqdm"):
        (tmp_path / name).write_text("einops\n")
    assert listed(["deps/base", "tqdm"], tmp_path) == ("einops", "tqdm")


def test_lines_are_read_as_pip_reads_them(tmp_path: Path) -> None:
    text = "\ufeff# C:\\libs\\\neinops\ntqdm==4.67.1\\\n    ; python_version > '3'\n  # \\\nscipy#1\n"
    (tmp_path / "r.txt").write_text(text)
    assert listed(["r.txt"], tmp_path) == ("einops", "tqdm==4.67.1    ; python_version > '3'", "scipy#1")


@pytest.mark.parametrize(
    "line", ["--index-url https://${TOKEN}@example.com/simple", "git+https://${USER}:${TOKEN}@example.com/a/b.git"]
)
def test_a_variable_keeps_a_secret_out_of_the_list(tmp_path: Path, line: str) -> None:
    (tmp_path / "r.txt").write_text(f"{line}\n")
    assert listed(["r.txt"], tmp_path) == (line,)


@pytest.mark.parametrize("line", ["google-auth==2.40.3", "hf-token==1.2.3", "keyring>=24", "python-jose[pass]==3.3"])
def test_a_package_named_like_a_secret_is_none(tmp_path: Path, line: str) -> None:
    assert listed([line], tmp_path) == (line,)


def test_a_secret_is_refused_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("--index-url https://me:hunter2hunter2@example.com/simple\n")
    with pytest.raises(BadOption, match="would be in the record") as told:
        listed(["r.txt"], tmp_path)
    assert "hunter2" not in told.value.message + told.value.hint
    assert "${TOKEN}" in told.value.hint


@pytest.mark.parametrize(
    "line",
    [
        *(".", "./pkg", "../pkg", "/srv/pkg", "~/pkg", ".[dev]", '"./pkg"', "dist/x-1.whl", "x-1.tar.gz"),
        *("pkg @ file:///srv/p", "pkg @ ./p", "-f wheels", "--find-links=./wheels"),
    ],
)
def test_what_only_this_machine_has_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "r.txt").write_text(f"{line}\n")
    with pytest.raises(BadOption, match="may change unnoticed") as told:
        listed(["r.txt"], tmp_path)
    assert "--find-links /work/wheels" in told.value.hint


@pytest.mark.parametrize("line", ["-e .", "-e pkg", "--editable=./pkg", "-e git+https://example.com/a.git#egg=a"])
def test_what_would_be_edited_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "r.txt").write_text(f"{line}\n")
    with pytest.raises(BadOption, match="read-only") as told:
        listed(["r.txt"], tmp_path)
    assert "PYTHONPATH=/work" in told.value.hint


def test_only_files_within_a_folder_are_read_if_one_is_given(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "secrets.txt").write_text("machine example.com password hush\n")
    (project / "link.txt").symlink_to(tmp_path / "secrets.txt")
    (project / "nested.txt").write_text("-r ../secrets.txt\n")
    (project / "r.txt").write_text("einops\n")
    assert listed(["r.txt"], project, within=project) == ("einops",)
    for word in ("../secrets.txt", str(tmp_path / "secrets.txt"), "link.txt", "nested.txt"):
        with pytest.raises(BadOption, match="only files there are read") as told:
            listed([word], project, within=project)
        assert "hush" not in told.value.message


@pytest.mark.parametrize(
    ("word", "files", "why"),
    [
        ("none.txt", {}, "can't be read: No such file"),
        ("r.txt", {"r.txt": "-r gone.txt"}, "gone.txt can't be read"),
        ("r.txt", {"r.txt": "-r r.txt"}, "name each other"),
        ("r.txt", {"r.txt": "-c pins.txt"}, "no constraints file"),
        ("r.txt", {"r.txt": "-cpins.txt"}, "no constraints file"),
        ("x-1.0-py3-none-any.whl", {"x-1.0-py3-none-any.whl": ""}, "may change unnoticed"),
        ("./x-1.tar.gz", {"x-1.tar.gz": ""}, "may change unnoticed"),
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
