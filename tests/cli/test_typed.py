"""What `ngcdl run` makes of its argv: which host folder a command gets."""

from __future__ import annotations

import os
import pty
from pathlib import Path
from typing import Any

import pytest

from ngcdl import settings
from ngcdl.cli.typed import Typed, parsed
from ngcdl.cli.typed_container import with_files
from ngcdl.errors import BadOption
from ngcdl.planning.asked import Asked
from ngcdl.spec.kinds import KINDS
from ngcdl.storing.store import Store

IMAGE = "tensorflow:18.01-py2"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in its own parent folder, with a project in it."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "DOCKER_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    found = tmp_path / "home/me"
    (found / "project").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(found))
    return found


def typed(**more: Any) -> Asked:
    config = settings.load()
    return parsed(Typed(image=IMAGE, command=("ls",), **more), config, Store(config.runs))


def folders(asked: Asked) -> tuple[list[str], str | None]:
    """Return all mounts, and the command's working folder."""
    assert asked.own
    assert asked.extra
    mounts = [str(mount) for mount in (*asked.own.mounts, *asked.extra.mounts)]
    return mounts, asked.extra.workdir or asked.own.workdir


def test_a_command_has_the_folder_that_it_was_typed_in(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(home / "project")
    assert folders(typed()) == ([f"{home}/project:/work"], "/work")
    assert capfd.readouterr().err == ""


def test_a_command_gets_a_terminal_if_stdin_and_stdout_are_one_and_it_is_not_detached(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home / "project")
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb"), os.fdopen(theirs, "w") as terminal, (home / "file").open("w") as file:
        monkeypatch.setattr("sys.stdin", terminal)
        for stdout, detach, expected in (
            (terminal, False, True),
            (terminal, True, False),
            (file, False, False),
            (None, False, False),  # closed: >&-
        ):
            monkeypatch.setattr("sys.stdout", stdout)
            own = typed(detach=detach).own
            assert own
            assert own.tty is expected, (stdout, detach)


@pytest.mark.parametrize("engine", [name for name, kind in KINDS.items() if kind.is_cluster])
def test_on_a_cluster_a_command_has_no_terminal_so_that_ctrl_c_is_ours(
    home: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.chdir(home / "project")
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb"), os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        monkeypatch.setattr("sys.stdout", terminal)
        own = typed(engine=engine).own
    assert own
    assert (own.tty, own.stdin) == (False, False)


def test_no_other_folder_stands_in_its_place(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home / "project")
    with pytest.raises(BadOption, match="/work is the working directory of this run") as refused:
        typed(volumes=("..:/work",))
    assert refused.value.hint == "Mount it elsewhere."


@pytest.mark.parametrize("volume", [".:/work", "{home}/project:/work/:ro", "{home}/link:/work"])
def test_the_current_folder_may_be_named_at_its_place_out_of_habit_or_to_be_read_only(
    home: Path, monkeypatch: pytest.MonkeyPatch, volume: str
) -> None:
    """-v "$PWD:/work", where $PWD may be a link."""
    (home / "link").symlink_to(home / "project")
    monkeypatch.chdir(home / "link")
    asked = typed(volumes=(volume.format(home=home),))
    assert asked.extra
    assert folders(asked) == ([str(mount) for mount in asked.extra.mounts], "/work")


def test_a_volume_that_has_the_name_of_a_folder_here_is_told_how_to_be_that(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In ngcdl.toml the same text means the folder."""
    monkeypatch.chdir(home / "project")
    typed(volumes=("data:/data:ro", "./data:/x"))
    assert capfd.readouterr().err == ""
    (home / "project/data").mkdir()
    typed(volumes=("data:/data:ro", "./data:/x"))
    (line,) = capfd.readouterr().err.splitlines()
    assert line.endswith("-v ./data:/data:ro")


@pytest.mark.parametrize("where", ["/", "{home}", "{home}/..", "{home}/.config", "{home}/.local", "{home}/.ssh"])
def test_a_folder_that_holds_keys_is_not_mounted_by_itself_and_that_is_said(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], where: str
) -> None:
    folder = Path(where.format(home=home))
    folder.mkdir(parents=True, exist_ok=True)
    (home / ".local/state/ngcdl/runs").mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(folder)
    assert folders(typed()) == ([], None), "it starts in the image's own folder"
    (line,) = capfd.readouterr().err.splitlines()
    assert f"{folder.resolve()} is not mounted at /work" in line
    assert line.endswith('-v "$PWD:/work"')


@pytest.mark.parametrize("holds", [".ssh", ".docker"])
def test_nor_is_somebody_else_s_home(home: Path, monkeypatch: pytest.MonkeyPatch, holds: str) -> None:
    other = home.with_name("other")
    (other / holds).mkdir(parents=True)
    monkeypatch.chdir(other)
    assert folders(typed()) == ([], None)


@pytest.mark.parametrize("name", ["XDG_STATE_HOME", "XDG_CONFIG_HOME", "DOCKER_CONFIG"])
def test_nor_is_a_folder_that_holds_records_or_keys_because_a_variable_says_so(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    elsewhere = tmp_path / "srv/kept"
    elsewhere.mkdir(parents=True)
    monkeypatch.setenv(name, str(elsewhere))
    monkeypatch.chdir(elsewhere)
    assert folders(typed()) == ([], None)


@pytest.mark.parametrize(
    ("named", "where"),
    [
        ({"volumes": (".:/work",)}, "/work"),
        ({"volumes": (".:/work",), "workdir": "/mine"}, "/mine"),
        ({"workdir": "/work"}, "/work"),
        ({"workdir": "/work/project"}, "/work/project"),
    ],
)
def test_a_folder_that_holds_keys_is_mounted_where_it_was_named_and_nothing_is_said(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], named: dict[str, Any], where: str
) -> None:
    monkeypatch.chdir(home)
    assert folders(typed(**named)) == ([f"{home}:/work"], where)
    assert capfd.readouterr().err == ""


def test_two_folders_at_one_path_in_the_container_are_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home / "project")
    with pytest.raises(BadOption, match="-v /a:/data and -v /b:/data/:ro: both are at /data") as caught:
        typed(volumes=("/a:/data", "/b:/data/:ro"))
    assert caught.value.hint == "Leave one of them out."
    with pytest.raises(BadOption, match="/work is the working directory of this run"):
        typed(volumes=("/a:/work/",))


def test_another_folder_at_work_or_elsewhere_does_not_bring_the_home_along(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    assert folders(typed(volumes=("./project:/work:ro",))) == ([f"{home}/project:/work:ro"], "/work")
    assert folders(typed(volumes=("./project:/work/",))) == ([f"{home}/project:/work/"], "/work")
    assert folders(typed(volumes=("/data:/data",), workdir="/workshop")) == (["/data:/data"], "/workshop")


def test_a_size_without_a_unit_is_in_bytes_as_for_docker(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home / "project")
    extra = typed(shm_size="65536").extra
    assert extra
    assert extra.shm_bytes == 64 << 10


def test_a_file_of_variables_is_read_as_docker_reads_it_and_typed_ones_override_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MINE", "here")
    monkeypatch.delenv("NOT_SET", raising=False)
    (file := tmp_path / ".env").write_text("\ufeff# keys\n\n  A=1 2=3\r\nB='x'\nMINE\nNOT_SET\n", encoding="utf-8")
    found = with_files(Typed(env_files=(str(file),), environment=("A=5",)))
    assert found.environment == ("A=1 2=3", "B='x'", "MINE=here", "A=5")
    assert "the quotes are part of the value of B, as for docker\n" in capsys.readouterr().err
    for wrong in ("export API_KEY=hush", "EPOCHS 3"):
        file.write_text(f"A=1\n{wrong}\n")
        with pytest.raises(BadOption, match=r"\.env: line 2 must be NAME=VALUE\.$"):
            with_files(Typed(env_files=(str(file),)))
    file.write_text("export API_KEY=hush\nA=1\nEPOCHS 3\n")
    with pytest.raises(BadOption, match=r"\.env: lines 1, 3 must be NAME=VALUE\.$"):
        with_files(Typed(env_files=(str(file),)))
    with pytest.raises(BadOption, match="No such file"):
        with_files(Typed(env_files=(f"{file}s",)))
