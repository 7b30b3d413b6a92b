"""ngcdl.registry.helper: real programs that answer well, badly, late or never."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
from pathlib import Path

import pytest
from stock import HELPERS, KEY, NOT_FOUND, NVCR, OTHER, auth, leaks, text_of

from ngcdl import processes
from ngcdl.errors import (
    ConfigBroken,
    CredentialsError,
    HelperFailed,
    HelperHung,
    HelperMissing,
)
from ngcdl.registry.credentials import find, find_or_none, forget, save
from ngcdl.registry.key import Secret


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nosuch", HelperMissing),
        ("locked", HelperFailed),
        ("garbage", HelperFailed),
        ("object", HelperFailed),
        ("list", HelperFailed),
        ("number", HelperFailed),
        ("leaky", HelperFailed),
        ("hangs", HelperHung),
        ("forks", HelperHung),
        ("endless", HelperFailed),
        ("../../tmp/evil", ConfigBroken),
        ("a b", ConfigBroken),
        ("-x", ConfigBroken),
    ],
)
def test_a_helper_that_fails_is_named_and_does_not_block_a_public_image(home, config, helper, name, expected):
    for known, script in HELPERS.items():
        helper(known, script)
    path = config(json.dumps({"credsStore": name, "auths": {NVCR: {}}}))
    seconds = 0.3 if expected is HelperHung else 60.0  # a busy machine starts no shell in 0.3 s
    with pytest.raises(expected) as caught:
        find(NVCR, home, helper_seconds=seconds)
    assert not leaks(text_of(caught.value))
    if expected is not ConfigBroken:
        assert f"docker-credential-{name}" in caught.value.message
    credential, told = find_or_none(NVCR, home, helper_seconds=seconds)
    assert credential is None
    assert type(told) is expected
    assert str(path) in text_of(caught.value) or expected not in (HelperMissing, ConfigBroken)


@pytest.mark.parametrize("name", ["nosuch", "locked", "hangs"])
@pytest.mark.parametrize("is_docker_s", [True, False])
def test_a_helper_that_fails_hides_no_key_of_another_place(home, config, helper, name, is_docker_s):
    helper("locked", HELPERS["locked"])
    helper("hangs", HELPERS["hangs"])
    config(json.dumps({"credsStore": name, "auths": {NVCR: {"auth": auth()} if is_docker_s else {}}}))
    if not is_docker_s:
        (Path(home["HOME"]) / ".ngc").mkdir()
        (Path(home["HOME"]) / ".ngc/config").write_text(f"[CURRENT]\napikey = {KEY}\n")
    found, told = find_or_none(NVCR, home, helper_seconds=0.3)
    assert found is not None
    assert found == find(NVCR, home, helper_seconds=0.3)
    assert found.secret.reveal() == KEY
    assert ("config.json" if is_docker_s else "ngc CLI") in found.source
    assert isinstance(told, HelperMissing | HelperFailed | HelperHung), "the doctor tells it"


def test_a_helper_that_cannot_start_is_said(home, config, helper):
    helper("broken", "").write_text("#!/nonexistent/interpreter\n")
    config('{"credsStore": "broken"}')
    with pytest.raises(HelperFailed, match="can't be started"):
        find(NVCR, home)


def test_a_hanging_helper_leaves_no_process_behind(home, config, helper, tmp_path):
    pid = tmp_path / "pid"
    pid.touch()
    helper("hangs", f"sleep 600 & echo $! > {pid}; wait")
    config('{"credsStore": "hangs"}')
    for seconds in (1, 10, 60):  # a busy machine may end it before it has begun
        with pytest.raises(HelperHung):
            find(NVCR, home, helper_seconds=seconds)
        if pid.read_text():
            break
    child = int(pid.read_text())
    with contextlib.suppress(ProcessLookupError):
        ended = os.pidfd_open(child)
        assert select.select([ended], [], [], 60)[0], "the helper's child lives on"
        os.close(ended)


@pytest.mark.parametrize(("host", "key"), [(NVCR, NVCR), ("docker.io", "https://index.docker.io/v1/")])
def test_a_helper_sees_no_key_in_argv_or_environment(home, config, helper, tmp_path, host, key):
    helper("spy", f'echo "$@" > {tmp_path}/argv; env > {tmp_path}/env; cat > {tmp_path}/stdin')
    config('{"credsStore": "spy"}')
    save(host, Secret(KEY), {**home, "NGC_API_KEY": KEY})
    assert (tmp_path / "argv").read_text() == "store\n"
    assert not leaks((tmp_path / "env").read_text())
    entry = json.loads((tmp_path / "stdin").read_text())
    assert entry == {"ServerURL": key, "Username": "$oauthtoken", "Secret": KEY}


def test_a_helper_keeps_the_key_and_the_file_only_says_so(home, config, helper, tmp_path):
    store = tmp_path / "store.json"
    helper("file", _store_helper(store))
    path = config(json.dumps({**OTHER, "credsStore": "file", "auths": {NVCR: {"auth": auth(secret="old")}}}))
    kept = save(NVCR, Secret(KEY), home)
    assert (kept.where, kept.in_clear) == ("docker-credential-file", False)
    assert json.loads(path.read_text())["auths"] == {NVCR: {}}
    found = find(NVCR, home)
    assert found is not None
    assert found.secret.reveal() == KEY
    assert forget(NVCR, home) == (("docker-credential-file",), None)
    assert find(NVCR, home) is None
    assert "auths" in json.loads(path.read_text())
    assert forget(NVCR, home) == ((), None)


def _store_helper(store: Path) -> str:
    """Return a complete helper as a shell script: one entry in one file."""
    return f"""case "$1" in
store) cat > {store};;
get) test -s {store} && cat {store} || {{ {NOT_FOUND}; }};;
erase) cat > /dev/null; rm -f {store};;
esac"""


def test_a_helper_that_only_exists_is_not_chosen(home, config, helper):
    helper("pass", "exit 1")
    helper("secretservice", "exit 1")
    config("{}")
    assert save(NVCR, Secret(KEY), home).in_clear


@pytest.mark.parametrize("name", ["nosuch", "locked", "hangs"])
def test_a_helper_that_refuses_a_key_leaves_the_file_alone(home, config, helper, name):
    for known, script in HELPERS.items():
        helper(known, script)
    path = config(json.dumps({"credsStore": name, "auths": {NVCR: {"auth": auth(secret="old")}}}))
    before = path.read_bytes()
    with pytest.raises(CredentialsError) as caught:
        save(NVCR, Secret(KEY), home, helper_seconds=0.3)
    assert path.read_bytes() == before
    assert not leaks(text_of(caught.value))


def test_a_helper_that_hangs_and_can_t_be_killed_is_left_behind(home, config, helper, monkeypatch):
    helper("hangs", HELPERS["hangs"])
    config('{"credsStore": "hangs"}')
    refused = []

    def forbids(group, _signal):
        refused.append(group)
        raise PermissionError

    left = []
    monkeypatch.setattr(os, "killpg", forbids)
    monkeypatch.setattr(processes, "abandoned", left)
    with pytest.raises(HelperHung):
        find(NVCR, home, helper_seconds=0.3)
    (process,) = left
    monkeypatch.undo()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(240)
    assert refused == [process.pid]
