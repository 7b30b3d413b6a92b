"""The key is kept for enroot as enroot reads it, and as nobody else can."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from house import House

from ngcdl.errors import ConfigNotWritable
from ngcdl.registry import enroot
from ngcdl.registry.key import Credential, Secret

KEY = Credential("$oauthtoken", Secret("nvapi-hush"), "a test")


def test_the_key_is_kept_for_both_of_ngc_s_hosts_and_readable_by_its_owner_alone(tmp_path: Path) -> None:
    file = enroot.keep("nvcr.io", KEY, {"HOME": str(tmp_path)})
    assert file == tmp_path / ".config/enroot/.credentials"
    assert file.read_text().splitlines() == [
        "machine nvcr.io login $oauthtoken password nvapi-hush",
        "machine authn.nvidia.com login $oauthtoken password nvapi-hush",
    ]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]


def test_an_older_key_is_replaced_and_those_of_others_stay(tmp_path: Path) -> None:
    environ = {"ENROOT_CONFIG_PATH": str(tmp_path / "own")}
    (tmp_path / "own").mkdir()
    other = ["# mine", "machine auth.docker.io login me password mine", "machine nvcr.io.example login a password b"]
    old = ["machine nvcr.io login $oauthtoken password old", " machine authn.nvidia.com login x password old"]
    (tmp_path / "own/.credentials").write_text("\n".join([*other, *old]))
    lines = enroot.keep("nvcr.io", KEY, environ).read_text().splitlines()
    assert lines[:3] == other
    assert "old" not in "".join(lines)
    assert len(lines) == 5


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        ("machine a login me\npassword it\nmachine nvcr.io\n  login x\n  password OLD\n",
         "machine a login me\npassword it\n"),
        ("machine nvcr.io\n\tlogin x\n# its key\n\tpassword OLD\n# of a\nmachine a login b password c",
         "# of a\nmachine a login b password c\n"),
        ("machine nvcr.io login x password OLD machine a login b password c\n", " machine a login b password c\n"),
        ("machine a login b password c machine nvcr.io login x password OLD\nmachine d login e password f\n",
         "machine a login b password c \nmachine d login e password f\n"),
        ("machine nvcr.io password default login machine\ndefault login me password it\n",
         "default login me password it\n"),
        ('machine nvcr.io login x password "OLD \\" KEY" account z\nmacdef init\ncd /\n\n', "macdef init\ncd /\n\n"),
        ("# machine nvcr.io login x\nmachine nvcr.io login x password OLD\n# my login is b\n",
         "# machine nvcr.io login x\n# my login is b\n"),
    ],
)  # fmt: skip
def test_of_an_older_entry_no_word_stays_on_whatever_lines_they_stand(tmp_path: Path, before: str, kept: str) -> None:
    (tmp_path / ".credentials").write_text(before)
    text = enroot.keep("nvcr.io", KEY, {"ENROOT_CONFIG_PATH": str(tmp_path)}).read_text()
    assert text.partition("machine nvcr.io login $oauthtoken")[0] == kept
    again = enroot.keep("nvcr.io", KEY, {"ENROOT_CONFIG_PATH": str(tmp_path)}).read_text()
    assert again == text


def test_a_mirror_is_one_host(tmp_path: Path) -> None:
    file = enroot.keep("mirror.example", KEY, {"XDG_CONFIG_HOME": str(tmp_path)})
    assert file.read_text() == "machine mirror.example login $oauthtoken password nvapi-hush\n"


def test_a_folder_that_can_t_be_written_is_an_error_without_the_key(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigNotWritable) as refused:
        enroot.keep("nvcr.io", KEY, {"ENROOT_CONFIG_PATH": str(tmp_path / "file")})
    assert "nvapi" not in f"{refused.value} {refused.value.hint}"


def test_login_copies_the_key_that_is_kept_and_says_where(tmp_path: Path) -> None:
    house = House(tmp_path)
    done = house.run("login", "--enroot", env={"NGC_API_KEY": "nvapi-hush"})
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / ".config/enroot/.credentials") in done.stdout
    assert "nvapi" not in done.stdout + done.stderr
    assert house.run("login", "--enroot").returncode == 2, "there is no key"
