"""ngcdl.registry.credentials: every config.json that was met, real helper programs, and many writers at once."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import select
import shutil
import stat
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ngcdl.errors import (
    BadKey,
    ConfigBroken,
    ConfigNotWritable,
    CredentialsError,
    HelperFailed,
    HelperHung,
    HelperMissing,
)
from ngcdl.registry import credentials, docker_config
from ngcdl.registry.credentials import Credential, Secret, check_key, find, find_or_none, forget, save

NVCR = "nvcr.io"
KEY = "nvapi-CANARY-1234567890"
OTHER = {"auths": {"other.example": {"auth": "b3RoZXI6cHc="}}, "HttpHeaders": {"X": "ä"}, "psFormat": "table"}


def auth(username: str = "$oauthtoken", secret: str = KEY) -> str:
    return base64.b64encode(f"{username}:{secret}".encode()).decode()


def text_of(error: BaseException) -> str:
    hint = error.hint if isinstance(error, CredentialsError) else ""
    return f"{error} {error!r} {hint} {''.join(traceback.format_exception(error))}"


def leaks(text: str) -> bool:
    """Is the key there, in clear or at any of the three alignments of base64?"""
    aligned = [base64.b64encode(b"x" * n + b"CANARY-12345678")[4:16].decode() for n in range(3)]
    return any(part in text for part in ["CANARY", *aligned])


# Secrets


def test_a_secret_shows_nowhere():
    secret = Secret(KEY)
    credential = Credential("$oauthtoken", secret, "a test")
    assert not leaks(f"{secret} {secret!r} {secret!s:>10} {credential} {vars(credential)} %s" % secret)
    assert secret.reveal() == KEY
    assert secret == Secret(KEY) != Secret("other")
    with pytest.raises(TypeError):
        pickle.dumps(secret)


@pytest.mark.parametrize("text", [KEY, f"{KEY}\n", f"{KEY}\r\n", f"  {KEY}\t\n\n"])
def test_a_line_ending_is_no_part_of_a_key(text):
    assert check_key(text).reveal() == KEY


@pytest.mark.parametrize(
    "text",
    ["", "\n", " \t ", f"{KEY} x", f"{KEY}\nx", f"{KEY}ä", f"{KEY}\0", f"\ufeff{KEY}", f"{KEY}\x1b[A", KEY * 1000],
)
def test_what_is_no_key_is_refused_before_it_is_sent(text):
    with pytest.raises(BadKey) as caught:
        check_key(text)
    assert not leaks(text_of(caught.value))
    assert caught.value.exit_code == 2


@given(st.text())
def test_any_text_is_a_key_or_a_bad_key(text):
    try:
        key = check_key(text).reveal()
    except BadKey as error:
        repeated = len(text.strip()) > 3 and text.strip() in error.message
        if repeated:
            raise AssertionError("the key is repeated") from error
    else:
        assert key.isascii()
        assert key.isprintable()


# Where a key is found

OURS = {NVCR: {"auth": auth()}}
GOOD_HELPER = f'read -r host; printf \'{{"ServerURL":"%s","Username":"u","Secret":"{KEY}-%s"}}\' $host $host'
NOT_FOUND = "echo 'credentials not found in native keychain'; exit 1"
HELPERS = {
    "good": GOOD_HELPER,
    "none": NOT_FOUND,
    "stderr": "echo 'credentials not found in native keychain' >&2; exit 1",
    "locked": "echo 'error: pass not initialized: nvapi-CANARY-1234567890' >&2; exit 1",
    "garbage": f"echo garbage {KEY}",
    "object": "echo '{}'",
    "list": "echo '[]'",
    "number": 'echo \'{"Username": 1, "Secret": 2}\'',
    "blank": 'echo \'{"ServerURL": "", "Username": "", "Secret": ""}\'',
    "hangs": "sleep 60",
    "forks": "sleep 60 & echo started",
    "endless": "yes",
    "deaf": "exec <&-; echo 'credentials not found in native keychain'; exit 1",
    "leaky": f'echo \'{{"Secret": "{KEY}", "broken\'; exit 1',
}


@pytest.mark.parametrize(
    ("tree", "username", "secret", "source"),
    [
        ({}, None, None, ""),
        ({"auths": None}, None, None, ""),
        ({"auths": {}}, None, None, ""),
        ({"auths": {NVCR: {}}}, None, None, ""),
        ({"auths": {NVCR: None}}, None, None, ""),
        ({"auths": {NVCR: {"auth": ""}}}, None, None, ""),
        (OTHER, None, None, ""),
        ({"auths": {"nvcr.io.example": {"auth": auth()}}}, None, None, ""),
        ({"auths": {NVCR: {"auth": auth()}}}, "$oauthtoken", KEY, "config.json"),
        ({"auths": {f"https://{NVCR}": {"auth": auth()}}}, "$oauthtoken", KEY, "config.json"),
        ({"auths": {f"https://{NVCR}/v2/": {"auth": auth()}}}, "$oauthtoken", KEY, "config.json"),
        ({"auths": {NVCR: {}, f"https://{NVCR}": {"auth": auth()}}}, "$oauthtoken", KEY, "config.json"),
        ({"auths": {NVCR: {"auth": auth() + "\n"}}}, "$oauthtoken", KEY, "config.json"),
        ({"auths": {NVCR: {"auth": auth(username="")}}}, "$oauthtoken", KEY, "config.json"),
        ({"auths": {NVCR: {"auth": auth(username="oauthtoken")}}}, "$oauthtoken", KEY, "config.json"),
        ({"auths": {NVCR: {"auth": auth(secret="a:b:c")}}}, "$oauthtoken", "a:b:c", "config.json"),
        ({"auths": {NVCR: {"username": "x", "password": KEY}}}, "$oauthtoken", KEY, "config.json"),
        ({"credsStore": "good"}, "$oauthtoken", f"{KEY}-{NVCR}", "docker-credential-good"),
        ({"credHelpers": {NVCR: "good"}, "credsStore": "nosuch"}, "$oauthtoken", f"{KEY}-{NVCR}", "credential-good"),
        ({"credHelpers": {f"https://{NVCR}": "good"}}, "$oauthtoken", f"{KEY}-{NVCR}", "docker-credential-good"),
        ({"credHelpers": {NVCR: ""}, "credsStore": "nosuch", "auths": OURS}, "$oauthtoken", KEY, "config.json"),
        ({"credHelpers": {"other.example": "nosuch"}, "auths": OURS}, "$oauthtoken", KEY, "config.json"),
        ({"credsStore": "none", "auths": {NVCR: {"auth": auth()}}}, "$oauthtoken", KEY, "config.json"),
        ({"credsStore": "none"}, None, None, ""),
        ({"credsStore": "stderr"}, None, None, ""),
        ({"credsStore": "blank"}, None, None, ""),
        ({"credsStore": "deaf"}, None, None, ""),
        ({"credsStore": ""}, None, None, ""),
    ],
)
def test_every_shape_of_config_gives_its_key(home, config, helper, tree, username, secret, source):
    for name, script in HELPERS.items():
        helper(name, script)
    config(json.dumps(tree))
    found = find(NVCR, home)
    assert (found.username if found else None) == username
    assert (found.secret.reveal() if found else None) == secret
    assert source in (found.source if found else "")
    assert credentials.docker_auth(NVCR, home) == (found and {"username": username, "password": secret})


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
    path = config(json.dumps({"credsStore": name, "auths": {NVCR: {"auth": auth()}}}))
    with pytest.raises(expected) as caught:
        find(NVCR, home, helper_seconds=0.3)
    assert not leaks(text_of(caught.value))
    if expected is not ConfigBroken:
        assert f"docker-credential-{name}" in caught.value.message
    credential, told = find_or_none(NVCR, home, helper_seconds=0.3)
    assert credential is None
    assert type(told) is expected
    assert str(path) in text_of(caught.value) or expected not in (HelperMissing, ConfigBroken)


def test_a_helper_that_cannot_start_is_said(home, config, helper):
    helper("broken", "").write_text("#!/nonexistent/interpreter\n")
    config('{"credsStore": "broken"}')
    with pytest.raises(HelperFailed, match="can't be started"):
        find(NVCR, home)


def test_a_hanging_helper_leaves_no_process_behind(home, config, helper, tmp_path):
    helper("hangs", f"sleep 61 & echo $! > {tmp_path}/pid; wait")
    config('{"credsStore": "hangs"}')
    with pytest.raises(HelperHung):
        find(NVCR, home, helper_seconds=1)
    child = int((tmp_path / "pid").read_text())
    with contextlib.suppress(ProcessLookupError):
        ended = os.pidfd_open(child)
        assert select.select([ended], [], [], 10)[0], "the helper's child lives on"
        os.close(ended)


def test_a_helper_sees_no_key_in_argv_or_environment(home, config, helper, tmp_path):
    helper("spy", f'echo "$@" > {tmp_path}/argv; env > {tmp_path}/env; cat > {tmp_path}/stdin')
    config('{"credsStore": "spy"}')
    save(NVCR, Secret(KEY), {**home, "NGC_API_KEY": KEY})
    assert (tmp_path / "argv").read_text() == "store\n"
    assert not leaks((tmp_path / "env").read_text())
    entry = json.loads((tmp_path / "stdin").read_text())
    assert entry == {"ServerURL": NVCR, "Username": "$oauthtoken", "Secret": KEY}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "byte 0"),
        ("  \n", "empty"),
        ('{"auths": {', "byte 11 (line 1)"),
        ('{\n "auths": {},\n oops\n}', "byte 17 (line 3)"),
        ('{"ä": oops}', "byte 7 (line 1)"),
        (b'{"a": "\xff"}', "UTF-8 at byte 7"),
        ("\ufeff{}", "byte 0"),
        ("[]", "not an object"),
        ("null", "not an object"),
        ("[" * 100_000, "nobody meant"),
        ('{"a": ' + "9" * 5000 + "}", "nobody meant"),
        ('{"auths": []}', "auths is not an object"),
        ('{"auths": {"nvcr.io": "CANARY-1234567890"}}', "auths['nvcr.io'] is not an object"),
        ('{"auths": {"nvcr.io": {"auth": 7}}}', "auths['nvcr.io'].auth is not a text"),
        ('{"auths": {"nvcr.io": {"auth": "CANARY-1234567890"}}}', "not base64"),
        ('{"auths": {"nvcr.io": {"auth": "Q0FOQVJZLTEyMzQ1Njc4"}}}', "no colon"),
        ('{"auths": {"nvcr.io": {"auth": "gICA"}}}', "not base64"),
        ('{"auths": {"nvcr.io": {"identitytoken": []}}}', "identitytoken is not a text"),
        ('{"credsStore": 7}', "credsStore is not a text"),
        ('{"credHelpers": "pass"}', "credHelpers is not an object"),
        ('{"credHelpers": {"nvcr.io": null, "x": {}}}', ""),
        ('{"credHelpers": {"nvcr.io": []}}', "credHelpers['nvcr.io'] is not a text"),
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
    if "auths['nvcr.io']" in caught.value.message:  # signing in again mends our own entry
        save(NVCR, Secret(KEY), home)
        assert json.loads(path.read_text()) == {"auths": OURS}
    else:
        with pytest.raises(ConfigBroken):
            save(NVCR, Secret(KEY), home)
        assert path.read_bytes() == before


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


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
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
        before, after = json.loads(content), json.loads(path.read_bytes())
        assert {**after, "auths": None} == {**before, "auths": None}


def test_variables_come_first_and_only_for_nvidias_registry(home, config):
    hosts = (NVCR, "mirror.example", "x.example")
    config(json.dumps({"auths": {host: {"auth": auth(secret="file")} for host in hosts}}))
    both = {**home, "NGC_API_KEY": " one\n", "NGC_CLI_API_KEY": "two", "NGCDL_REGISTRY": "https://mirror.example/nvcr"}
    for host, secret, source in [
        (NVCR, "one", "the variable NGC_API_KEY"),
        ("mirror.example", "one", "the variable NGC_API_KEY"),
        ("x.example", "file", str(docker_config.path(home))),
    ]:
        found = find(host, both)
        assert found is not None
        assert (found.secret.reveal(), found.source) == (secret, source)
    found = find(NVCR, {**home, "NGC_API_KEY": " ", "NGC_CLI_API_KEY": "two"})
    assert found is not None
    assert found.source == "the variable NGC_CLI_API_KEY"


def test_a_variable_that_holds_no_key_is_said_without_it(home):
    with pytest.raises(BadKey, match="NGC_API_KEY is set, but") as caught:
        find(NVCR, {**home, "NGC_API_KEY": f"{KEY} {KEY}"})
    assert not leaks(text_of(caught.value))


def test_docker_config_names_the_folder(home, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "config.json").write_text(json.dumps({"auths": {NVCR: {"auth": auth()}}}))
    assert find(NVCR, {**home, "DOCKER_CONFIG": str(tmp_path / "elsewhere")}) is not None
    assert find(NVCR, home) is None


def test_other_registries_keep_their_user_names_and_tokens(home, config):
    tree = {"auths": {"a.example": {"auth": auth("somebody")}, "b.example": {"auth": "", "identitytoken": KEY}}}
    config(json.dumps(tree))
    assert credentials.docker_auth("a.example", home) == {"username": "somebody", "password": KEY}
    assert credentials.docker_auth("b.example", home) == {"identitytoken": KEY}


@pytest.mark.parametrize(
    ("content", "secret"),
    [
        (f"; WARNING - made by a machine\n[CURRENT]\napikey = {KEY}\nformat_type = ascii\norg = x\n", KEY),
        ("[CURRENT]\napikey = no-apikey\n", None),
        ("[CURRENT]\norg = %(x)s\n", None),
        ("", None),
    ],
)
def test_the_ngc_clis_file_is_the_last_to_be_asked(home, content, secret):
    path = Path(home["HOME"]) / ".ngc" / "config"
    path.parent.mkdir()
    path.write_text(content)
    found = find(NVCR, home)
    assert (found.secret.reveal() if found else None) == secret
    assert found is None or "ngc CLI" in found.source
    assert find("other.example", home) is None
    assert path.read_text() == content


@pytest.mark.parametrize("content", [f"apikey = {KEY}", f"[CURRENT]\napikey = {KEY} {KEY}", "[CURRENT", b"\xff"])
def test_a_broken_ngc_file_is_named(home, content):
    path = Path(home["HOME"]) / ".ngc" / "config"
    path.parent.mkdir()
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigBroken) as caught:
        find(NVCR, home)
    assert not leaks(text_of(caught.value))


# Where a key is kept


def test_a_key_is_kept_in_a_new_file_that_only_its_owner_reads(home):
    kept = save(NVCR, Secret(KEY), home)
    path = docker_config.path(home)
    assert kept.in_clear
    assert str(path) in str(kept)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert json.loads(path.read_text()) == {"auths": {NVCR: {"auth": auth()}}}
    assert credentials.exposure(home) is None


def test_everything_else_in_the_file_stays(home, config):
    path = config(json.dumps({**OTHER, "auths": {**OTHER["auths"], f"https://{NVCR}": {"auth": auth(secret="old")}}}))
    save(NVCR, Secret(KEY), home)
    tree = json.loads(path.read_text())
    assert tree == {**OTHER, "auths": {**OTHER["auths"], NVCR: {"auth": auth()}}}


def test_mode_owner_and_symlink_of_the_file_stay(home, config, tmp_path):
    path = config("{}")
    real = tmp_path / "dotfiles.json"
    path.rename(real)
    path.symlink_to(real)
    real.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(real, 1234, 4321)
    before = real.stat()
    save(NVCR, Secret(KEY), home)
    assert path.is_symlink()
    after = real.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino
    assert find(NVCR, home) is not None
    assert credentials.exposure(home) is not None


def test_a_file_that_others_can_read_is_said(home, config):
    path = config("{}")
    assert credentials.exposure(home) is None
    path.chmod(0o644)
    assert "mode 0644" in (credentials.exposure(home) or "")


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
    assert forget(NVCR, home) == ("docker-credential-file",)
    assert find(NVCR, home) is None
    assert "auths" in json.loads(path.read_text())
    assert forget(NVCR, home) == ()


def _store_helper(store: Path) -> str:
    """A whole helper in shell: one entry in one file."""
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


def test_forgetting_takes_every_spelling_and_nothing_else(home, config):
    path = config(json.dumps({"auths": {**OURS, f"https://{NVCR}/v2/": {"auth": auth()}, "o": {}}, "x": 1}))
    assert forget(NVCR, home) == (str(path),)
    assert json.loads(path.read_text()) == {"auths": {"o": {}}, "x": 1}
    assert forget(NVCR, home) == ()


def test_forgetting_cleans_the_file_though_the_helper_fails(home, config):
    path = config(json.dumps({"credsStore": "nosuch", "auths": {NVCR: {"auth": auth()}}}))
    with pytest.raises(HelperMissing):
        forget(NVCR, home)
    assert json.loads(path.read_text())["auths"] == {}


def test_forgetting_where_nothing_is_makes_nothing(home):
    assert forget(NVCR, home) == ()
    assert not docker_config.path(home).parent.exists()


@pytest.mark.parametrize("folder", ["/dev/null/docker", "/proc/nosuch"])
def test_a_folder_that_cannot_be_made_is_said(home, folder):
    with pytest.raises(ConfigNotWritable) as caught:
        save(NVCR, Secret(KEY), {**home, "DOCKER_CONFIG": folder})
    assert folder in caught.value.message
    assert not leaks(text_of(caught.value))


# Other processes

CHILD = """
import os, sys
from ngcdl.errors import NgcdlError
from ngcdl.registry.credentials import Secret, save
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
import filelock, json
from ngcdl.errors import NgcdlError
from ngcdl.registry.credentials import Secret, save
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
        json.loads(path.read_text())  # whole at every moment
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
