"""A registry that wants the key itself with each request, as Nexus and registry:2 with htpasswd do."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from blob_line import CONTENT, DIGEST
from ngc_server import KEY, Handler, NgcServer, serving
from registry_asker import BAD, GOOD, ref, shown

from ngcdl.errors import KeyRejected, LoginNeeded, RegistryAnswer
from ngcdl.pulling.blobs import Blob
from ngcdl.registry.client import LINUX_AMD64, Registry
from ngcdl.registry.key import TOKEN_USERNAME, Credential, Secret
from ngcdl.registry.session import Keys, Session

OWN = f"Basic {base64.b64encode(f'$oauthtoken:{KEY}'.encode()).decode()}"


def guarded(handler: Handler) -> None:
    if handler.headers.get("Authorization") == OWN:
        handler._registry()
    else:
        handler.send(401, b"", Www_Authenticate='Basic realm="Sonatype Nexus Repository Manager"')


@pytest.fixture
def nexus(ngc: NgcServer) -> NgcServer:
    ngc.challenges = False
    ngc.fail("/v2/", guarded)
    return ngc


@pytest.fixture
def cdn() -> Iterator[NgcServer]:
    """Another host, which asks for a key as well."""
    with serving(NgcServer(challenges=False), "127.0.0.2") as one:
        one.fail("/signed/", lambda handler: handler.send(401, b"", Www_Authenticate='Basic realm="x"'))
        yield one


def test_it_gets_the_key_itself(nexus: NgcServer, signed_in: Registry, tmp_path: Path) -> None:
    nexus.blobs[DIGEST] = CONTENT
    image, _ = signed_in.described(ref(nexus), LINUX_AMD64)
    assert signed_in.config(ref(nexus), image)["architecture"] == "amd64"
    assert signed_in.tags("nvidia/tensorflow") == ["18.01-py2"]
    blob = Blob(tmp_path, DIGEST, len(CONTENT))
    blob.fill(lambda start: signed_in.open("nvidia/tensorflow", DIGEST, start))
    assert blob.read() == CONTENT
    blob.close()
    assert [seen.authorization for seen in nexus.seen] == [None, *[OWN] * (len(nexus.seen) - 1)]


def test_without_a_key_docker_s_login_is_named(nexus: NgcServer, registry: Registry) -> None:
    with pytest.raises(LoginNeeded) as caught:
        registry.tags("nvidia/tensorflow")
    assert f"docker login {nexus.host}" in caught.value.hint


def test_a_question_is_asked_again_with_the_stored_key(
    nexus: NgcServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    entry = f'{{"auths": {{"{nexus.host}": {{"auth": "{OWN.removeprefix("Basic ")}"}}}}}}'
    (tmp_path / "config.json").write_text(entry)
    with Session(Keys()) as session:
        found = session.ask(nexus.host, "nvidia/tensorflow", lambda one: one.tags("nvidia/tensorflow"))
    assert found == ["18.01-py2"]


@pytest.mark.parametrize("key", [BAD, Credential(TOKEN_USERNAME, Secret(KEY), "a test")], ids=["wrong", "token"])
def test_a_wrong_key_is_told_and_not_shown(nexus: NgcServer, registry: Registry, key: Credential) -> None:
    with Registry(nexus.host, key) as signed_in:
        for ask in (lambda: signed_in.tags("nvidia/tensorflow"), lambda: registry.verify(key)):
            with pytest.raises(KeyRejected) as caught:
                ask()
            assert f"docker login {nexus.host}" in caught.value.hint
            assert "CANARY" not in shown(caught.value)


def test_a_good_key_is_verified(nexus: NgcServer, registry: Registry) -> None:
    assert registry.verify(GOOD)
    assert nexus.seen[-1].authorization == OWN


def test_another_host_is_not_shown_the_key(nexus: NgcServer, signed_in: Registry, cdn: NgcServer) -> None:
    nexus.cdn = f"http://{cdn.host}"
    with pytest.raises(RegistryAnswer, match=cdn.host):
        signed_in.open("nvidia/tensorflow", DIGEST)
    assert {seen.authorization for seen in cdn.seen} == {None}
