"""ngcdl.toml: a project's own image, packages and limits, for what is not typed."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from house import House

from ngcdl.cli.project import filled
from ngcdl.cli.typed import Typed
from ngcdl.errors import BadOption

SETTINGS = """
image = "pytorch:25.03-py3"
pip = ["requirements.txt", "einops"]
volume = ["data:/data:ro"]
shm-size = "8g"
gpus = "1"

[env]
EPOCHS = "3"
"""
COMMAND = Typed(command=("python", "train.py"))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "ngcdl.toml").write_text(SETTINGS)
    (tmp_path / "requirements.txt").write_text("scipy\n")
    monkeypatch.chdir(tmp_path / "src")
    return tmp_path


def test_what_is_not_typed_comes_from_the_project_and_is_said(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = filled(COMMAND)
    assert (found.image, found.shm_size, found.gpus) == ("pytorch:25.03-py3", "8g", "1")
    assert found.packages == ("scipy", "einops")
    assert found.volumes == (f"{project}/data:/data:ro",)
    assert found.environment == ("EPOCHS=3",)
    assert capsys.readouterr().err.replace("\n    ", " ") == (
        f"ngcdl: from {project}/ngcdl.toml: pytorch:25.03-py3, --gpus 1, --shm-size 8g, --pip requirements.txt, "
        "--pip einops, -v data:/data:ro, -e EPOCHS\n"
    )


def test_what_is_typed_counts_and_lists_add_up(project: Path) -> None:
    typed = Typed(
        image="tensorflow:24.05", gpus="auto", given=frozenset({"image", "gpus"}), packages=("tqdm",),
        environment=("EPOCHS=5",),
    )  # fmt: skip
    found = filled(typed)
    assert (found.image, found.gpus) == ("tensorflow:24.05", "auto")
    assert found.packages[-1] == "tqdm"
    assert dict(text.split("=") for text in found.environment) == {"EPOCHS": "5"}


def test_a_typed_folder_replaces_the_project_s_at_the_same_path_in_the_container(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "ngcdl.toml").write_text('image = "pytorch"\nvolume = ["data:/data:ro", "more:/more"]\n')
    assert filled(Typed(volumes=("/big:/data/",))).volumes == (f"{project}/more:/more", "/big:/data/")
    assert "-v data" not in capsys.readouterr().err


@pytest.mark.parametrize("typed", [Typed(train="cifar10"), Typed(command=("true",), engine="local")])
@pytest.mark.usefixtures("project")
def test_a_bundled_training_and_a_command_on_this_host_take_nothing_of_it(typed: Typed) -> None:
    assert filled(typed) is typed


def test_without_an_image_there_is_no_container_to_set_up_and_that_is_said(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "ngcdl.toml").write_text('pip = ["einops"]\n')
    assert filled(COMMAND) is COMMAND
    assert "is left out: no image is named" in capsys.readouterr().err
    assert filled(Typed(image="pytorch")).packages == ("einops",)


def test_the_nearest_file_counts(project: Path) -> None:
    (project / "src/ngcdl.toml").write_text('image = "tensorflow:24.05-tf2-py3"\n')
    found = filled(COMMAND)
    assert (found.image, found.packages) == ("tensorflow:24.05-tf2-py3", ())


def test_another_user_s_file_decides_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = project.stat().st_uid + 7
    path = project / "ngcdl.toml"
    monkeypatch.setattr("ngcdl.cli.project.os.getuid", lambda: other)
    if project.stat().st_uid == 0:
        monkeypatch.setattr("ngcdl.cli.project._ROOT", other + 1)
    assert filled(COMMAND) is COMMAND
    assert f"{path} is another user's" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("image = ", "is not TOML"),
        ('imgae = "pytorch"', "imgae is no setting; those are image, gpus"),
        ("image = []", 'image must be text: image = "..."'),
        ('image = "pytorch"\ngpus = 1', 'gpus must be text: gpus = "1"'),
        ('image = "pytorch"\npip = "einops"', r'pip must be a list: pip = \["einops"\]'),
        ('image = "pytorch"\nenv = ["A=B"]', "env must be { NAME"),
        ('image = "pytorch"\nvolume = ["/:/host"]', "only folders of the project"),
        ('image = "pytorch"\nvolume = ["../other:/other"]', "only folders of the project"),
        ('image = "pytorch"\nvolume = ["~/.ssh:/keys"]', "only folders of the project"),
        ('image = "pytorch"\nvolume = ["~no-such-user/x:/data"]', "there is no such folder"),
        ('image = "pytorch"\nvolume = ["a\\u0000b:/data"]', "there is no such folder"),
    ],
)
def test_what_is_no_setting_or_opens_the_host_is_refused(project: Path, text: str, why: str) -> None:
    (project / "ngcdl.toml").write_text(text)
    with pytest.raises(BadOption, match=why):
        filled(COMMAND)


@pytest.mark.parametrize("host", ["/it's here", "/a b", "/a;b"])
def test_a_folder_that_is_to_be_typed_is_quoted_for_the_shell(house: House, host: str) -> None:
    (house.home / "ngcdl.toml").write_text(f'image = "pytorch:25.03-py3"\nvolume = ["{host}:/data"]\n')
    done = house.run("run", "--dry-run", "--", "true")
    assert done.returncode == 2, done.stderr
    advised = done.stderr.splitlines()[-1]
    assert shlex.split(advised) == ["ngcdl", "run", "--dry-run", "-v", f"{host}:/data", "--", "true"], done.stderr


def test_a_link_out_of_the_project_opens_nothing(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (project / "data").symlink_to(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(BadOption, match="only folders of the project"):
        filled(COMMAND)


def test_no_list_outside_of_the_project_is_read(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "ngcdl.toml").write_text('image = "pytorch"\npip = ["../notes.txt"]\n')
    (project.parent / "notes.txt").write_text("hush\n")
    with pytest.raises(BadOption, match="only files there are read"):
        filled(COMMAND)
    assert f"from {project}/ngcdl.toml: " in capsys.readouterr().err, "nobody typed what the error is about"


def test_where_docker_is_missing_the_way_around_the_image_is_told(house: House) -> None:
    (house.home / "ngcdl.toml").write_text('image = "pytorch:25.03-py3"\n')
    done = house.run("run", "--", "true")
    assert done.returncode == 125
    assert "from " in done.stderr
    assert "ngcdl run --engine local -- true" in done.stderr
    assert house.run("run", "--engine", "local", "--", "true").returncode == 0
