"""Which engine Docker's own configuration names, and which parts of that configuration ngcdl's client uses."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import docker
import pytest
from docker_socket import Daemon, serving

from ngcdl.engines.docker import context
from ngcdl.engines.docker.client import client
from ngcdl.engines.docker.engine import address, connect, is_socket
from ngcdl.engines.docker.messages import docker_errors
from ngcdl.errors import EngineAbsent, EngineElsewhere, EngineRefused


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An unconfigured docker command."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def _keep_context(home: Path, name: str, meta: str) -> None:
    folder = home / "contexts/meta" / hashlib.sha256(name.encode()).hexdigest()
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(meta)


def _context_of(name: str, host: str) -> str:
    return json.dumps({"Name": name, "Metadata": {}, "Endpoints": {"docker": {"Host": host}}})


@pytest.mark.parametrize(
    ("variable", "current", "leave"),
    [("rootles", "rootless", "unset DOCKER_CONTEXT"), (None, "rootles", "docker context use default")],
)
def test_a_context_that_is_gone_is_refused_and_no_other_engine_is_taken(
    home: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None, current: str, leave: str
) -> None:
    _keep_context(home, "rootless", _context_of("rootless", "unix:///run/user/1000/docker.sock"))
    (home / "config.json").write_text(json.dumps({"currentContext": current}))
    if variable:
        monkeypatch.setenv("DOCKER_CONTEXT", variable)
    with pytest.raises(EngineAbsent) as refused:
        connect()
    assert "the context rootles: no context of that name" in refused.value.message
    assert f"    docker context ls\n    {leave}\n" in refused.value.hint


@pytest.mark.parametrize(
    "meta", ["{", "{}", json.dumps({"Name": "x", "Metadata": {}, "Endpoints": {"kubernetes": {}}})]
)
def test_a_context_that_names_no_docker_engine_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, meta: str
) -> None:
    _keep_context(home, "x", meta)
    monkeypatch.setenv("DOCKER_CONTEXT", "x")
    with pytest.raises(EngineAbsent, match="at the context x: "):
        connect()
    assert address() == "the default socket", "for what is only said"


KEY = base64.b64encode(b"CANARY-without-a-colon").decode()


@pytest.mark.parametrize("config", [
    {"auths": {"ghcr.io": {"auth": "CANARY-x"}}}, {"auths": {"ghcr.io": {"auth": KEY}}},
    {"auths": {"ghcr.io": {"auth": ""}}}, {"auths": {"ghcr.io": {"auth": None}}}, {"auths": {"ghcr.io": "CANARY"}},
    {"auths": {"ghcr.io": None}}, {"auths": [1]}, {"auths": "CANARY"}, {"ghcr.io": {"auth": "CANARY-x"}}, [1], [], "x",
    {"proxies": [1]}, {"proxies": {"default": "x"}}, {"HttpHeaders": {"auth": "CANARY"}}, {"HttpHeaders": [1]},
    {"credsStore": 7}, {"credHelpers": [1]},
])  # fmt: skip
def test_what_is_broken_in_docker_s_config_is_in_no_engine_s_way(home: Path, config: Any) -> None:
    (home / "config.json").write_text(json.dumps(config))
    made = client(version="1.41", timeout=1)
    assert made.base_url == "http+docker://localhost"
    assert "CANARY" not in str(made._auth_configs)


def test_the_client_takes_headers_and_detach_keys_of_docker_s_config_and_no_key(home: Path) -> None:
    headers = {"X-Meta": "1"}
    auths = {"nvcr.io": {"auth": base64.b64encode(b"$oauthtoken:CANARY").decode()}}
    (home / "config.json").write_text(json.dumps({"auths": auths, "HttpHeaders": headers, "detachKeys": "ctrl-@"}))
    made = client(version="1.41", timeout=1)
    assert made._general_configs == {"detachKeys": "ctrl-@", "HttpHeaders": headers}
    assert "CANARY" not in str(made._auth_configs)


def test_the_sdk_keeps_what_it_read_of_docker_s_config_under_the_name_that_client_py_takes_over() -> None:
    assert "_general_configs" in docker.APIClient.__attrs__, f"docker {docker.__version__} has another private name"


def test_the_client_goes_where_docker_s_context_says(home: Path) -> None:
    _keep_context(home, "far", _context_of("far", "tcp://far:2375"))
    (home / "config.json").write_text('{"currentContext": "far"}')
    assert client(version="1.41", timeout=1).base_url == "http://far:2375"


def test_the_folder_of_tls_s_files_alone_turns_on_no_tls_that_trusts_any_server(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (home / name).touch()
    monkeypatch.setenv("DOCKER_HOST", "tcp://far:2376")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(home))
    monkeypatch.delenv("DOCKER_TLS_VERIFY", raising=False)
    assert client(version="1.41", timeout=1).base_url == "http://far:2376", "as docker"


def test_tls_goes_with_the_ca_alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "ca.pem").touch()
    for name, value in (("HOST", "tcp://far:2376"), ("CERT_PATH", str(home)), ("TLS_VERIFY", "1")):
        monkeypatch.setenv(f"DOCKER_{name}", value)
    made = client(version="1.41", timeout=1)
    assert (made.base_url, made.verify, made.cert) == ("https://far:2376", str(home / "ca.pem"), None), "as docker"


def test_a_context_is_found_where_docker_has_no_config_json_and_its_own_ca_goes_before_that_of_a_variable(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _keep_context(home, "far", _context_of("far", "tcp://far:2376"))
    folder = home / "contexts/tls" / hashlib.sha256(b"far").hexdigest() / "docker"
    folder.mkdir(parents=True)
    for file in (folder / "ca.pem", home / "ca.pem", home / "cert.pem", home / "key.pem"):
        file.touch()
    for name, value in (("CONTEXT", "far"), ("CERT_PATH", str(home)), ("TLS_VERIFY", "1")):
        monkeypatch.setenv(f"DOCKER_{name}", value)
    made = client(version="1.41", timeout=1)
    assert (made.base_url, made.verify, made.cert) == ("https://far:2376", str(folder / "ca.pem"), None)
    (folder / "ca.pem").unlink()
    assert client(version="1.41", timeout=1).base_url == "http://far:2376", "as docker"


def test_tls_s_files_are_looked_for_in_docker_s_own_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "ca.pem").touch()
    monkeypatch.setenv("DOCKER_HOST", "tcp://far:2376")
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.delenv("DOCKER_CERT_PATH", raising=False)
    assert client(version="1.41", timeout=1).verify == str(home / "ca.pem"), "which DOCKER_CONFIG names"


@pytest.mark.parametrize("skips", [False, True])
def test_tls_goes_with_the_ca_that_a_context_has_alone(home: Path, skips: bool) -> None:
    meta = json.loads(_context_of("far", "tcp://far:2376"))
    meta["Endpoints"]["docker"]["SkipTLSVerify"] = skips
    _keep_context(home, "far", json.dumps(meta))
    (home / "config.json").write_text('{"currentContext": "far"}')
    ca = home / "contexts/tls" / hashlib.sha256(b"far").hexdigest() / "docker/ca.pem"
    ca.parent.mkdir(parents=True)
    ca.touch()
    made = client(version="1.41", timeout=1)
    expected = ("http://far:2376", True) if skips else ("https://far:2376", str(ca))
    assert (made.base_url, made.verify, made.cert) == (*expected, None), "nothing goes to a server that nobody verified"
    ca.unlink()
    ca.symlink_to("x" * 300)  # as in a folder that may not be entered, it can't be known what is there
    assert client(version="1.41", timeout=1).base_url == "http://far:2376"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"error": "info is not allowed here"}, '{"error": "info is not allowed here"}'),
        (["forbidden"], '["forbidden"]'),
        ("<h1>403 Forbidden</h1>", "HTTP 403, and a page in place of an answer: 403 Forbidden"),
        ({"message": "authorization denied by plugin"}, "authorization denied by plugin"),
    ],
)
def test_who_stands_in_front_of_an_engine_and_refuses_is_heard_in_its_own_words(
    home: Path, monkeypatch: pytest.MonkeyPatch, answer: Any, told: str
) -> None:
    class Guarded(Daemon):
        def answer(self, path: str) -> tuple[int, Any]:
            return (403, answer) if path.endswith("/info") else super().answer(path)

    with serving(Guarded(home / "docker.sock")) as daemon:
        monkeypatch.setenv("DOCKER_HOST", daemon.host)
        engine = connect()
        with pytest.raises(EngineRefused) as caught:
            _ = engine.version
    assert caught.value.message == f"Docker said: {told}."


@pytest.mark.parametrize(("typed", "why"), [
    ("tcp://127.0.0.1:99999", "Port out of range 0-65535"), ("tcp://[::1", "Invalid IPv6 URL"),
])  # fmt: skip
def test_an_address_that_can_t_be_one_is_told(
    home: Path, monkeypatch: pytest.MonkeyPatch, typed: str, why: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", typed)
    with pytest.raises(EngineAbsent, match=f"answers at {re.escape(typed)}: {why}"):
        connect()
    unknown = 'Max retries exceeded (Caused by NameResolutionError("Failed to resolve far"))'
    with pytest.raises(EngineAbsent, match="its name can't be resolved"), docker_errors(typed, "asked"):
        raise docker.errors.DockerException(unknown)


@pytest.mark.parametrize("current", ["", "default", None])
def test_the_default_context_is_the_default_socket(home: Path, current: str | None) -> None:
    (home / "config.json").write_text(json.dumps({"currentContext": current}))
    assert (context.named(), address()) == ("unix:///var/run/docker.sock", "the default socket")


@pytest.mark.parametrize(
    ("host", "line"),
    [
        ("ssh://far", "$XDG_RUNTIME_DIR/docker-far.sock:/var/run/docker.sock far &"),
        ("ssh://me:hush@far:2222", "$XDG_RUNTIME_DIR/docker-far.sock:/var/run/docker.sock -p 2222 me@far &"),
        ("ssh://far/run/user/7/x.sock", "$XDG_RUNTIME_DIR/docker-far.sock:/run/user/7/x.sock far &"),
    ],
)
@pytest.mark.parametrize("is_context", [False, True])
def test_an_engine_over_ssh_is_refused_with_a_socket_that_ssh_brings(
    home: Path, monkeypatch: pytest.MonkeyPatch, host: str, line: str, is_context: bool
) -> None:
    if is_context:
        _keep_context(home, "far", _context_of("far", host))
        (home / "config.json").write_text('{"currentContext": "far"}')
    else:
        monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(EngineElsewhere, match="ngcdl does not support ssh:// addresses") as refused:
        connect()
    hint = refused.value.hint
    assert f"    ssh -nNT -L {line}\n    export DOCKER_HOST=unix://$XDG_RUNTIME_DIR/docker-far.sock\n" in hint
    assert hint.endswith("    docker context use default" if is_context else "    unset DOCKER_HOST DOCKER_CONTEXT")
    assert "hush" not in hint + refused.value.message
    assert not is_socket(address())


@pytest.mark.parametrize(
    ("variable", "leave"),
    [
        ("DOCKER_HOST", "unset DOCKER_HOST"),
        ("DOCKER_CONTEXT", "unset DOCKER_CONTEXT"),
        (None, "docker context use default"),
    ],
)
def test_what_names_an_address_where_nobody_answers_is_told_with_how_it_is_left_out(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, leave: str
) -> None:
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "x")
    with pytest.raises(EngineAbsent) as caught, docker_errors("unix:///x.sock", "was tested"):
        raise docker.errors.DockerException("No such file or directory")
    assert f"{variable or 'config.json'} sets that address." in caught.value.hint
    assert f"    {leave}\n" in caught.value.hint
