"""ngcdl.registry.docker_config: broken files are reported, intact ones stay intact, even if a writer is killed."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stock import KEY, NVCR, OTHER, OURS, auth, leaks, text_of

from ngcdl.errors import (
    ConfigBroken,
    CredentialsError,
)
from ngcdl.registry.credentials import find, save
from ngcdl.registry.key import Secret


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"auths": {', "byte 11 (line 1)"),
        ('{\n "auths": {},\n oops\n}', "byte 17 (line 3)"),
        ('{"ä": oops}', "byte 7 (line 1)"),
        (b'{"a": "\xff"}', "UTF-8 at byte 7"),
        ("\ufeff{}", "byte 0"),
        ("[]", "not an object"),
        ("null", "not an object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "nested too deeply"),
        ('{"auths": []}', "auths is not an object"),
        ('{"auths": {"nvcr.io": "CANARY-1234567890"}}', "auths['nvcr.io'] is not an object"),
        ('{"auths": {"nvcr.io": {"auth": 7}}}', "auths['nvcr.io'].auth is not a string"),
        ('{"auths": {"nvcr.io": {"auth": "CANARY-1234567890"}}}', "not base64"),
        ('{"auths": {"nvcr.io": {"auth": "Q0FOQVJZLTEyMzQ1Njc4"}}}', "no colon"),
        ('{"auths": {"nvcr.io": {"auth": "gICA"}}}', "not base64"),
        ('{"auths": {"nvcr.io": {"identitytoken": []}}}', "identitytoken is not a string"),
        ('{"credsStore": 7}', "credsStore is not a string"),
        ('{"credHelpers": "pass"}', "credHelpers is not an object"),
        ('{"credHelpers": {"nvcr.io": null, "x": {}}}', ""),
        ('{"credHelpers": {"nvcr.io": []}}', "credHelpers['nvcr.io'] is not a string"),
    ],
)
def test_a_broken_config_is_named_and_left_as_it_is(home, config, content, says):
    path = config(content)
    before = path.read_bytes()
    if not says:
        assert find(NVCR, home) is None
        return
    with pytest.raises(ConfigBroken) as caught:
        find(NVCR, home)
    assert says in caught.value.message
    assert str(path) in caught.value.message
    assert not leaks(text_of(caught.value))
    assert path.read_bytes() == before
    if "auths['nvcr.io']" in caught.value.message:  # signing in again repairs our own entry
        save(NVCR, Secret(KEY), home)
        assert json.loads(path.read_text()) == {"auths": OURS}
    else:
        with pytest.raises(ConfigBroken):
            save(NVCR, Secret(KEY), home)
        assert path.read_bytes() == before


@pytest.mark.parametrize("content", ["", "  \n"])
def test_an_empty_config_is_what_docker_takes_it_for_and_a_login_fills_it(home, config, content):
    path = config(content)
    assert find(NVCR, home) is None
    save(NVCR, Secret(KEY), home)
    assert json.loads(path.read_text()) == {"auths": OURS}


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)
_auth = _json | st.binary().map(base64.b64encode).map(bytes.decode)
_entry = _json | st.fixed_dictionaries({}, optional={"auth": _auth, "identitytoken": _json, "password": _json})
_hosts = st.sampled_from([NVCR, f"https://{NVCR}", f"http://{NVCR}/v1/", "other.example"])
_config = _json | st.fixed_dictionaries(
    {},
    optional={
        "auths": _json | st.dictionaries(_hosts, _entry),
        "credHelpers": _json | st.dictionaries(_hosts, _json),
        "credsStore": _json,
    },
)


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(_config.map(json.dumps).map(str.encode) | st.binary(max_size=200))
def test_junk_in_config_gives_a_key_or_an_error_of_ours(home, config, content):
    path = config(content)
    with contextlib.suppress(CredentialsError):
        find(NVCR, home)
    try:
        save(NVCR, Secret(KEY), home)
    except CredentialsError:
        assert path.read_bytes() == content
    else:
        assert find(NVCR, home) is not None
        before, after = json.loads(content.strip() or b"{}"), json.loads(path.read_bytes())
        assert {**after, "auths": None} == {**before, "auths": None}


CHILD = """
import os, sys
from ngcdl.errors import NgcdlError
from ngcdl.registry.credentials import save
from ngcdl.registry.key import Secret
try:
    for host in sys.argv[1:]:
        save(host, Secret(os.environ["CHILD_SECRET"]))
except NgcdlError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def child(home: dict[str, str], *hosts: str, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    environ = {**home, "PYTHONPATH": os.pathsep.join(sys.path), "CHILD_SECRET": KEY, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [*before, sys.executable, "-c", CHILD, *hosts]
    return subprocess.Popen(command, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without rights")
@pytest.mark.parametrize("mode", [0o555, 0o000])
def test_a_folder_that_is_not_ones_own_is_said(tmp_path, mode):
    shown = subprocess.run(
        [sys.executable, "-c", _AS_NOBODY.format(mode=mode, path=sys.path)], capture_output=True, text=True, check=False
    )
    assert shown.stdout.startswith(("ConfigNotWritable", "ConfigBroken")), shown
    assert not leaks(shown.stdout + shown.stderr)


_AS_NOBODY = """
import os, sys, tempfile
sys.path[:] = {path!r}
import json
from ngcdl.errors import NgcdlError
from ngcdl.registry.credentials import save
from ngcdl.registry.key import Secret
with tempfile.TemporaryDirectory() as home:
    os.chmod(home, 0o755)
    folder = os.path.join(home, ".docker")
    os.mkdir(folder)
    open(os.path.join(folder, "config.json"), "w").write("{{}}")
    os.chmod(folder, {mode})
    if os.fork() == 0:
        os.setresuid(65534, 65534, 65534)
        try:
            save("nvcr.io", Secret("nvapi-CANARY-1234567890"), {{"HOME": home}})
        except NgcdlError as error:
            print(type(error).__name__, error, flush=True)
        os._exit(0)
    os.wait()
"""


def test_eight_processes_that_sign_in_twenty_times_lose_no_entry(home, config):
    path = config(json.dumps(OTHER))
    mine = {n: [f"r{n}-{i}.example" for i in range(19)] + [NVCR] for n in range(8)}
    children = [child(home, *hosts) for hosts in mine.values()]
    while any(one.poll() is None for one in children):
        json.loads(path.read_text())  # intact at every moment
    for one in children:
        out, err = one.communicate()
        assert (one.returncode, out + err) == (0, "")
    tree = json.loads(path.read_text())
    assert set(tree["auths"]) == {"other.example", NVCR} | {host for hosts in mine.values() for host in hosts}
    assert {key: tree[key] for key in OTHER if key != "auths"} == {key: OTHER[key] for key in OTHER if key != "auths"}
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["config.json", "config.json.lock"]


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is missing: nothing can be killed at a given call")
def test_a_kill_at_any_call_of_a_save_leaves_the_old_or_the_new_file(home, config):
    path = config(json.dumps(OTHER))
    wanted = {**OTHER, "auths": {**OTHER["auths"], NVCR: {"auth": auth()}}}
    points = 0
    for call in ("fchmod", "write", "fsync", "rename", "unlink", "flock", "fstat"):
        for number in range(1, 4):
            inject = f"inject={call}:signal=SIGKILL:when={number}"
            paths = [f"-P{path.parent}"] if call == "fstat" else []
            one = child(home, NVCR, before=("strace", "-f", "-qq", "-o", "/dev/null", *paths, "-e", inject))
            one.communicate()
            tree = json.loads(path.read_text())
            assert tree in (OTHER, wanted)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            if one.returncode == 0:
                break
            points += 1
            path.write_text(json.dumps(OTHER))
    assert points >= 5
    save(NVCR, Secret(KEY), home)
    assert json.loads(path.read_text()) == wanted
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["config.json", "config.json.lock"]


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is missing: no call can be made to fail")
def test_a_home_without_locks_takes_a_key(home, config):
    path = config(json.dumps(OTHER))
    one = child(home, NVCR, before=("strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=flock:error=ENOLCK"))
    one.communicate()
    assert one.returncode == 0
    assert json.loads(path.read_text())["auths"] == {**OTHER["auths"], NVCR: {"auth": auth()}}


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is missing: no call can be made to fail")
@pytest.mark.parametrize("fault", ["write:error=ENOSPC", "fsync:error=EIO", "rename:error=EBUSY"])
def test_a_disk_that_fails_leaves_the_old_file_and_no_rest(home, config, fault):
    path = config(json.dumps(OTHER))
    inject = f"inject={fault}:when=1"
    one = child(home, NVCR, before=("strace", "-f", "-qq", "-o", "/dev/null", "-e", inject))
    _, told = one.communicate()
    assert one.returncode == 1
    assert told.startswith("ConfigNotWritable")
    assert json.loads(path.read_text()) == OTHER
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["config.json", "config.json.lock"]
