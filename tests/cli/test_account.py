"""`ngcdl login` with a copy for enroot or Kubernetes: which key is copied, which options conflict."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator

import pytest
from house import House
from ngc_server import KEY, NgcServer, serving

OLD = "nvapi-CANARY-old"
ENROOT = ("--enroot",)
KUBERNETES = ("--kubernetes", "ngc", "--namespace", "vision")
# Captures the Secret to create; an existing Secret has the type in the file `type`.
KUBECTL = """#!/bin/sh
echo "$*" >> "$HOME/calls"
case $* in
*" get secret "*) [ ! -e "$HOME/type" ] || cat "$HOME/type" ;;
*" create "* | *" replace "*) cat > "$HOME/secret" ;;
esac
"""


@pytest.fixture
def ngc() -> Iterator[NgcServer]:
    with serving(NgcServer()) as server:
        yield server


def typed(house: House, ngc: NgcServer, key: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Log in with `key` on standard input, with a kubectl and an older key available."""
    kubectl, stdin = house.home / "bin/kubectl", house.home / "stdin"
    kubectl.parent.mkdir()
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    stdin.write_text(key)
    env = {"NGCDL_REGISTRY": ngc.host, "NGC_API_KEY": OLD, "PATH": f"{kubectl.parent}:{os.environ['PATH']}"}
    with stdin.open() as given:
        done = house.run("login", "--password-stdin", *words, stdin=given, env=env)
    assert "CANARY" not in done.stdout + done.stderr
    return done


def copied(house: House) -> str | None:
    """The key that enroot or the pull secret got."""
    enroot, secret = house.home / ".config/enroot/.credentials", house.home / "secret"
    if enroot.exists():
        return enroot.read_text().split()[-1]
    if not secret.exists():
        return None
    (login,) = json.loads(json.loads(secret.read_text())["stringData"][".dockerconfigjson"])["auths"].values()
    return str(login["password"])


@pytest.mark.parametrize("words", [ENROOT, KUBERNETES])
def test_a_key_on_stdin_is_checked_and_kept_before_it_is_copied(
    house: House, ngc: NgcServer, words: tuple[str, ...]
) -> None:
    done = typed(house, ngc, KEY, *words)
    assert done.returncode == 0, done.stderr
    assert f"Signed in to {ngc.host} with the key from standard input" in done.stdout
    assert ngc.host in json.loads((house.home / ".docker/config.json").read_text())["auths"]
    assert copied(house) == KEY


@pytest.mark.parametrize("words", [ENROOT, KUBERNETES])
def test_a_key_that_is_refused_is_not_copied_nor_is_an_older_one(
    house: House, ngc: NgcServer, words: tuple[str, ...]
) -> None:
    done = typed(house, ngc, "nvapi-CANARY-wrong", *words)
    assert done.returncode == 125
    assert "refused the key from standard input" in done.stderr
    assert copied(house) is None


@pytest.mark.parametrize("name", ["--all", "-A", "Ngc", "a_b", "a..b", "a/b", ".a", "a-", "", "a" * 254])
def test_a_name_that_no_secret_can_have_is_refused_before_a_key_is_read(
    house: House, ngc: NgcServer, name: str
) -> None:
    done = typed(house, ngc, KEY, f"--kubernetes={name}", "--namespace", "vision")
    assert (done.returncode, done.stdout) == (2, "")
    assert "lower-case letters, digits, - and ." in done.stderr
    assert (ngc.seen, (house.home / "calls").exists()) == ([], False)


@pytest.mark.parametrize(
    ("there", "calls"),
    [
        (None, ["get secret ngc", "create -f -"]),
        ("kubernetes.io/dockerconfigjson", ["get secret ngc", "replace -f -"]),
        ("kubernetes.io/tls", ["get secret ngc"]),
    ],
)
def test_a_pull_secret_is_made_or_replaced_and_none_of_another_type_is_touched(
    house: House, ngc: NgcServer, there: str | None, calls: list[str]
) -> None:
    if there:
        (house.home / "type").write_text(there)
    done = typed(house, ngc, KEY, *KUBERNETES)
    said = [line.partition("=30s ")[2] for line in (house.home / "calls").read_text().splitlines()]
    found = [line for line in said if not line.startswith("config ")]
    assert [line.partition(" --ignore")[0] for line in found] == calls
    assert (done.returncode, copied(house)) == ((2, None) if len(calls) == 1 else (0, KEY)), done.stderr
    assert KEY not in (house.home / "calls").read_text()


@pytest.mark.parametrize("words", [ENROOT, KUBERNETES])
def test_where_no_key_is_kept_the_next_lines_are_named(house: House, words: tuple[str, ...]) -> None:
    done = house.run("login", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "No key for nvcr.io is stored." in done.stderr
    assert done.stderr.endswith(f"    ngcdl login\n      ngcdl login {' '.join(words)}\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--namespace", "vision"), "    ngcdl login --kubernetes NAME --namespace vision\n"),
        (("--enroot", "--namespace", "vision"), "--namespace: only --kubernetes reads that."),
        (("--enroot", *KUBERNETES), f"    ngcdl login {' '.join(KUBERNETES)}\n      ngcdl login --enroot\n"),
    ],
)
def test_what_would_be_dropped_in_silence_is_refused_and_no_key_is_read(
    house: House, ngc: NgcServer, words: tuple[str, ...], said: str
) -> None:
    done = typed(house, ngc, KEY, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert (copied(house), ngc.seen) == (None, [])


@pytest.mark.parametrize("words", [(), ("--namespace", "vision"), ("--enroot", *KUBERNETES)])
def test_a_key_typed_in_place_of_a_registry_is_not_repeated(house: House, words: tuple[str, ...]) -> None:
    done = house.run("login", "nvapi-not-to-be-shown", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "That looks like a key: it is in your shell's history now." in done.stderr
    assert "not-to-be-shown" not in done.stderr
