"""ngcdl.registry.tokens: who gets to see the key, and how long a token is valid."""

from __future__ import annotations

import base64
import contextlib

import pytest
from ngc_server import (
    KEY,
    NgcServer,
    serving,
)
from registry_asker import BAD, GOOD, ref, shown

from ngcdl.errors import (
    KeyRejected,
    RealmRefused,
    RegistryAnswer,
)
from ngcdl.registry.challenge import Challenge
from ngcdl.registry.client import LINUX_AMD64, Registry
from ngcdl.registry.key import Credential, Secret
from ngcdl.registry.tokens import Tokens
from ngcdl.registry.wire import Response

# Keys


def test_a_good_key_is_taken_and_a_wrong_one_refused(ngc, registry):
    assert registry.verify(GOOD)
    with pytest.raises(KeyRejected) as caught:
        registry.verify(BAD)
    assert "CANARY" not in shown(caught.value)


def test_a_key_without_rights_to_one_repository_is_a_good_key(ngc, registry):
    ngc.denied.add("nvidia/tensorflow")
    assert registry.verify(GOOD)


def test_a_registry_that_challenges_nobody_has_not_checked_the_key(ngc, registry):
    ngc.challenges = False
    assert registry.verify(BAD) is False
    assert all(seen.authorization is None for seen in ngc.seen)


def test_a_key_that_is_not_ngcs_user_is_sent_as_it_is(ngc):
    with Registry(ngc.host) as registry, pytest.raises(KeyRejected):
        registry.verify(Credential("somebody", Secret(KEY), "a test"))


def test_an_identity_token_goes_the_oauth2_way(ngc):
    ngc.gated.add("nvidia/tensorflow")
    with Registry(ngc.host, Credential("<token>", Secret(KEY), "a test")) as registry:
        registry.described(ref(ngc), LINUX_AMD64)
    posted = next(seen for seen in ngc.seen if seen.method == "POST")
    assert b"grant_type=refresh_token" in posted.body
    assert "CANARY" not in posted.path


def test_the_first_question_carries_no_key_and_only_the_realm_sees_it(ngc, signed_in):
    signed_in.described(ref(ngc), LINUX_AMD64)
    shown_to = [seen.path.split("?")[0] for seen in ngc.seen if (seen.authorization or "").startswith("Basic")]
    assert shown_to == ["/proxy_auth"]
    assert ngc.seen[0].authorization is None


def test_one_token_serves_several_questions_and_is_fetched_anew_when_it_is_over(ngc, naps):
    now = [100.0]
    with Registry(ngc.host, sleep=naps.append, clock=lambda: now[0]) as registry:
        image, _ = registry.described(ref(ngc), LINUX_AMD64)
        registry.config(ref(ngc), image)
        assert len(ngc.tokens) == 1
        now[0] += 299
        registry.described(ref(ngc), LINUX_AMD64)
        assert len(ngc.tokens) == 2


@pytest.mark.parametrize("expires_in", [None, "soon", -1, True, 1e300, [], 0])
def test_a_token_with_a_strange_life_lasts_a_minute(ngc, registry, expires_in):
    ngc.expires_in = expires_in
    registry.described(ref(ngc), LINUX_AMD64)
    registry.described(ref(ngc), LINUX_AMD64)
    assert len(ngc.tokens) == 1


def test_an_expired_token_is_dropped_and_the_realm_asked_for_without_it(ngc, signed_in):
    signed_in.described(ref(ngc), LINUX_AMD64)
    ngc.expire()
    assert signed_in.described(ref(ngc), LINUX_AMD64)[0].compressed_bytes == 1230
    before_last = [seen.authorization for seen in ngc.seen[-4:]]
    assert before_last[0] == "Bearer token-0"  # refused, with the realm moved to authn.nvidia.com
    assert before_last[1] is None  # asked again without it
    assert (before_last[2] or "").startswith("Basic")
    assert before_last[3] == "Bearer token-1"


@pytest.mark.parametrize("content_type", ["text/plain; charset=utf-8", "text/html", "application/json", ""])
def test_a_token_is_read_whatever_its_answer_calls_itself(ngc, registry, content_type):
    ngc.tokens["token-x"] = "nvidia/tensorflow"
    ngc.fail("proxy_auth", lambda handler: handler.send(200, {"token": "token-x"}, Content_Type=content_type))
    assert registry.described(ref(ngc), LINUX_AMD64)[0].compressed_bytes == 1230
    assert ngc.seen[-1].authorization == "Bearer token-x"


def test_of_several_challenges_with_commas_inside_the_bearer_s_is_answered(ngc, signed_in):
    several = (
        f'Negotiate, Basic realm="a, b", Bearer realm="http://{ngc.host}/proxy_auth?a=b",scope="repository:x:pull,push"'
    )
    refuse = {"errors": [{"code": "UNAUTHORIZED"}]}
    ngc.fail("manifests", lambda handler: handler.send(401, refuse, Www_Authenticate=several), times=1)
    signed_in.described(ref(ngc), LINUX_AMD64)
    assert ngc.seen[1].path == "/proxy_auth?a=b&scope=repository:x:pull,push"


def test_access_token_is_a_token_too(ngc, registry):
    ngc.token_field = "access_token"
    registry.described(ref(ngc), LINUX_AMD64)


@pytest.mark.parametrize(
    "realm",
    [
        "http://nvcr.io/proxy_auth",
        "https://nvcr.io@evil.example/token",
        "https://evil.example\\\\@nvcr.io/token",
        "ftp://127.0.0.1/token",
        "nonsense",
    ],
)
def test_the_key_goes_to_no_address_without_encryption_and_to_none_of_two_readings(ngc, signed_in, realm):
    ngc.realm = realm
    with pytest.raises(RealmRefused, match="that is not an https address") as caught:
        signed_in.described(ref(ngc), LINUX_AMD64)
    assert len(ngc.seen) == 1
    assert "CANARY" not in shown(caught.value)
    assert "docker pull" not in caught.value.hint, "Docker would send the key there in clear"
    ngc.gated.clear()
    with Registry(ngc.host) as nobody, pytest.raises(RegistryAnswer):
        nobody.described(ref(ngc), LINUX_AMD64)


@pytest.mark.parametrize(
    ("host", "realm", "is_shown"),
    [
        ("docker.io", "https://auth.docker.io/token", True),
        ("index.docker.io", "https://auth.docker.io/token", True),
        ("docker.io", "http://auth.docker.io/token", False),
        ("docker.io", "https://authn.nvidia.com/token", False),
        ("nvcr.io", "https://authn.nvidia.com/token", True),
        ("nvcr.io", "https://nvcr.io:8443/proxy_auth", True),
        ("nvcr.io", "https://authn.nvidia.com:8443/token", False),
        ("nvcr.io", "https://auth.docker.io/token", False),
        ("nvcr.io", "https://nvcr.io.evil.example/token", False),
        ("nvcr.io", "https://notnvidia.com/token", False),
        ("registry.gitlab.com", "https://gitlab.com/jwt/auth", True),
        ("mirror.example:5000", "https://sso.example.org:8443/token", True),
        ("mirror.example", "http://mirror.example/token", False),
        ("mirror.example", "https://169.254.169.254/token", False),
        ("mirror.example", "https://10.0.0.7/token", False),
        ("mirror.example", "https://[fe80::1]/token", False),
        ("mirror.example", "https://localhost/token", False),
        ("mirror.example", "https://127.0.0.1:8443/token", False),
        ("10.0.0.7:5050", "https://10.0.0.7/jwt/auth", True),
        ("10.0.0.7:5050", "https://gitlab.example/jwt/auth", True),
    ],
)
def test_a_registry_sends_its_own_key_where_it_likes_but_for_those_whose_realms_are_known(host, realm, is_shown):
    class Line:
        def ask(self, question):
            asked.append(question.authorization.reveal())
            return Response(200, {}, b'{"token": "t"}', "realm.example")

    asked = []
    tokens = Tokens(host, GOOD, Line(), lambda: 0.0)
    with contextlib.nullcontext() if is_shown else pytest.raises(RealmRefused) as caught:
        tokens.fetch(Challenge(realm), "library/busybox")
    assert len(asked) == is_shown
    if caught and realm.startswith("https:"):
        assert f"docker pull {host}/library/busybox:TAG" in caught.value.hint


def test_the_key_goes_to_another_port_of_this_machine_when_the_registry_is_here(ngc, signed_in):
    with serving(NgcServer(tokens=ngc.tokens)) as other:
        ngc.realm = f"http://{other.host}/proxy_auth?moved=yes"
        signed_in.described(ref(ngc), LINUX_AMD64)
        assert other.seen[0].path == "/proxy_auth?moved=yes&scope=repository:nvidia/tensorflow:pull"
        assert (other.seen[0].authorization or "").startswith("Basic")


def test_a_realm_that_redirects_is_not_followed(ngc, signed_in):
    with serving(NgcServer()) as thief:
        ngc.fail("proxy_auth", lambda h: h.send(307, b"", Location=f"http://{thief.host}/proxy_auth"))
        with pytest.raises(RegistryAnswer, match="redirects"):
            signed_in.described(ref(ngc), LINUX_AMD64)
        assert thief.seen == []


def test_a_blob_is_followed_to_its_cdn_without_authorization(ngc, signed_in):
    with serving(NgcServer()) as cdn:
        image, _ = signed_in.described(ref(ngc), LINUX_AMD64)
        body = ngc.blobs[image.config_digest or ""]
        cdn.fail("/signed/", lambda handler: handler.send(200, body))
        ngc.cdn = f"http://{cdn.host}"
        assert signed_in.config(ref(ngc), image)["architecture"] == "amd64"
        assert [seen.authorization for seen in cdn.seen] == [None]
        assert cdn.seen[0].path.endswith("X-Signature=abc%2Fdef")


def test_redirects_without_end_and_to_elsewhere_are_refused(ngc, registry):
    ngc.fail("/v2/", lambda handler: handler.send(307, b"", Location=handler.path))
    with pytest.raises(RegistryAnswer, match="more than 5"):
        registry.tags("nvidia/tensorflow")
    ngc.faults[:] = []
    ngc.fail("/v2/", lambda handler: handler.send(307, b"", Location="file:///etc/passwd"))
    with pytest.raises(RegistryAnswer, match="does not go to"):
        registry.tags("nvidia/tensorflow")


def test_a_netrc_and_a_proxy_variable_do_not_get_in_between(ngc, tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("default login thief password CANARY-netrc\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    with Registry(ngc.host) as registry:
        registry.described(ref(ngc), LINUX_AMD64)
    basic = base64.b64encode(b"thief:CANARY-netrc").decode()
    assert all(basic not in (seen.authorization or "") for seen in ngc.seen)
