"""The key goes to the registry and to Docker's store, and nowhere else."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from house import strace
from ngcdl_child import User

pytestmark = pytest.mark.lab


def _forms(key: str) -> list[bytes]:
    """Return the key as it is, and as it appears in the base64 of $oauthtoken:KEY."""
    whole = base64.b64encode(f"$oauthtoken:{key}".encode()).decode()
    return [key.encode(), whole.rstrip("=")[20:-4].encode()]


def _holding(folder: Path, forms: list[bytes]) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path.relative_to(folder)) for path in files if any(form in path.read_bytes() for form in forms)]


def test_the_key_is_in_no_argv_record_log_or_container(user: User) -> None:
    key, trace = user.lab["registry"]["key"], user.folder / "trace"
    words = list(user.words)
    user.words = [strace(), "-f", "-A", "-qq", "-s", "100000", "-e", "trace=execve", "-o", str(trace), *words]
    shown = [user.run("login", "--password-stdin", stdin=key), user.run("pull", "tensorflow:18.01-py2")]
    shown.append(user.run("run", "tensorflow:18.01-py2", "--pull", "always", "--", "sleep", "0"))
    shown.append(user.run("pull", "tensorflow:nosuch"))
    assert [done.code for done in shown] == [0, 0, 0, 125], shown
    user.words = words
    shown.append(user.run("run", "busybox:1", "-d", "--", "sleep", "60", NGC_API_KEY=key))
    inspected = json.dumps(user.inspect()).encode()
    assert user.run("stop", "last").code == 0
    forms = _forms(key)
    assert b"execve(" in trace.read_bytes()
    text = b"".join((done.out + done.err).encode() for done in shown) + trace.read_bytes() + inspected
    assert not [form for form in forms if form in text]
    assert _holding(user.home, forms) == [".docker/config.json"]
    assert (user.home / ".docker/config.json").stat().st_mode & 0o777 == 0o600
    assert _holding(user.runs, forms) == []


def test_a_secret_variable_reaches_the_container_but_no_record_and_no_argv(user: User) -> None:
    words = ("-e", "MY_TOKEN", "--", "sh", "-c", "echo ${#MY_TOKEN}; sleep 60")
    done = user.run("run", "busybox:1", "-d", *words, MY_TOKEN="canary-swordfish")
    assert done.code == 0, done
    record_text = (user.runs / user.ids()[-1] / "run.json").read_text()
    assert "canary" not in record_text
    watcher = json.loads(record_text)["owner"]["pid"]
    assert b"canary" not in Path(f"/proc/{watcher}/cmdline").read_bytes()
    assert "MY_TOKEN=canary-swordfish" in user.inspect()["Config"]["Env"]
    assert user.run("stop", "last").code == 0
    assert user.log() == "16\n"
    dry = user.run("run", "busybox:1", "-e", "MY_TOKEN", "--dry-run", "--", "true", MY_TOKEN="canary-swordfish")
    assert "canary" not in dry.out, "a dry run is pasted into tickets"


def test_docker_s_proxies_reach_the_container_and_their_password_no_record(user: User) -> None:
    (user.home / ".docker").mkdir()
    proxies = {"default": {"httpProxy": "http://me:canary@proxy.lan:3128", "noProxy": ".lan"}}
    (user.home / ".docker/config.json").write_text(json.dumps({"proxies": proxies}))
    words = ("run", "busybox:1", "-e", "NO_PROXY=mine", "--", "sh", "-c", "echo $http_proxy $no_proxy $NO_PROXY")
    dry = user.run(*words[:2], "--dry-run", "--json", *words[2:])
    assert "http_proxy=***" in dry.out
    assert _holding(user.runs, [b"canary"]) == []
    assert "canary" not in dry.out + dry.err
    done = user.run(*words)
    assert done.out == "http://me:canary@proxy.lan:3128 .lan mine\n", done
    assert _holding(user.runs, [b"canary"]) == [f"{user.ids()[-1]}/log.txt"], "which it wrote itself"


def test_a_command_with_a_key_in_the_environment_needs_no_login(user: User) -> None:
    done = user.run("pull", "tensorflow:18.01-py2", NGC_API_KEY=user.lab["registry"]["key"])
    assert done.code == 0, done
    assert "with the key of the variable NGC_API_KEY" in done.err
    assert not (user.home / ".docker/config.json").exists()


def test_logout_forgets_the_key(user: User) -> None:
    user.login()
    done = user.run("logout")
    assert done.code == 0
    assert _holding(user.home, _forms(user.lab["registry"]["key"])) == []
    assert user.run("pull", "tensorflow:18.01-py2").code == 125
