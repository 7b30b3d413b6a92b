"""Variables override config files, and those override defaults."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from house import LIKE_OTHERS

from ngcdl import settings
from ngcdl.errors import BadOption, UsageError


def load(home: Path, **environ: str) -> settings.Settings:
    return settings.load({"HOME": str(home), **environ})


def config(home: Path, text: str | bytes) -> Path:
    path = home / ".config/ngcdl/config.toml"
    path.parent.mkdir(parents=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_without_any_variable_all_lies_below_home(tmp_path: Path) -> None:
    found = load(tmp_path)
    assert found.registry == "nvcr.io"
    assert found.runs == tmp_path / ".local/state/ngcdl/runs"
    assert (found.cache, found.inside) == (tmp_path / ".cache/ngcdl", tmp_path / ".cache/ngcdl/inside")
    assert found.share == tmp_path / ".local/share/ngcdl"
    assert list(tmp_path.iterdir()) == [], "nothing is made by looking"


def test_xdg_folders_count_if_they_are_absolute(tmp_path: Path) -> None:
    found = load(tmp_path, XDG_STATE_HOME="/state", XDG_CACHE_HOME="relative", XDG_DATA_HOME="")
    assert found.runs == Path("/state/ngcdl/runs")
    assert found.cache == tmp_path / ".cache/ngcdl"
    assert found.share == tmp_path / ".local/share/ngcdl"


def test_without_home_a_user_of_the_system_has_the_home_that_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings.pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir="/home/me"))
    for environ in ({}, {"HOME": ""}):
        assert settings.load(environ).runs == Path("/home/me/.local/state/ngcdl/runs")


def test_a_user_without_any_home_needs_none_where_variables_name_all_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings.pwd, "getpwuid", {}.__getitem__)
    named = {name: str(tmp_path) for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")}
    assert settings.load(named).runs == tmp_path / "ngcdl/runs"
    with pytest.raises(BadOption, match="HOME is not set, and no home folder is known for the user"):
        settings.load({})


@pytest.mark.parametrize(("command", "code"), [("check pytorch", 125), ("doctor", 1), ("runs", 2), ("logout", 2)])
def test_a_user_without_any_home_is_told_so_by_every_command(command: str, code: int) -> None:
    nobody = "import pwd, runpy, sys\npwd.getpwuid = {}.__getitem__\nsys.argv[1:] = sys.argv[1].split()\n"
    done = subprocess.run(
        [sys.executable, "-c", nobody + "runpy.run_module('ngcdl', run_name='__main__')", command],
        capture_output=True, text=True, env={"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert done.returncode == code
    if command == "doctor":  # it looks at everything else, too
        assert re.search(
            r"^BROKEN settings +HOME is not set.*\n +Name a folder.*\n +export HOME=DIR$", done.stdout, re.M
        )
        return
    assert done.stdout == ""
    assert done.stderr.splitlines()[1:] == ["  Name a folder to write to:", "      export HOME=DIR"]


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("127.0.0.1:5443", "127.0.0.1:5443"),
        ("https://mirror.example/", "mirror.example"),
        ("mirror.example/nvcr", "mirror.example/nvcr"),
        ("localhost", "localhost"),
        ("", "nvcr.io"),
    ],
)
def test_a_registry_is_a_host_perhaps_with_a_path(tmp_path: Path, text: str, host: str) -> None:
    assert load(tmp_path, NGCDL_REGISTRY=text).registry == host


@pytest.mark.parametrize("text", ["mirror", " ", "a.b/UPPER", "a.b:port", "https://", "a b.c"])
def test_what_is_no_host_is_refused_and_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="NGCDL_REGISTRY"):
        load(tmp_path, NGCDL_REGISTRY=text)


@pytest.mark.parametrize("key", ["nvapi-abc_DEF-123", "ZWJ1" * 20 + "bQ=="])
def test_a_key_in_the_place_of_a_host_is_not_repeated(tmp_path: Path, key: str) -> None:
    with pytest.raises(BadOption, match="in your shell's history now") as typed:
        settings.host(key, key)
    with pytest.raises(BadOption, match=r"NGCDL_REGISTRY = \*\*\*: that looks like a key, not a host\.") as variable:
        load(tmp_path, NGCDL_REGISTRY=key)
    for error in (typed.value, variable.value):
        assert key not in error.message + error.hint
        assert error.hint.endswith("    ngcdl login")
        assert error.exit_code == 2


def test_a_password_beside_a_host_is_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="must be a host") as refused:
        load(tmp_path, NGCDL_REGISTRY="https://me:hush@mirror.example")
    assert "hush" not in refused.value.message


def test_the_config_file_names_a_registry_and_the_variable_wins(tmp_path: Path) -> None:
    config(tmp_path, 'registry = "mirror.example"\n')
    assert load(tmp_path).registry == "mirror.example"
    assert load(tmp_path, NGCDL_REGISTRY="nvcr.io").registry == "nvcr.io"


def test_a_bad_registry_in_the_config_file_is_told_by_the_file_s_name(tmp_path: Path) -> None:
    path = config(tmp_path, 'registry = "mirror"\n')
    with pytest.raises(UsageError) as caught:
        load(tmp_path)
    assert str(path) in caught.value.message


@pytest.mark.parametrize("text", ["registry = ", "registry = 5\n", 'other = "x"\n', b"\xff\xfe"])
def test_a_config_file_that_can_t_be_meant_is_refused_by_name(tmp_path: Path, text: str | bytes) -> None:
    path = config(tmp_path, text)
    with pytest.raises(BadOption) as caught:
        load(tmp_path)
    assert str(path) in caught.value.message


@pytest.mark.parametrize("make", [
    Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.write_bytes(b"#" * (2 << 20)),
])  # fmt: skip
def test_what_is_no_file_of_settings_in_the_config_file_s_place_is_told(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    (tmp_path / ".config/ngcdl").mkdir(parents=True)
    make(tmp_path / ".config/ngcdl/config.toml")
    with pytest.raises(BadOption, match=r"config\.toml"):
        load(tmp_path)


@pytest.mark.parametrize("locked", ["config.toml", "."])
def test_a_config_file_that_this_user_may_not_read_is_told_and_not_passed_over(tmp_path: Path, locked: str) -> None:
    path = config(tmp_path, 'registry = "mirror.example"\n')
    (path.parent / locked).chmod(0)
    code = "from ngcdl import settings\ntry: print(settings.load().registry)\nexcept Exception as e: print(e)"
    command = [*LIKE_OTHERS, sys.executable, "-c", code]
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environ)
    (path.parent / locked).chmod(0o700)
    assert f"{path} can't be read: Permission denied" in done.stdout, done.stderr


def test_a_file_in_the_config_folder_s_place_is_no_config(tmp_path: Path) -> None:
    (tmp_path / ".config").touch()
    assert load(tmp_path).registry == "nvcr.io"
