"""ngcdl.registry.credentials: which key is found, and where one is stored."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from stock import HELPERS, KEY, NVCR, OTHER, OURS, auth, leaks, text_of

from ngcdl.errors import (
    BadKey,
    ConfigBroken,
    ConfigNotWritable,
    HelperMissing,
)
from ngcdl.registry import credentials, docker_config
from ngcdl.registry.credentials import find, forget, save
from ngcdl.registry.key import Secret


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
    assert (found and found.docker_auth()) == (found and {"username": username, "password": secret})


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


HUB = "https://index.docker.io/v1/"
BY_BROWSER = {f"{HUB}access-token": {"auth": auth(secret="no")}, f"{HUB}refresh-token": {"auth": auth(secret="no")}}


@pytest.mark.parametrize("host", ["docker.io", "index.docker.io", "registry-1.docker.io"])
@pytest.mark.parametrize(
    ("tree", "secret"),
    [
        ({"auths": BY_BROWSER | {HUB: {"auth": auth()}}}, KEY),
        ({"auths": {"docker.io": {"auth": auth(secret="no")}, HUB: {"auth": auth()}}}, KEY),
        ({"auths": {"registry-1.docker.io": {"auth": auth()}}}, KEY),
        ({"auths": BY_BROWSER}, None),
        ({"credsStore": "good", "auths": {HUB: {}}}, f"{KEY}-{HUB}"),
        ({"credHelpers": {HUB: "good"}, "credsStore": "nosuch"}, f"{KEY}-{HUB}"),
    ],
)
def test_docker_hub_s_login_is_found_by_the_key_that_docker_gives_it(home, config, helper, host, tree, secret):
    helper("good", HELPERS["good"])
    config(json.dumps(tree))
    found = find(host, home)
    assert (found and found.secret.reveal()) == secret


def test_docker_hub_s_login_is_kept_and_forgotten_by_that_key(home, config):
    path = config(json.dumps({"auths": BY_BROWSER | {"docker.io": {"auth": auth(secret="old")}}}))
    save("docker.io", Secret(KEY), home)
    assert json.loads(path.read_text())["auths"] == BY_BROWSER | {HUB: {"auth": auth()}}
    assert forget("docker.io", home) == ((str(path),), None)
    assert json.loads(path.read_text())["auths"] == BY_BROWSER


def test_other_registries_keep_their_user_names_and_tokens(home, config):
    tree = {"auths": {"a.example": {"auth": auth("somebody")}, "b.example": {"auth": "", "identitytoken": KEY}}}
    config(json.dumps(tree))
    a, b = find("a.example", home), find("b.example", home)
    assert a is not None
    assert a.docker_auth() == {"username": "somebody", "password": KEY}
    assert b is not None
    assert b.docker_auth() == {"identitytoken": KEY}


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


def test_a_key_is_kept_in_a_new_file_that_only_its_owner_reads(home):
    kept = save(NVCR, Secret(KEY), home)
    path = docker_config.path(home)
    assert kept.in_clear
    assert kept.where == str(path)
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
    assert "mode 0644" in str(credentials.exposure(home))


def test_forgetting_takes_every_spelling_and_nothing_else(home, config):
    path = config(json.dumps({"auths": {**OURS, f"https://{NVCR}/v2/": {"auth": auth()}, "o": {}}, "x": 1}))
    assert forget(NVCR, home) == ((str(path),), None)
    assert json.loads(path.read_text()) == {"auths": {"o": {}}, "x": 1}
    assert forget(NVCR, home) == ((), None)


def test_a_key_for_a_part_of_the_registry_outlives_login_and_logout(home, config):
    parts = {f"{NVCR}/orga": {"auth": auth(secret="a")}, f"https://{NVCR}/orga/": {"auth": auth(secret="b")}}
    path = config(json.dumps({"auths": {**parts, NVCR: {"auth": auth(secret="old")}}}))
    save(NVCR, Secret(KEY), home)
    assert json.loads(path.read_text())["auths"] == parts | OURS
    assert forget(NVCR, home) == ((str(path),), None)
    assert json.loads(path.read_text())["auths"] == parts
    assert forget(NVCR, home) == ((), None)


def test_forgetting_cleans_the_file_though_the_helper_fails(home, config):
    path = config(json.dumps({"credsStore": "nosuch", "auths": {NVCR: {"auth": auth()}}}))
    places, failure = forget(NVCR, home)
    assert places == (str(path),)
    assert isinstance(failure, HelperMissing)
    assert json.loads(path.read_text())["auths"] == {}


def test_forgetting_where_nothing_is_makes_nothing(home):
    assert forget(NVCR, home) == ((), None)
    assert not docker_config.path(home).parent.exists()


@pytest.mark.parametrize("folder", ["/dev/null/docker", "/proc/nosuch"])
def test_a_folder_that_cannot_be_made_is_said(home, folder):
    with pytest.raises(ConfigNotWritable) as caught:
        save(NVCR, Secret(KEY), {**home, "DOCKER_CONFIG": folder})
    assert folder in caught.value.message
    assert not leaks(text_of(caught.value))


@pytest.mark.parametrize(
    ("host", "registry", "command"),
    [
        (NVCR, NVCR, "ngcdl login"),
        (NVCR, "mirror.example/ngc", f"ngcdl login {NVCR}"),
        ("mirror.example", "mirror.example/ngc", "ngcdl login"),
        ("ghcr.io", NVCR, "docker login ghcr.io"),
    ],
)
def test_each_registry_has_its_own_login(home, host, registry, command):
    assert credentials.sign_in(host, {**home, "NGCDL_REGISTRY": registry}) == command
