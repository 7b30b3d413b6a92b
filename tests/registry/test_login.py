"""ngcdl login and logout as a person and a script use them: real processes, a real terminal, a real registry."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from ngc_server import KEY, html

from ngcdl.cli import login
from ngcdl.errors import NoKey

PROGRAM = """
import sys
from ngcdl import console
from ngcdl.cli.login import login, logout
from ngcdl.errors import NgcdlError
if sys.argv[1] == "tty":
    import fcntl, termios
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
try:
    host = sys.argv[2] if len(sys.argv) > 2 else None
    logout(host) if sys.argv[1] == "logout" else login(host, sys.argv[1] == "stdin")
except NgcdlError as error:
    console.show_error(error)
    sys.exit(error.exit_code)
"""


@pytest.fixture
def user(home, ngc):
    return {**home, "NGCDL_REGISTRY": ngc.host, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm"}


def run(user: dict[str, str], way: str, stdin: str | bytes = b"", **variables: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *way.split()],
        input=stdin if isinstance(stdin, bytes) else stdin.encode(),
        env={**user, **variables},
        capture_output=True,
        timeout=240,
        check=False,
    )
    result = subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
    assert "CANARY" not in result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result


def entry(user: dict[str, str], host: str) -> dict[str, str] | None:
    path = Path(user["HOME"]) / ".docker" / "config.json"
    return json.loads(path.read_text())["auths"].get(host) if path.exists() else None


def test_a_key_on_stdin_is_checked_and_kept(user, ngc):
    done = run(user, "stdin", f"{KEY}\n")
    assert done.returncode == 0, done.stderr
    assert f"Signed in to {ngc.host}" in done.stdout
    assert "config.json" in done.stdout
    assert "unencrypted" in done.stderr
    assert entry(user, ngc.host)


@pytest.mark.parametrize("name", ["NGC_API_KEY", "NGC_CLI_API_KEY"])
def test_a_key_in_a_variable_is_taken_without_a_question(user, ngc, name):
    done = run(user, "plain", **{name: KEY})
    assert done.returncode == 0, done.stderr
    assert name in done.stdout
    assert entry(user, ngc.host)


def test_nvidias_key_is_not_for_a_strangers_host(user, ngc):
    for way, variables in (("plain", {"NGC_API_KEY": KEY}), ("stdin", {})):
        done = run(user, f"{way} {ngc.host}", KEY, NGCDL_REGISTRY="nvcr.io", **variables)
        assert done.returncode == 2
        assert f"    docker login {ngc.host}\n  ngcdl reads the same file." in done.stderr
    assert ngc.seen == []
    assert run(user, f"stdin https://{ngc.host}/v2/", KEY).returncode == 0
    assert entry(user, ngc.host)


@pytest.mark.parametrize("way", ["stdin", "logout"])
@pytest.mark.parametrize("host", ["bad", "a.b/C", "https://", "a.b:x"])
def test_what_is_no_host_is_a_usage_error(user, way, host):
    done = run(user, f"{way} {host}", KEY)
    assert done.returncode == 2
    assert "must be a host, such as nvcr.io" in done.stderr


def test_a_broken_config_is_told_before_the_key_is_used(user, ngc):
    path = Path(user["HOME"]) / ".docker" / "config.json"
    path.parent.mkdir()
    path.write_text("{")
    done = run(user, "stdin", KEY)
    assert done.returncode == 125
    assert "not JSON at byte 1" in done.stderr
    assert path.read_text() == "{"
    assert ngc.seen == []


def test_stdin_is_before_the_variable(user, ngc):
    assert run(user, "stdin", KEY, NGC_API_KEY="nvapi-CANARY-wrong").returncode == 0


def test_a_refused_key_leaves_the_old_one(user, ngc):
    assert run(user, "stdin", KEY).returncode == 0
    before = entry(user, ngc.host)
    done = run(user, "stdin", "nvapi-CANARY-wrong")
    assert done.returncode == 125
    assert "refused the key from standard input (401)" in done.stderr
    assert entry(user, ngc.host) == before


def test_without_a_key_and_a_terminal_nobody_waits(user):
    done = run(user, "plain")
    assert done.returncode == 2
    assert "--password-stdin" in done.stderr


@pytest.mark.parametrize(
    "stdin", [b"", b"\n", f"{KEY} x".encode(), b"\xffCANARY", KEY.encode() * 300, b"A" * 10_000_000]
)
def test_a_bad_key_is_not_sent(user, ngc, stdin):
    done = run(user, "stdin", stdin)
    assert done.returncode == 2
    assert ngc.seen == []


def test_a_registry_that_asks_nobody_has_not_checked(user, ngc):
    ngc.challenges = False
    done = run(user, "stdin", KEY)
    assert done.returncode == 0
    assert "not checked" in done.stdout
    assert "Signed in" not in done.stdout


def test_a_portal_in_between_is_said_and_nothing_kept(user, ngc):
    ngc.fail("/v2/", html(200))
    done = run(user, "stdin", KEY)
    assert done.returncode == 125
    assert "Corporate portal" in done.stderr
    assert entry(user, ngc.host) is None


def test_a_key_typed_at_the_prompt_is_hidden(user, ngc):
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "tty"],
        stdin=slave, stdout=slave, stderr=slave, env=user, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    shown = b""
    try:
        while b"hidden): " not in shown:
            shown += os.read(master, 1000)
        os.write(master, KEY.encode() + b"\n")
        while True:
            try:
                chunk = os.read(master, 1000)
            except OSError:  # nobody has the terminal open any more
                break
            if not chunk:
                break
            shown += chunk
        assert process.wait(240) == 0, shown
    finally:
        process.kill()
        process.wait()
        os.close(master)
    assert b"Signed in" in shown
    assert b"CANARY" not in shown
    assert entry(user, ngc.host)


def test_logout_says_what_went_and_what_is_left(user, ngc):
    assert run(user, "stdin", KEY).returncode == 0
    done = run(user, "logout", NGC_API_KEY=KEY)
    assert done.returncode == 0
    assert "removed from" in done.stdout
    assert "NGC_API_KEY is still set" in done.stderr
    assert entry(user, ngc.host) is None
    assert "keeps no key" in run(user, "logout").stdout


def test_logout_takes_the_copy_for_enroot_too(user, ngc):
    copy = Path(user["HOME"]) / ".config/enroot/.credentials"
    copy.parent.mkdir(parents=True)
    copy.write_text(f"machine {ngc.host} login $oauthtoken password {KEY}\n")
    done = run(user, "logout")
    assert f"was removed from {copy}." in done.stdout, done
    assert copy.read_text() == ""


def test_logout_says_what_went_though_the_helper_fails(user, ngc, helper):
    copy = Path(user["HOME"]) / ".config/enroot/.credentials"
    copy.parent.mkdir(parents=True)
    copy.write_text(f"machine {ngc.host} login $oauthtoken password {KEY}\n")
    path = Path(user["HOME"]) / ".docker" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"credsStore": "locked", "auths": {ngc.host: {"auth": "eDp5"}}}))
    helper("locked", "echo the store is locked; exit 1")
    done = run(user, "logout")
    assert done.returncode == 125
    assert f"was removed from {path} and {copy}." in done.stdout
    assert "docker-credential-locked failed: the store is locked" in done.stderr
    assert "elsewhere" not in done.stderr
    again = run(user, "logout")
    assert (again.returncode, again.stdout) == (125, "")
    kept = run(user, "stdin", KEY)
    assert "Nothing was written elsewhere" in kept.stderr


def test_logout_removes_docker_s_key_though_enroot_s_file_can_t_be_read(user, ngc, helper):
    copy = Path(user["HOME"]) / ".config/enroot/.credentials"
    copy.mkdir(parents=True)
    assert run(user, "stdin", KEY).returncode == 0
    done = run(user, "logout")
    assert done.returncode == 125
    assert "was removed from" in done.stdout
    assert entry(user, ngc.host) is None
    assert f"The key for {ngc.host} can't be removed from {copy}: Is a directory." in done.stderr
    assert f"    ngcdl logout {ngc.host}\n" in done.stderr
    (Path(user["HOME"]) / ".docker/config.json").write_text('{"credsStore": "locked"}')
    helper("locked", "echo the store is locked; exit 1")
    both = run(user, "logout").stderr
    assert f"can't be removed from {copy}" in both
    assert "docker-credential-locked failed" in both


def test_the_key_is_on_no_command_line(user, ngc, helper, tmp_path):
    path = Path(user["HOME"]) / ".docker" / "config.json"
    path.parent.mkdir()
    path.write_text('{"credsStore": "spy"}')
    helper("spy", f"cat /proc/*/cmdline 2>/dev/null | tr '\\0' ' ' > {tmp_path}/cmdlines; cat > /dev/null")
    done = run(user, "stdin", KEY)
    assert done.returncode == 0, done.stderr
    assert "docker-credential-spy" in done.stdout
    assert "unencrypted" not in done.stderr
    assert "docker-credential-spy" in (tmp_path / "cmdlines").read_text(errors="replace")
    assert KEY not in (tmp_path / "cmdlines").read_text(errors="replace"), "others' keys may be on others' lines"


def test_a_prompt_that_is_left_with_ctrl_d_was_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def left(_: str) -> str:
        raise EOFError

    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("getpass.getpass", left)
    with pytest.raises(NoKey, match=r"No API key was given\.$"):
        login._read_key("nvcr.io", False, {})
