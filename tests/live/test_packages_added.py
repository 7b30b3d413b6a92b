"""--pip on the real engine, by the images' own pip: of 2017 for Python 2.7, and Debian's for Python 3.11."""

from __future__ import annotations

import base64
import hashlib
import io
import signal
import tarfile
import zipfile
from pathlib import Path

import pytest
from house import until
from ngcdl_child import User

pytestmark = pytest.mark.lab

PIP = ("--pip", "requirements.txt")
# both of Python 2 and 3
CODE = "import greet, os; print(greet.WORD, os.access(os.environ['PYTHONUSERBASE'], os.W_OK))"


def wheel(folder: Path, name: str) -> None:
    """Write a wheel of version 1.0, which has a program of the package's name."""
    about = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": "WORD = 'hello'\ndef main():\n    print(WORD + ' by its program')\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\n"
        "Tag: py2-none-any\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    record = "".join(f"{path},sha256={_digest(text)},{len(text)}\n" for path, text in files.items())
    with zipfile.ZipFile(folder / f"{name}-1.0-py2.py3-none-any.whl", "w") as file:
        for path, text in {**files, f"{about}/RECORD": f"{record}{about}/RECORD,,\n"}.items():
            file.writestr(path, text)


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def slow_source(folder: Path) -> None:
    """Write a source distribution whose setup.py never ends."""
    setup = b"import sys, time\nsys.stderr.write('asleep\\n')\ntime.sleep(3210)\n"
    with tarfile.open(folder / "slow-1.0.tar.gz", "w:gz") as file:
        member = tarfile.TarInfo("slow-1.0/setup.py")
        member.size = len(setup)
        file.addfile(member, io.BytesIO(setup))


def mounted(user: User) -> str:
    """Return the folders that the engine's containers have mounted."""
    return user.docker("ps", "-a", "--no-trunc", "--format", "{{.Mounts}}")


@pytest.fixture
def project(user: User) -> User:
    (user.here / "wheels").mkdir()
    wheel(user.here / "wheels", "greet")
    (user.here / "requirements.txt").write_text("--no-index\n--find-links /work/wheels\ngreet==1.0\n")
    return user


@pytest.mark.parametrize("image", ["tensorflow:18.01-py2", "pytorch:26.07-py3"])
def test_a_script_finds_what_the_image_lacks_and_it_is_installed_once(project: User, image: str) -> None:
    done = project.run("run", image, *PIP, "--", "python", "-c", CODE)
    assert done.code == 0, done
    assert done.out.splitlines()[-1].replace("('", "").replace("',", "").replace(")", "") == "hello False"
    assert "installed: greet==1.0" in done.err
    record = project.record()
    assert record["packages"] == ["greet==1.0"]
    assert record["spec"]["packages"] == ["--no-index", "--find-links /work/wheels", "greet==1.0"]
    assert "greet==1.0" in project.run("show", "last").out
    (project.here / "wheels/greet-1.0-py2.py3-none-any.whl").unlink()
    again = project.run("run", image, *PIP, "--", "greet")
    assert again.code == 0, again
    assert again.out.splitlines()[-1] == "hello by its program"
    assert "install" not in again.err
    replayed = project.run("runs", "replay", "last")
    assert (replayed.code, replayed.out.splitlines()[-1]) == (0, "hello by its program"), replayed


def test_a_project_that_names_its_image_and_packages_needs_neither_typed(project: User) -> None:
    (project.here / "ngcdl.toml").write_text('image = "pytorch:26.07-py3"\npip = ["requirements.txt"]\n')
    done = project.run("run", "--", "greet")
    assert (done.code, done.out.splitlines()[-1]) == (0, "hello by its program"), done
    assert f"from {project.here}/ngcdl.toml: pytorch:26.07-py3, --pip requirements.txt" in done.err
    assert project.record()["packages"] == ["greet==1.0"]


def test_what_pip_can_t_install_stops_the_run_before_it_is_recorded(project: User) -> None:
    done = project.run("run", "pytorch:26.07-py3", *PIP, "--pip", "greet>=2", "--", "true")
    assert done.code == 125, done
    assert "could not be installed" in done.err
    assert "docker build -t mine" in done.err
    assert (project.ids(), project.folder.name in mounted(project)) == ([], False)


@pytest.mark.parametrize(("image", "name"), [("tensorflow:18.01-py2", "numpy"), ("pytorch:26.07-py3", "torch")])
def test_the_image_s_own_builds_are_not_replaced(project: User, image: str, name: str) -> None:
    wheel(project.here / "wheels", name)
    done = project.run("run", image, *PIP, "--pip", f"{name}==1.0", "--", "true")
    assert done.code == 125, done
    assert "never replaced" in done.err
    assert project.run("run", image, *PIP, "--pip", f"{name}>=1", "--", "true").code == 0
    assert project.record()["packages"] == ["greet==1.0"]


def test_ctrl_c_gives_an_installation_up(project: User) -> None:
    slow_source(project.here / "wheels")
    child = project.start("run", "pytorch:26.07-py3", *PIP, "--pip", "slow", "--", "true")
    kept = project.home / ".cache/ngcdl/packages"
    child.until_err("installing for this image, once:")
    until(lambda: any("slow-1.0.tar.gz" in log.read_text() for log in kept.glob("*.part/pip.log")), "its setup.py")
    assert project.folder.name in mounted(project)
    child.signal(signal.SIGINT)
    assert child.done().code == 130
    assert (project.ids(), project.folder.name in mounted(project)) == ([], False)
    assert not [one for one in kept.iterdir() if one.is_dir() and one.suffix != ".part"]


def test_a_dry_run_installs_nothing_and_says_what_would_be_mounted(project: User) -> None:
    done = project.run("run", "pytorch:26.07-py3", *PIP, "--dry-run", "--", "greet")
    assert done.code == 0, done
    assert "first installs, for this image: --no-index" in done.err
    assert "PYTHONUSERBASE=/ngcdl/packages" in done.out
    assert not (project.home / ".cache/ngcdl/packages").exists()
