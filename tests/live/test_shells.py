"""A shell in the container on a real terminal, and plain lines without one."""

from __future__ import annotations

import os
import signal

import pytest
from faulty_front import Front
from house import until
from ngcdl_child import User
from pseudo_terminal import Terminal, terminal

from ngcdl.running.reconcile import DETACHED

pytestmark = pytest.mark.lab


def test_a_shell_in_the_image_of_2018_has_a_terminal_that_follows_the_window(user: User) -> None:
    (user.here / "my_script.py").write_text("print('mine')\n")
    with terminal(user, "run", "tensorflow:18.01-py2", rows=31, columns=97) as shell:
        shell.until("/work$" if os.geteuid() else "/work#")
        assert b"I have no name" not in shell.shown
        shell.ask("tty", "/dev/pts/0")
        until(lambda: _size(shell) == "31 97", "the first size")
        shell.resize(40, 132)
        until(lambda: _size(shell) == "40 132", "the new size")
        shell.ask("python my_script.py", "mine")
        # the child itself reports that it runs: a Ctrl-C while the shell is still forking may be lost
        shell.ask("sh -c 'echo is-\"running\"; exec sleep 600'; echo not-'reached'", "is-running")
        shell.type("\x03")
        shell.ask("echo still-'here'", "still-here")
        assert b"not-reached" not in shell.shown
        shell.type("exit 5\r")
        assert shell.end() == 5
        assert shell.modes() == shell.first_modes
    record = user.record()
    assert (record["status"], record["exit_code"]) == ("failed", 5)
    assert "still-here" in user.log()


def _size(shell: Terminal) -> str:
    shell.ask("echo size=$(stty size)=", "size=")
    shell.until("=\r\n")
    found = [line for line in shell.shown.decode().splitlines() if line.startswith("size=") and "$" not in line]
    return found[-1].strip("=").removeprefix("size=").strip() if found else ""


def test_ctrl_p_ctrl_q_detaches_and_leaves_it_running(user: User) -> None:
    with terminal(user, "run", "busybox:1", "--", "sh", "-c", "echo up; exec cat") as shell:
        shell.until("up")
        shell.ask("hello", "hello\r\nhello")  # as typed, and by cat
        shell.type("\x10\x11")
        assert shell.end() == 0, shell.shown
        assert b"it keeps running as" in shell.shown
        assert b"ngcdl stop " in shell.shown
    record = user.record()
    assert record["status"] == "running"
    assert [note for note in user.shown()["notes"] if "measured from then on" in note] == [DETACHED]
    (container,) = user.containers()
    assert user.docker("inspect", "-f", "{{.State.Running}}", container) == "true"
    assert user.run("stop", "last").code == 0
    assert user.record()["status"] == "interrupted"
    assert user.containers() == []


def test_a_command_on_a_terminal_gives_its_code_and_the_terminal_back(user: User) -> None:
    with terminal(user, "run", "busybox:1", "--", "sh", "-c", "test -t 0 && test -t 1 && exit 7") as shell:
        assert shell.end() == 7, shell.shown
        assert shell.modes() == shell.first_modes


def test_a_hangup_of_the_terminal_ends_the_run(user: User) -> None:
    with terminal(user, "run", "busybox:1", "--", "sh", "-c", "echo up; exec cat") as shell:
        shell.until("up")
        os.kill(shell.pid, signal.SIGHUP)
        assert shell.end() == 143, shell.shown  # the command's own, which is stopped by SIGTERM
    record = user.record()
    assert (record["status"], record["reason"]) == ("interrupted", "stopped by SIGHUP")
    assert "With --detach a run goes on." in " ".join(user.run("show").out.split())


def test_a_pull_moves_on_a_terminal_and_is_plain_lines_elsewhere(user: User, front: Front) -> None:
    user.environment["NGCDL_REGISTRY"] = front.host
    with terminal(user, "pull", "busybox:1") as moving:
        assert moving.end() == 0
        assert b"\x1b" in moving.shown or b"Already exists" in moving.shown or b"Status:" in moving.shown
    done = user.run("pull", "busybox:entry", TERM="xterm")
    assert done.code == 0
    assert "\x1b" not in done.err
    assert "\r" not in done.err
    assert "Digest: sha256:" in done.err
    user.docker("rmi", f"{front.host}/nvidia/busybox:1", f"{front.host}/nvidia/busybox:entry")


def test_without_a_terminal_nothing_is_escaped_and_no_terminal_is_made(user: User) -> None:
    done = user.run("run", "busybox:1", "--", "sh", "-c", "test -t 1 || echo none", TERM="xterm")
    assert done.out == "none\n"
    assert "\x1b" not in done.err
