"""`ngcdl exec`: a second command in the container of a run that goes on."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from house import until
from ngcdl_child import User
from pseudo_terminal import terminal

pytestmark = pytest.mark.lab


@pytest.fixture
def entered(user: User) -> Iterator[User]:
    """A user with a run that goes on."""
    assert user.run("run", "-d", "busybox:1", "-e", "HI=there", "--", "sleep", "3600").code == 0
    user.running()
    yield user
    user.run("stop", "last")


def test_pipes_pass_all_bytes_and_the_command_is_as_the_run_is(entered: User, tmp_path: Path) -> None:
    done = entered.run(
        "exec", "last", "--", "sh", "-c", "cat; pwd; echo $HI $HOME; id -u; echo err >&2; exit 3", stdin="x\n"
    )
    assert (done.code, done.out, done.err) == (3, f"x\n/work\nthere /ngcdl/run/home\n{os.geteuid()}\n", "err\n")
    given, got = os.urandom(300_000), tmp_path / "got"
    (tmp_path / "given").write_bytes(given)
    script = f"{' '.join(entered.words)} exec last -- cat <{tmp_path}/given >{got}"
    subprocess.run(script, shell=True, env=entered.environment, check=True, timeout=240)
    assert got.read_bytes() == given
    for program, hint in (("py-spy", "What follows `--` is the command."), ("nvidia-smi", "    ngcdl gpu\n")):
        missing = entered.run("exec", "last", "--", program)
        assert (missing.code, missing.out) == (127, "")
        assert "The image has no such command" in missing.err
        assert hint in missing.err
        assert "--gpus" not in missing.err, "a run that goes on gets none, or has them"
    assert entered.record()["status"] == "running"


def test_a_command_hears_ctrl_c_and_none_is_left_when_its_reader_goes(entered: User) -> None:
    trap = "trap 'echo heard; exit 9' INT; echo up; while :; do sleep 0.1; done"
    child = entered.start("exec", "last", "--", "sh", "-c", trap)
    child.until_out("up")
    child.signal(signal.SIGINT)
    assert (child.done().code, child.out) == (9, "up\nheard\n")
    script = f"{' '.join(entered.words)} exec last -- yes | head -1"
    subprocess.run(script, shell=True, env=entered.environment, check=True, timeout=240)
    until(lambda: " yes" not in entered.run("exec", "last", "--", "ps").out, "the end of what nobody reads")
    assert entered.record()["status"] == "running"


def test_a_shell_has_a_terminal_and_ends_with_its_run(entered: User) -> None:
    with terminal(entered, "exec", rows=31, columns=97) as shell:
        shell.until("/work")
        shell.ask("stty size", "\n31 97")
        shell.resize(40, 132)
        until(lambda: shell.ask("stty size", "\r\n/work") or b"\n40 132" in shell.shown, "the new size")
        shell.ask("sh -c 'echo is-\"running\"; exec sleep 600'", "is-running")
        shell.type("\x03")
        shell.ask("echo code-$?", "code-130")
        assert entered.run("stop", "last").code == 0
        assert shell.end() == 137
        assert b"the run has ended, and the command with it" in b" ".join(shell.shown.split())
        assert shell.modes() == shell.first_modes
    done = entered.run("exec")
    assert done.code == 125
    assert "can't be entered: it has ended." in done.err
