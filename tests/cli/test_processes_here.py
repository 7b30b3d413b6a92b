"""A command on this host and its processes: signals, pipes, a terminal, and what it leaves in the background."""

from __future__ import annotations

import os
import pty
import signal
import sys
from pathlib import Path

import pytest
from house import House, until

from ngcdl import processes

HEEDS_CTRL_C = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # pytest may have been started with it ignored
try:
    print("up", flush=True)
    while True:
        time.sleep(0.1)
except KeyboardInterrupt:
    open("saved", "w").close()
    print("saved", flush=True)
"""


def pid_in(path: Path) -> int:
    return int(until(lambda: path.exists() and path.read_text().strip(), str(path)))


def is_gone(pid: int) -> bool:
    found = processes.look(pid)
    return found is None or found.has_ended


@pytest.mark.parametrize("line", ["run -- yes", "run -- sh -c 'yes >&2' 2>&1 >/dev/null"])
def test_a_command_whose_reader_has_gone_ends_as_without_ngcdl(house: House, line: str) -> None:
    done = house.shell(f"ulimit -f 1000000; timeout 60 {sys.executable} -m ngcdl {line} | head -1; "
                       "echo ${PIPESTATUS[0]}")  # fmt: skip
    assert done.stdout.splitlines()[-1] == "141", done.stderr
    record = house.record()
    assert (record["status"], record["exit_code"]) == ("failed", 141)
    if "2>&1" not in line:
        assert record["reason"] == "ended by SIGPIPE: nobody read its stdout any more"
        assert done.stderr.count("stdout is closed; so the command's is closed now, too, as without ngcdl;") == 1
    assert (house.store.folder(record["id"]) / "log.txt").read_bytes().startswith(b"y\ny\n")


def test_a_program_that_minds_no_closed_pipe_goes_on(house: House) -> None:
    line = "trap '' PIPE; while ! echo tick 2>/dev/null; do :; done; while echo tick; do :; done 2>/dev/null; exit 5"
    done = house.shell(f'timeout 60 {sys.executable} -m ngcdl run -- sh -c "{line}" | head -1; echo ${{PIPESTATUS[0]}}')
    assert done.stdout.splitlines()[-1] == "5", done.stderr


@pytest.mark.parametrize("words", [
    ("sh", "-c", "setsid sh -c 'echo $$ > pid; exec sleep 321' & wait"),
    ("sh", "-c", "setsid sh -c 'trap \"\" TERM; echo $$ > pid; while :; do sleep 0.2; done' & wait"),
    ("sh", "-c", "(setsid sh -c 'echo $$ > pid; exec sleep 321' &); sleep 321"),
], ids=["a session of its own", "deaf", "an orphan"])  # fmt: skip
def test_a_stop_leaves_nothing_running(house: House, words: tuple[str, ...]) -> None:
    with house.popen("run", "--", *words) as watcher:
        worker = pid_in(house.home / "pid")
        assert house.run("stop", "last").returncode == 0
        watcher.communicate(timeout=240)
    assert is_gone(worker)
    assert (house.record()["status"], watcher.returncode) == ("interrupted", 143)


def test_a_second_ctrl_c_leaves_nothing_running(house: House) -> None:
    deaf = "trap '' INT TERM; echo $PPID > first; echo $$ > pid; while :; do sleep 0.2; done"
    with house.popen("run", "--", "setsid", "-w", "sh", "-c", deaf) as watcher:
        worker, first = pid_in(house.home / "pid"), pid_in(house.home / "first")
        watcher.send_signal(signal.SIGINT)
        assert watcher.stderr
        until(lambda: "press Ctrl-C again to kill" in watcher.stderr.readline(), "the first one")
        until(lambda: is_gone(first), "the first one's end")  # else the second kills it before it has got SIGINT
        watcher.send_signal(signal.SIGINT)
        watcher.communicate(timeout=240)
    assert is_gone(worker)
    assert (house.record()["status"], watcher.returncode) == ("interrupted", 130)


def test_a_command_s_own_exit_code_of_a_ctrl_c_ends_no_loop_of_the_shell(house: House) -> None:
    ours, theirs = pty.openpty()  # on a terminal a Ctrl-C does
    with house.popen("run", "--", "sh", "-c", "exit 130", stderr=theirs) as watcher:
        assert watcher.wait(240) == 130
    os.close(ours)
    os.close(theirs)


def test_ctrl_c_is_passed_on_to_a_command(house: House) -> None:
    with house.popen("run", "--", sys.executable, "-c", HEEDS_CTRL_C) as watcher:
        assert watcher.stdout
        assert watcher.stdout.readline() == "up\n"
        watcher.send_signal(signal.SIGINT)
        out, _ = watcher.communicate(timeout=240)
    assert (watcher.returncode, out, (house.home / "saved").exists()) == (0, "saved\n", True)
    assert house.record()["reason"] == "stopped by SIGINT"


@pytest.mark.parametrize(("number", "code", "status"), [
    (signal.SIGUSR1, 7, "failed"), (signal.SIGQUIT, 143, "interrupted"),
])  # fmt: skip
def test_no_signal_leaves_a_command_without_its_record(
    house: House, number: signal.Signals, code: int, status: str
) -> None:
    script = "trap 'kill $!; exit 7' USR1; sleep 321 & echo up; wait"
    with house.popen("run", "--", "sh", "-c", script) as watcher:
        assert watcher.stdout
        assert watcher.stdout.readline() == "up\n"
        watcher.send_signal(number)
        watcher.communicate(timeout=240)
    record = house.record()
    assert (watcher.returncode, record["status"], record["exit_code"]) == (code, status, code)


def test_ctrl_c_that_ends_the_reader_too_leaves_the_command_its_output_until_it_has_saved(house: House) -> None:
    """As for `ngcdl run -- python train.py | cat`, where Ctrl-C also ends cat."""
    reader, writer = os.pipe()
    with house.popen("run", "--", sys.executable, "-c", HEEDS_CTRL_C, stdout=writer) as watcher:
        os.close(writer)
        with os.fdopen(reader) as read:
            assert read.readline() == "up\n"
        watcher.send_signal(signal.SIGINT)
        watcher.communicate(timeout=240)
    assert (house.home / "saved").exists()
    assert "Traceback" not in (house.store.folder(house.store.find("last")) / "log.txt").read_text()


def test_the_background_does_not_hold_ngcdl_and_lives_on_if_its_output_goes_elsewhere(house: House) -> None:
    script = "(sleep 3; touch survived) > /dev/null 2>&1 & (while sleep 0.1; do echo tick; done) & echo bye; exit 3"
    done = house.shell(f'timeout 60 {sys.executable} -m ngcdl run -- sh -c "{script}"')
    assert (done.returncode, "bye" in done.stdout) == (3, True), done.stderr
    until((house.home / "survived").exists)


def test_a_run_whose_watcher_was_killed_is_known_by_its_process_alone(house: House) -> None:
    code = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)"
    with house.popen("run", "--", "env", "-i", sys.executable, "-c", code) as watcher:
        worker = pid_in(house.home / "pid")
        until(lambda: house.store.load(house.store.find("last")).container)
        watcher.kill()
        watcher.communicate(timeout=240)
    assert "running" in house.run("runs").stdout
    assert not is_gone(worker)
    house.run("stop", "last")
    assert (is_gone(worker), house.record()["status"]) == (True, "interrupted")


def test_a_run_within_a_run_is_stopped_with_it_and_both_are_recorded(house: House) -> None:
    inner = f"exec {sys.executable} -m ngcdl run -- sh -c 'echo $$ > pid; exec sleep 321'"
    with house.popen("run", "--", "sh", "-c", inner) as watcher:
        worker = pid_in(house.home / "pid")
        until(lambda: all(house.store.load(one).container for one in house.store.ids()))
        watcher.send_signal(signal.SIGTERM)
        watcher.communicate(timeout=240)
    assert is_gone(worker)
    assert [house.store.load(one).status for one in house.store.ids()] == ["interrupted"] * 2


@pytest.mark.parametrize(("number", "name"), [(35, "SIGRTMIN+1"), (9, "SIGKILL")])
def test_any_signal_that_ended_it_is_named(house: House, number: int, name: str) -> None:
    done = house.run("run", "--", "sh", "-c", f"kill -{number} $$")
    assert done.returncode == 128 + number
    assert house.record()["reason"] == f"ended by {name}"


def test_a_script_that_can_t_be_run_says_why_and_gets_no_advice_about_images(house: House) -> None:
    for name, text in {"ns.sh": 'echo "$0 $1"', "sp.sh": "#!/nonexistent/python\n"}.items():
        (house.home / name).write_text(text)
        (house.home / name).chmod(0o755)
    done = house.run("run", "--", "./ns.sh", "a b")
    assert (done.returncode, done.stdout) == (0, "./ns.sh a b\n"), done.stderr
    refused = house.run("run", "--", "./sp.sh")
    assert refused.returncode == 127
    assert "This host lacks what runs ./sp.sh: /nonexistent/python.\n" in refused.stderr
    assert "docker" not in refused.stderr


def test_its_name_is_the_one_that_was_typed_and_it_is_looked_up_in_its_own_path(house: House) -> None:
    assert house.run("run", "--", "sh", "-c", "echo $0").stdout == "sh\n"
    (house.home / "bin").mkdir()
    (house.home / "bin/tool").write_text("#!/bin/sh\necho mine\n")
    (house.home / "bin/tool").chmod(0o755)
    done = house.run("run", "-e", f"PATH={house.home}/bin:/usr/bin:/bin", "--", "tool")
    assert (done.returncode, done.stdout) == (0, "mine\n"), done.stderr


def test_on_a_terminal_a_shell_has_its_functions_and_nothing_of_it_outlives_a_stop(house: House) -> None:
    ours, theirs = pty.openpty()
    env = {"BASH_FUNC_myf%%": "() {  echo called\n}", "TERM": "dumb", "PS1": "ready$ "}
    typed = b"myf; trap '' HUP; sh -c \"trap '' HUP; echo \\$\\$ > pid; exec sleep 321\"\r"
    with house.popen("run", "--", "bash", "--norc", stdin=theirs, stdout=theirs, env=env) as watcher:
        os.close(theirs)
        shown = b""
        while b"ready$ " not in shown:
            shown += os.read(ours, 65536)
        os.write(ours, typed)
        worker = pid_in(house.home / "pid")
        while b"\ncalled" not in shown:
            shown += os.read(ours, 65536)
        watcher.send_signal(signal.SIGTERM)
        watcher.communicate(timeout=240)
    os.close(ours)
    assert is_gone(worker)
