"""A clone's scripts: what they say of themselves and refuse, and the environment they create once."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from clones import UV, cloned, put, scripted

from ngcdl import __version__

# Stands for a Python: the environments that it makes borrow the packages of this one, pip among them.
PYTHON = f"""#!/bin/sh
case $* in *"-m venv "*) ;; *) exec {sys.executable} "$@" ;; esac
for folder; do :; done
{sys.executable} -m venv --without-pip "$folder"
packages=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo {sysconfig.get_path("purelib")} > "$packages/borrowed.pth"
"""


# Python 3.9, whatever name it is called by.
OLD = """#!/bin/sh
case $* in *print*) echo python3.9-venv ;; *) exit 1 ;; esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return cloned(tmp_path)


def refused(clone: Path, line: str, **variables: str) -> str:
    """What a line using scripts/environment's functions prints before exit 125."""
    environment = {"HOME": str(clone.parent), "PATH": f"{clone.parent}/bin:{os.defpath}", **variables}
    words = ["bash", "-euc", f". scripts/environment; {line}", "scripts/ngcdl"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, cwd=clone)
    assert (done.returncode, done.stdout) == (125, ""), done.stderr
    return done.stderr


def ngcdl(clone: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "HOME": str(clone.parent),
        "PATH": f"{clone.parent}/bin:{os.defpath}",
        "NGCDL_PYTHON": sys.executable,
    }
    return subprocess.run(
        [clone / "scripts/ngcdl", *words], capture_output=True, text=True, check=False, env=environment | variables
    )


def told(clone: Path) -> tuple[str, str, list[str]]:
    """Return stdout and stderr of `scripts/ngcdl --version`, and what it asked of uv."""
    home = clone.parent
    (home / "asked").write_text("")
    done = ngcdl(clone, "--version")
    return done.stdout, done.stderr, (home / "asked").read_text().split()


def test_the_first_call_makes_the_environment_and_the_next_one_starts_it(clone: Path) -> None:
    put(clone, "sync", f"#!/bin/sh\n[ -e '{clone}/.venv/.base.txt' ] || echo sync >>'{clone.parent}/asked'\n")
    out, err, asked = told(clone)
    assert (out, asked) == (f"ngcdl {__version__}\n", ["venv", "pip", "sync"]), err
    assert told(clone) == (f"ngcdl {__version__}\n", "", [])


def test_an_environment_that_another_call_has_made_meanwhile_leaves_ctrl_c_to_the_caller(clone: Path) -> None:
    told(clone)
    line = "root=$PWD venv=$PWD/.venv; make_environment base; trap -p INT; echo on"
    words = ["bash", "-euc", f". scripts/environment; {line}"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=clone)
    assert (done.stdout, done.stderr) == ("on\n", "")


def test_a_terminal_shows_how_long_a_step_has_taken_until_it_ends(clone: Path) -> None:
    put(clone, "sleep", "#!/bin/sh\n")  # a second is over at once
    here, there = os.openpty()
    words = ["bash", "-euc", ". scripts/environment; held sh -c 'read told; echo $told'"]
    environment = {"PATH": f"{clone.parent}/bin:{os.defpath}"}
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=there, env=environment, cwd=clone) as made:
        os.close(there)
        assert select.select([here], [], [], 60)[0]
        assert b" s\r" in os.read(here, 64)
        made.communicate(b"done\n")
    said = b""
    with contextlib.suppress(OSError):  # its end
        while more := os.read(here, 4096):
            said += more
    os.close(here)
    assert (made.returncode, said[-15:]) == (0, b"        \rdone\r\n")


def test_the_packages_of_another_python_on_pythonpath_reach_the_command_and_not_ngcdl(clone: Path) -> None:
    others = clone.parent / "others"
    others.mkdir()
    for name in ("typer", "ngcdl", "ensurepip"):
        (others / f"{name}.py").write_text("raise SystemExit(f'{__name__} of another Python')")
    words = ("run", "--engine", "local", "--", "printenv", "PYTHONPATH")
    done = ngcdl(clone, *words, PYTHONPATH=str(others))
    assert (done.returncode, done.stdout) == (0, f"{others}\n"), done.stderr
    done = ngcdl(clone, "run", "--engine", "local", "--detach", "--", "true", PYTHONPATH=str(others))
    assert done.returncode == 0, done.stderr
    assert ngcdl(clone, "logs", "-f", done.stdout.strip()).returncode == 0, "it has ended"


def test_a_caller_that_closes_stderr_gets_the_exit_code_of_the_command(clone: Path) -> None:
    command = "run --engine local -- sh -c 'echo lost >&2; echo kept; exit {}'"
    for code in (0, 3):
        words = ["bash", "-c", f"scripts/ngcdl {command.format(code)} 2>&-"]
        environment = {"HOME": str(clone.parent), "PATH": f"{clone.parent}/bin:{os.defpath}"}
        done = subprocess.run(
            words, stdout=subprocess.PIPE, text=True, check=False, cwd=clone,
            env=environment | {"NGCDL_PYTHON": sys.executable},
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (code, "kept\n")


@pytest.mark.parametrize("failing", ["venv", "pip"])
def test_where_uv_cannot_install_pip_is_tried(clone: Path, failing: str) -> None:
    put(clone, "python", PYTHON)
    put(clone, "uv", UV.replace("case", f"[ $1 != {failing} ] || {{ echo no route >&2; exit 2; }}\ncase", 1))
    done = ngcdl(clone, "--version", NGCDL_PYTHON="python", PIP_NO_INDEX="1")
    assert (done.returncode, done.stdout) == (0, f"ngcdl {__version__}\n"), done.stderr
    assert "no route\nngcdl: uv could not; trying pip" in done.stderr


def test_an_environment_of_another_user_s_own_python_is_told_from_a_folder_that_can_t_be_written(clone: Path) -> None:
    (clone / ".venv.lock").mkdir()  # even root can't write it
    made = "root=$PWD venv=$PWD/.venv; make_environment base"
    assert "can't be written. Elsewhere:\n    NGCDL_VENV=DIR " in refused(clone, made)
    (clone / ".venv/bin").mkdir(parents=True)
    (clone / ".venv/bin/python").symlink_to("/root/gone/python3")
    said = refused(clone, made)
    assert "/.venv needs /root/gone/python3, which this user can't run. Whoever made it:\n    rm -r " in said


def test_settings_of_pip_for_other_environments_don_t_count_in_ngcdl_s(clone: Path) -> None:
    """All at once: a real pip installs for seconds, and any of them would lead it elsewhere or stop it."""
    (clone.parent / "constraint").write_text("typer==0.0.1\n")
    values = {"PIP_CONSTRAINT": f"{clone.parent}/constraint", "PIP_USER": "1", "PIP_TARGET": "elsewhere"}
    conf = clone.parent / ".config/pip/pip.conf"
    conf.parent.mkdir(parents=True)
    conf.write_text("[install]\nuser = true\n")
    put(clone, "python", PYTHON)
    put(clone, "uv", "#!/bin/sh\nexit 2\n")
    done = ngcdl(clone, "--version", NGCDL_PYTHON="python", PIP_NO_INDEX="1", **values)
    assert (done.returncode, done.stdout) == (0, f"ngcdl {__version__}\n"), done.stderr


def test_a_clone_that_was_moved_starts_its_own_source(clone: Path) -> None:
    told(clone)
    moved = clone.rename(clone.with_name("moved"))
    (moved / "toolkit/ngcdl/__init__.py").write_text('__version__ = "moved"\n')
    assert told(moved) == ("ngcdl moved\n", "", [])


@pytest.mark.parametrize("change", ["gone", "another version", "half removed"])
def test_a_python_that_is_gone_or_another_one_makes_the_environment_anew(clone: Path, change: str) -> None:
    told(clone)
    if change == "gone":
        (clone / ".venv/bin/python").unlink()
        (clone / ".venv/bin/python").symlink_to("/usr/bin/python3.0")
    elif change == "half removed":  # as an interrupted rm leaves it
        (clone / ".venv/pyvenv.cfg").unlink()
        shutil.rmtree(clone / ".venv/lib")
        shutil.rmtree(clone / ".venv/bin")
    else:
        (packages,) = (clone / ".venv/lib").glob("python3.*")
        packages.rename(packages.with_name("python3.0"))
        (clone / ".venv/.place").write_text(f"{clone} /usr/bin/python3.0\n")
    out, err, asked = told(clone)
    assert (out, asked) == (f"ngcdl {__version__}\n", ["venv", "pip"]), err
    assert "is gone, or is another one now" in err


PYTHONS = ("python3", "python3.14", "python3.13", "python3.12", "python3.11")


@pytest.mark.parametrize(
    ("known", "variables", "said"),
    [
        ("python3.11", {}, "    sudo apt-get install python3.11 python3.11-venv\n"),
        ("python3.9", {}, "    NGCDL_PYTHON=/PATH/TO/python3.11 scripts/ngcdl ...\n"),
        ("python3.14", {}, "    sudo apt-get install python3.14 python3.14-venv\n"),
        ("python3.11", {"NGCDL_PYTHON": "python3"}, "    unset NGCDL_PYTHON\n"),
    ],
)
def test_without_a_python_that_is_new_enough_what_helps_is_named(
    clone: Path, known: str, variables: dict[str, str], said: str
) -> None:
    for name in PYTHONS:
        put(clone, name, OLD)
    put(clone, "apt-cache", f"#!/bin/sh\n[ $2 = {known} ]\n")
    assert refused(clone, "find_python", **variables).endswith(said)


@pytest.mark.parametrize(
    ("installer", "said"),
    [
        ("dnf", "    sudo dnf install python3.11\n"),
        ("zypper", "    sudo zypper install python311\n"),
        ("other", "    NGCDL_PYTHON=/PATH/TO/python3.11 scripts/ngcdl ...\n"),
    ],
)
def test_where_there_is_no_apt_nothing_of_it_is_said(clone: Path, installer: str, said: str) -> None:
    for name in PYTHONS:
        put(clone, name, OLD)
    put(clone, installer, "")
    for tool in ("bash", "sh"):  # and nothing else: this machine may have apt
        (clone.parent / "bin" / tool).symlink_to(str(shutil.which(tool)))
    told = refused(clone, "find_python", PATH=f"{clone.parent}/bin")
    assert told.endswith(said)
    assert "apt" not in told


def test_the_newest_python_that_is_known_by_name_is_found(clone: Path) -> None:
    for name in PYTHONS:
        put(clone, name, OLD)
    put(clone, "python3.14", "#!/bin/sh\n")
    words = ["bash", "-euc", ". scripts/environment; find_python"]
    done = subprocess.run(
        words, capture_output=True, text=True, check=True, env={"PATH": f"{clone.parent}/bin:{os.defpath}"}, cwd=clone
    )
    assert done.stdout == f"{clone.parent}/bin/python3.14\n"


def test_a_python_may_lie_in_a_folder_with_a_blank_in_its_name(clone: Path) -> None:
    python = clone / "python"
    python.symlink_to(sys.executable)
    words = ["bash", "-euc", ". scripts/environment; find_python"]
    environment = {"PATH": os.defpath, "NGCDL_PYTHON": str(python)}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment, cwd=clone)
    assert done.stdout == f"{python}\n"


def test_a_python_without_venv_gets_the_package_of_its_own_version(clone: Path) -> None:
    put(clone, "python", OLD)
    put(clone, "apt-get", '#!/bin/sh\necho "$@" >> "$HOME/asked"\n[ $1 = update ]\n')
    put(clone, "sudo", '#!/bin/sh\nshift\nexec "$@"\n')
    assert refused(clone, "make_venv python").endswith("    sudo apt-get install python3.9-venv\n")
    assert (clone.parent / "asked").read_text().split()[-1] == "python3.9-venv"


@pytest.mark.parametrize("name", ["test", "check", "lock", "bench", "gpu-check"])
def test_each_script_says_what_it_is_for_and_makes_nothing_for_that(clone: Path, name: str) -> None:
    before = sorted(clone.rglob("*"))
    done = scripted(clone, name, "--help", NGCDL_PYTHON=sys.executable, PYTHONDONTWRITEBYTECODE="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) >= 2
    assert "#" not in done.stdout.partition("\n")[0]
    assert sorted(clone.rglob("*")) == before
    assert not (clone.parent / "asked").exists(), "uv was not asked for an environment"


@pytest.mark.parametrize(
    ("name", "words", "variables", "said"),
    [
        ("check", ("tests",), {}, "    scripts/check\n"),
        ("test", (), {"NGCDL_LAB": "none"}, "    unset NGCDL_LAB\n"),
        ("test", (), {}, "    sudo -E scripts/test\n    NGCDL_LAB=off scripts/test\n"),
        ("lock", (), {}, "    pipx install uv\n"),
        ("bench", ("gpu",), {"NGCDL_BENCH_PYTHON": "false"}, "    NGCDL_BENCH_PYTHON=PYTHON scripts/bench\n"),
    ],
)
def test_what_can_t_be_is_told_with_the_next_command_and_makes_nothing(
    clone: Path, name: str, words: tuple[str, ...], variables: dict[str, str], said: str
) -> None:
    (clone.parent / "bin/uv").unlink()
    put(clone, "id", "#!/bin/sh\necho 1000\n")
    for tool in ("bash", "dirname", "readlink"):  # and nothing else: this machine may have uv
        (clone.parent / "bin" / tool).symlink_to(str(shutil.which(tool)))
    before = sorted(clone.rglob("*"))
    done = scripted(clone, name, *words, PATH=f"{clone.parent}/bin", **variables)
    assert (done.returncode, done.stdout, done.stderr[-len(said) :]) == (125, "", said)
    assert sorted(clone.rglob("*")) == before


def test_what_could_not_be_installed_is_to_be_tried_again_by_what_was_typed(clone: Path) -> None:
    put(clone, "uv", "#!/bin/sh\necho no route >&2\n[ $1 = venv ]\n")
    put(clone, "python", PYTHON.replace("borrowed.pth", "nothing"))
    done = scripted(clone, "check", NGCDL_PYTHON="python")
    assert done.stderr.endswith(f"is the network there?\n    {clone.parent}/bin/my-check\n")
    assert "(once, some 350 MB)" in done.stderr


def test_an_environment_that_could_not_be_made_is_told_with_what_to_type_again(clone: Path) -> None:
    put(clone, "python", '#!/bin/sh\ncase "$*" in *"-m venv"*) echo disk full >&2; exit 1 ;; esac\n')
    put(clone, "uv", "#!/bin/sh\nexit 2\n")
    done = ngcdl(clone, "--version", NGCDL_PYTHON="python")
    assert done.returncode == 125
    quoted = str(clone / "scripts/ngcdl").replace(" ", "\\ ")
    said = f"disk full\nngcdl: The environment {clone}/.venv could not be made.\n    {quoted} --version\n"
    assert done.stderr.endswith(said)


def test_ctrl_c_while_the_environment_is_made_is_one_line_and_no_traceback(clone: Path) -> None:
    (clone.parent / "bin/uv").unlink()
    fake = '#!/bin/sh\ncase "$*" in *"-m venv"*) kill -INT 0; echo Traceback >&2; exit 130 ;; esac\n'
    put(clone, "python", fake)
    tools = ("bash", "dirname", "readlink", "mkdir", "flock", "rm", "cmp", "sed", "sh")
    for tool in tools:  # and no uv of this machine
        (clone.parent / "bin" / tool).symlink_to(str(shutil.which(tool)))
    environment = {"HOME": str(clone.parent), "PATH": f"{clone.parent}/bin", "NGCDL_PYTHON": "python"}
    done = subprocess.run(
        [str(shutil.which("bash")), clone / "scripts/ngcdl", "--version"],
        capture_output=True, text=True, check=False, env=environment, start_new_session=True,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    making, interrupted = done.stderr.splitlines()
    assert "making the environment" in making
    assert interrupted == "ngcdl: interrupted; the same command goes on"
