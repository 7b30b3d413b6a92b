"""The key is stored for enroot in the form that enroot reads, and readable by nobody else."""

from __future__ import annotations

import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from house import House

from ngcdl.errors import ConfigNotWritable, KeyNotForEnroot
from ngcdl.registry import enroot
from ngcdl.registry.key import Credential, Secret

KEY = Credential("$oauthtoken", Secret("nvapi-hush"), "a test")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_key_is_kept_for_both_of_ngc_s_hosts_and_readable_by_its_owner_alone(tmp_path: Path) -> None:
    file = enroot.keep("nvcr.io", KEY, {"HOME": str(tmp_path)})
    assert file == tmp_path / ".config/enroot/.credentials"
    assert file.read_text().splitlines() == [
        "machine nvcr.io login $oauthtoken password nvapi-hush",
        "machine authn.nvidia.com login $oauthtoken password nvapi-hush",
    ]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert names(file.parent) == [".credentials", ".credentials.lock"]


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


def test_logins_and_logouts_at_once_lose_no_key(tmp_path: Path) -> None:
    environ = {"ENROOT_CONFIG_PATH": str(tmp_path)}
    enroot.keep("nvcr.io", KEY, environ)
    mirrors = [f"mirror{number}.example" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda host: enroot.keep(host, KEY, environ), mirrors))
        list(pool.map(lambda host: enroot.forget(host, environ), mirrors[:20]))
    kept = {line.split()[1] for line in enroot.path(environ).read_text().splitlines()}
    assert kept == {"nvcr.io", "authn.nvidia.com", *mirrors[20:]}


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


def test_a_mirror_s_entry_is_without_the_port_as_enroot_looks_for_it(tmp_path: Path) -> None:
    environ = {"ENROOT_CONFIG_PATH": str(tmp_path)}
    (tmp_path / ".credentials").write_text("machine mirror.example:5000 login x password OLD\n")
    file = enroot.keep("mirror.example:5000", KEY, environ)
    assert file.read_text() == "machine mirror.example login $oauthtoken password nvapi-hush\n"
    file.write_text(f"{file.read_text()}machine mirror.example:5000 login x password OLD\n")
    assert enroot.forget("mirror.example:5000", environ) == file
    assert file.read_text() == ""


@pytest.mark.parametrize(
    ("user", "password"), [("me", "two words"), ("me", 'a"b'), ("me", "#a"), ("me", "a\nmachine b"), ("<token>", "a")]
)
def test_a_key_that_would_want_quotes_is_refused_and_told_nowhere(tmp_path: Path, user: str, password: str) -> None:
    with pytest.raises(KeyNotForEnroot) as caught:
        enroot.keep("mirror.example", Credential(user, Secret(password), "a test"), {"HOME": str(tmp_path)})
    assert password not in caught.value.message or password == "a"
    assert not (tmp_path / ".config").exists()


def test_a_link_to_the_file_stays_one(tmp_path: Path) -> None:
    own, named = tmp_path / "dotfiles", tmp_path / ".config/enroot/.credentials"
    own.write_text("machine a login b password c\n")
    named.parent.mkdir(parents=True)
    named.symlink_to(own)
    enroot.keep("mirror.example", KEY, {"HOME": str(tmp_path)})
    assert named.is_symlink()
    assert "nvapi-hush" in own.read_text()


def test_a_key_is_forgotten_and_those_of_others_stay(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    assert enroot.forget("nvcr.io", environ) is None
    file = enroot.keep("nvcr.io", KEY, environ)
    file.write_text(f"machine a login b password c\n{file.read_text()}")
    assert enroot.forget("nvcr.io", environ) == file
    assert file.read_text() == "machine a login b password c\n"
    assert enroot.forget("nvcr.io", environ) is None


def test_a_folder_that_can_t_be_written_is_an_error_without_the_key(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigNotWritable) as refused:
        enroot.keep("nvcr.io", KEY, {"ENROOT_CONFIG_PATH": str(tmp_path / "file")})
    assert "nvapi" not in f"{refused.value} {refused.value.hint}"
    assert "ENROOT_CONFIG_PATH" in refused.value.hint


def test_a_write_that_fails_leaves_what_was_there_and_no_key_beside_it(tmp_path: Path) -> None:
    code = """
import resource, sys
from ngcdl.errors import ConfigNotWritable
from ngcdl.registry import enroot
from ngcdl.registry.key import Credential, Secret
resource.setrlimit(resource.RLIMIT_FSIZE, (8, 8))
try:
    enroot.keep("nvcr.io", Credential("me", Secret("nvapi-hush"), "a test"), {"ENROOT_CONFIG_PATH": sys.argv[1]})
except ConfigNotWritable:
    sys.exit(3)
"""
    file = tmp_path / ".credentials"
    file.write_text("machine a login b password c\n")
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert names(tmp_path) == [".credentials", ".credentials.lock"]
    assert file.read_text() == "machine a login b password c\n"


def test_what_others_wrote_stays_to_the_byte_in_whatever_letters(tmp_path: Path) -> None:
    others = "# für mich\n".encode("latin-1")
    (tmp_path / ".credentials").write_bytes(others)
    file = enroot.keep("mirror.example", KEY, {"ENROOT_CONFIG_PATH": str(tmp_path)})
    assert file.read_bytes() == others + b"machine mirror.example login $oauthtoken password nvapi-hush\n"


def test_login_copies_the_key_that_is_kept_and_says_where(tmp_path: Path) -> None:
    house = House(tmp_path)
    done = house.run("login", "--enroot", env={"NGC_API_KEY": "nvapi-hush"})
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / ".config/enroot/.credentials") in done.stdout
    assert "nvapi" not in done.stdout + done.stderr
    assert house.run("login", "--enroot").returncode == 2, "there is no key"
