"""A user's own command in an image: its exit code, input, files, limits and name."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from house import until
from ngcdl_child import User

pytestmark = pytest.mark.lab

OTHER = 12345


def sh(user: User, script: str, *options: str, stdin: str | None = None) -> tuple[int, str]:
    done = user.run("run", "busybox:1", *options, "--", "sh", "-c", script, stdin=stdin)
    return done.code, done.out


def test_the_exit_code_is_the_containers(user: User) -> None:
    assert sh(user, "exit 3") == (3, "")
    record = user.record()
    assert (record["status"], record["exit_code"], record["engine"]) == ("failed", 3, "docker")
    assert record["image"]["digest"] == user.lab["images"]["busybox:1"]
    assert sh(user, "true") == (0, "")
    assert user.record()["status"] == "finished"


@pytest.mark.parametrize("code", [125, 126, 127])
def test_a_code_of_the_program_is_told_from_ngcdls_own(user: User, code: int) -> None:
    done = user.run("run", "busybox:1", "--", "sh", "-c", f"exit {code}")
    assert done.code == code
    record = user.record()
    assert (record["status"], record["exit_code"], record["reason"]) == ("failed", code, None)


@pytest.mark.parametrize(("command", "code", "name"), [
    ("nosuchcommand", 127, "command-missing"), ("nvidia-smi", 127, "nvidia-smi-missing"),
    ("/etc", 126, "command-not-executable"), ("/etc/passwd", 126, "command-not-executable"),
])  # fmt: skip
def test_a_command_that_cannot_start_is_126_or_127_as_with_docker(
    user: User, command: str, code: int, name: str
) -> None:
    done = user.run("run", "busybox:1", "--", command)
    assert done.code == code, done
    assert f"exec {command} failed" in done.err  # the message of docker's own init
    record = user.record()
    assert (record["status"], record["exit_code"]) == ("failed", code)
    assert record["diagnosis"]["name"] == name
    assert (f"    ngcdl run busybox:1 --gpus all -- {command}\n" in done.err) == (command == "nvidia-smi")


def test_what_the_engine_refuses_is_125_with_its_own_words(user: User) -> None:
    done = user.run("run", "busybox:1", "-w", "relative", "--", "true")
    assert done.code == 125, done
    assert "relative" in done.err


def test_stdin_is_passed_on_with_i_and_only_then(user: User) -> None:
    assert sh(user, "cat; exit 4", "-i", stdin="one\ntwo\n") == (4, "one\ntwo\n")
    assert sh(user, "cat", stdin="one\n") == (0, "")
    unread = "what is piped into ngcdl does not reach the container; with -i it does"
    for words, stdin, is_said in ((), "one\n", True), ((), None, False), (("-i",), "one\n", False):
        done = user.run("run", "busybox:1", *words, "--", "true", stdin=stdin)
        assert (done.code, unread in done.err) == (0, is_said)
    big = "0123456789abcdef" * 100_000
    assert sh(user, "wc -c", "-i", stdin=big)[1].split() == ["1600000"]


def test_stdout_and_stderr_stay_apart_and_whole(user: User) -> None:
    script = "i=0; while [ $i -lt 20000 ]; do echo line $i of the output; i=$((i+1)); done; echo wrong >&2"
    done = user.run("run", "busybox:1", "--", "sh", "-c", script)
    assert done.code == 0
    assert done.out.splitlines() == [f"line {i} of the output" for i in range(20000)]
    assert "wrong" in done.err.splitlines()
    assert len(user.log().splitlines()) == 20001


def test_a_mount_is_read_only_if_it_says_so(user: User) -> None:
    folder = user.folder / "data"
    folder.mkdir()
    (folder / "given").write_text("here")
    assert sh(user, "cat /d/given && touch /d/new", "-v", f"{folder}:/d:ro")[0] != 0
    assert not (folder / "new").exists()
    assert sh(user, "cat /d/given && touch /d/new", "-v", f"{folder}:/d") == (0, "here")
    assert (folder / "new").exists()


def test_the_working_directory_is_at_hand(user: User) -> None:
    (user.here / "train.py").write_text("print(1)\n")
    assert sh(user, "pwd; ls; echo made > result") == (0, "/work\ntrain.py\n")
    assert (user.here / "result").read_text() == "made\n"


def test_a_mount_source_that_is_missing_is_named_and_not_made(user: User) -> None:
    done = user.run("run", "busybox:1", "-v", f"{user.folder}/nosuch:/d", "--", "true")
    assert done.code == 125
    assert f"{user.folder}/nosuch: there is no such file or folder" in done.err
    assert not (user.folder / "nosuch").exists()
    assert not user.ids()


def test_variables_arrive(user: User) -> None:
    done = user.run(
        "run", "busybox:1", "-e", "A=1 2", "-e", "FROM_HERE", "--", "sh", "-c", "echo $A.$FROM_HERE.", FROM_HERE="x"
    )
    assert done.out == "1 2.x.\n", done


def free_port() -> int:
    """Return a free port below those that Linux assigns to connections, so that it stays free until it is published."""
    for port in random.sample(range(20_000, 32_768), 100):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("a hundred ports are taken")


def test_a_port_is_really_published(user: User) -> None:
    port = free_port()
    script = "echo published > /tmp/index.html; exec httpd -f -p 8888 -h /tmp"
    child = user.start("run", "busybox:1", "-p", f"127.0.0.1:{port}:8888", "--", "sh", "-c", script)

    def answer() -> bytes:
        try:
            with socket.create_connection(("127.0.0.1", port), 2) as line:
                line.sendall(b"GET /index.html HTTP/1.0\r\n\r\n")
                return line.makefile("rb").read()
        except OSError:
            return b""

    assert b"published" in until(answer, "an answer at the published port")
    second = user.run("run", "busybox:1", "-p", f"127.0.0.1:{port}:8888", "--", "true")
    assert second.code == 125
    assert "Publish another port" in second.err
    child.signal(signal.SIGTERM)
    assert child.done().code == 143


def test_the_documented_limits_are_read_back_inside(user: User) -> None:
    script = "df -k /dev/shm | tail -n 1 | awk '{print $2}'; ulimit -s; ulimit -l; cat /proc/1/comm"
    code, out = sh(user, script)
    shm, stack, memlock, first = out.split()
    assert (code, shm, stack) == (0, "1048576", "65536")
    assert first in ("docker-init", "tini-static", "tini")
    notes = [note for note in user.record()["notes"] if "memlock" in note]
    assert (memlock == "unlimited") != bool(notes)
    assert len(notes) <= 1


def test_a_forbidden_memlock_is_said_once_and_recorded(user: User) -> None:
    done = user.run("run", "busybox:1", "--", "sh", "-c", "ulimit -l; cat")
    if done.out.strip() == "unlimited":
        pytest.skip("this host allows memlock=-1")
    assert done.code == 0
    assert done.err.count("This host forbids --ulimit memlock=-1") == 1
    (note,) = [note for note in user.record()["notes"] if "memlock" in note]
    assert note in done.err
    assert note.endswith((f" {done.out.strip()} KiB.", " the engine's own limit.")), "as the shell inside counts"
    quiet = user.run("run", "busybox:1", "--ulimit", "memlock=host", "--", "true")
    assert "memlock" not in quiet.err


def test_the_images_entrypoint_is_run(user: User) -> None:
    done = user.run("run", "busybox:entry", "--", "echo", "a b", "--flag")
    assert done.out == "lab entrypoint: echo a b --flag\na b --flag\n", done


# -- another user than root -----------------------------------------------------------------------------------------


def _as_other(user: User) -> None:
    """Make `user` unprivileged, but in the group of the engine's socket, like members of the group docker."""
    address = Path(user.environment["DOCKER_HOST"].removeprefix("unix://"))
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    for path in (user.home, user.here):
        os.chown(path, OTHER, OTHER)
    # The capability lets ngcdl read the interpreter, which may be below /root. It gives no right to write, nor to open
    # the engine's socket.
    words = ["setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", f"--groups={address.stat().st_gid}"]
    words += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search", "--"]
    if subprocess.run([*words, *user.words, "--version"], capture_output=True, env=user.environment).returncode:
        pytest.skip("setpriv can't make an ordinary user here")
    user.words = [*words, *user.words]


def _owners(folder: Path) -> set[int]:
    return {path.lstat().st_uid for path in [folder, *folder.rglob("*")]}


def test_the_callers_files_stay_the_callers_and_he_has_a_name(user: User) -> None:
    _as_other(user)
    (user.folder / "data").mkdir()
    inside = ("-v", f"{user.folder / 'data'}:/work/deep/er")
    code, out = sh(user, "id -u; id -g; whoami; touch ~/in-home made-here; echo $HOME", *inside)
    assert (code, out.split()) == (0, [str(OTHER), str(OTHER), "ngcdl", "/ngcdl/run/home"])
    assert (user.here / "made-here").exists()
    assert (user.here / "deep/er").is_dir()
    assert (user.runs / user.ids()[-1] / "home/in-home").exists()
    assert _owners(user.home) == {OTHER}
    assert _owners(user.here) == {OTHER}
    assert sh(user, "id -u", "--root")[1] == "0\n"


def test_the_callers_groups_open_inside_what_they_open_outside(user: User) -> None:
    _as_other(user)
    group = OTHER + 1
    user.words = [f"{word},{group}" if word.startswith("--groups") else word for word in user.words]
    shared = user.folder / "shared"
    shared.mkdir()
    (shared / "words").write_text("for members\n")
    os.chown(shared, 0, group)
    shared.chmod(0o750)
    assert sh(user, "cat /data/words", "-v", f"{shared}:/data:ro") == (0, "for members\n")


def test_a_training_leaves_nothing_of_roots(user: User) -> None:
    _as_other(user)
    words = ("--train", "cifar10", "--steps", "10", "--batch", "8", "--data", "synthetic", "--no-eval")
    done = user.run("run", "pytorch:26.07-py3", *words)
    assert done.code == 0, done
    assert list((user.runs / user.ids()[-1] / "checkpoints").iterdir())
    assert _owners(user.home) == {OTHER}


def test_who_may_not_use_the_socket_is_told_of_the_group(user: User) -> None:
    _as_other(user)
    user.words = [word for word in user.words if not word.startswith("--groups")]
    user.words.insert(1, "--clear-groups")
    done = user.run("run", "busybox:1", "--", "true")
    assert done.code == 125
    assert "This user has no permission to use the Docker engine" in done.err
    assert "sudo usermod -aG docker $USER" in done.err


def test_a_command_that_reports_steps_has_a_speed_and_its_table_on_stderr(user: User) -> None:
    step = r'printf "{\"event\":\"step\",\"t\":%s,\"step\":%s,\"examples_per_second\":90}\n"'
    script = f'for n in 1 2; do {step} "$(date +%s)" $n >>"$NGCDL_RUN/events.jsonl"; done; echo mine'
    done = user.run("run", "busybox:1", "--", "sh", "-c", script)
    assert (done.code, done.out) == (0, "mine\n"), done
    assert "ngcdl: it reported steps:" in done.err
    assert "90.0 examples/s (median)" in done.err
    summary = user.record()["summary"]
    assert (summary["steps"], summary["examples_per_second"]) == (2, 90)
