"""ngcdl.registry.client, asking a server that speaks as nvcr.io does, faults included."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from ngc_server import (
    DENIED,
    KEY,
    SCHEMA_1,
    NgcServer,
    denied,
    digest,
    html,
    reset,
    serving,
    short,
    silent,
    status,
)

from ngcdl.errors import (
    BadOption,
    DigestMismatch,
    KeyRejected,
    KeyWithoutRights,
    LoginNeeded,
    NgcdlError,
    RateLimited,
    RegistryAnswer,
    RegistryUnreachable,
    UnknownRepository,
    UnknownTag,
    WrongPlatform,
)
from ngcdl.registry.client import Registry, explain
from ngcdl.registry.key import Credential, Secret
from ngcdl.registry.wire import Question, Wire
from ngcdl.spec import ImageRef

GOOD = Credential("$oauthtoken", Secret(KEY), "a test")
BAD = Credential("$oauthtoken", Secret("nvapi-CANARY-wrong"), "a test")


@pytest.fixture
def naps():
    return []


@pytest.fixture
def registry(ngc, naps):
    with Registry(ngc.host, sleep=naps.append, timeout_seconds=(1, 0.3)) as registry:
        yield registry


@pytest.fixture
def signed_in(ngc, naps):
    with Registry(ngc.host, GOOD, sleep=naps.append, timeout_seconds=(1, 0.3)) as registry:
        yield registry


def ref(ngc: NgcServer, name: str = "nvidia/tensorflow:18.01-py2") -> ImageRef:
    return ImageRef.parse(f"{ngc.host}/{name}")


def shown(error: BaseException) -> str:
    """Everything a user or a log may get to see of an error."""
    import traceback

    hint = error.hint if isinstance(error, NgcdlError) else ""
    return f"{error} {error!r} {hint} {''.join(traceback.format_exception(error))}"


# What is there


def test_a_public_image_is_described_before_any_layer_is_pulled(ngc, registry):
    image = registry.manifest(ref(ngc))
    assert image.compressed_bytes == 1230
    assert [layer.size_bytes for layer in image.layers] == [1000, 200, 30]
    assert image.digest == ngc.tags["nvidia/tensorflow"]["18.01-py2"]
    config = registry.config(ref(ngc), image)
    assert config["config"]["Env"] == ["CUDA_VERSION=9.0.176"]
    assert config["architecture"] == "amd64"


def test_an_index_is_resolved_to_the_platform(ngc, registry):
    ngc.add_image("nvidia/tensorflow", "25.02-tf2-py3", platforms=("linux/arm64", "linux/amd64"))
    both = ref(ngc, "nvidia/tensorflow:25.02-tf2-py3")
    for architecture in ("amd64", "arm64"):
        image = registry.manifest(both, ("linux", architecture))
        assert image.index_digest == ngc.tags["nvidia/tensorflow"]["25.02-tf2-py3"] != image.digest
        assert registry.config(both, image)["architecture"] == architecture


def test_a_platform_that_is_not_there_is_named_with_those_that_are(ngc, registry):
    ngc.add_image("nvidia/tensorflow", "24.05-igpu", platforms=("linux/arm64",))
    with pytest.raises(WrongPlatform) as caught:
        registry.manifest(ref(ngc, "nvidia/tensorflow:24.05-igpu"))
    assert "linux/amd64" in caught.value.message
    assert "linux/arm64" in caught.value.message
    assert "unknown" not in caught.value.message


def test_an_image_is_had_by_its_digest(ngc, registry):
    name = ngc.tags["nvidia/tensorflow"]["18.01-py2"]
    assert registry.manifest(ref(ngc, f"nvidia/tensorflow@{name}")).digest == name


def test_a_schema_1_image_is_recognised_and_read_without_sizes(ngc, registry):
    inner = json.dumps({"architecture": "amd64", "config": {"Env": ["A=b"]}})
    body = json.dumps({"schemaVersion": 1, "history": [{"v1Compatibility": inner}], "fsLayers": []}).encode()
    ngc.manifests["old"] = (SCHEMA_1, body)
    ngc.tags["nvidia/tensorflow"]["17.01"] = "old"
    image = registry.manifest(ref(ngc, "nvidia/tensorflow:17.01"))
    assert image.is_schema_1
    assert (image.media_type, image.compressed_bytes, image.layers) == (SCHEMA_1, None, ())
    assert registry.config(ref(ngc), image)["config"]["Env"] == ["A=b"]


def test_tags_are_read_page_by_page(ngc, registry):
    ngc.page = 2
    for month in range(2, 9):
        ngc.add_image("nvidia/tensorflow", f"18.0{month}-py2")
    assert registry.tags("nvidia/tensorflow") == [f"18.0{month}-py2" for month in range(1, 9)]


def test_a_repository_without_tags_lists_none(ngc, registry):
    ngc.tags["nvidia/tensorflow"] = {}
    assert registry.tags("nvidia/tensorflow") == []


def test_pages_that_lead_elsewhere_or_never_end_are_refused(ngc, registry):
    ngc.fail("tags", lambda h: h.send(200, {"tags": ["a"]}, Link='<http://127.0.0.1:1/v2/x>; rel="next"'), times=1)
    with pytest.raises(RegistryAnswer, match="another host"):
        registry.tags("nvidia/tensorflow")
    ngc.fail("tags", lambda h: h.send(200, {"tags": ["a"]}, Link=f'<{h.path}>; rel="next"'))
    with pytest.raises(RegistryAnswer, match="does not end"):
        registry.tags("nvidia/tensorflow")


def test_ping_tells_whether_sign_ins_are_wanted(ngc, registry):
    assert registry.ping()
    ngc.challenges = False
    assert not registry.ping()


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
        registry.manifest(ref(ngc))
    posted = next(seen for seen in ngc.seen if seen.method == "POST")
    assert b"grant_type=refresh_token" in posted.body
    assert "CANARY" not in posted.path


def test_the_first_question_carries_no_key_and_only_the_realm_sees_it(ngc, signed_in):
    signed_in.manifest(ref(ngc))
    shown_to = [seen.path.split("?")[0] for seen in ngc.seen if (seen.authorization or "").startswith("Basic")]
    assert shown_to == ["/proxy_auth"]
    assert ngc.seen[0].authorization is None


def test_one_token_serves_several_questions_and_is_fetched_anew_when_it_is_over(ngc, naps):
    now = [100.0]
    with Registry(ngc.host, sleep=naps.append, clock=lambda: now[0]) as registry:
        image = registry.manifest(ref(ngc))
        registry.config(ref(ngc), image)
        assert len(ngc.tokens) == 1
        now[0] += 299
        registry.manifest(ref(ngc))
        assert len(ngc.tokens) == 2


@pytest.mark.parametrize("expires_in", [None, "soon", -1, True, 1e300, [], 0])
def test_a_token_with_a_strange_life_lasts_a_minute(ngc, registry, expires_in):
    ngc.expires_in = expires_in
    registry.manifest(ref(ngc))
    registry.manifest(ref(ngc))
    assert len(ngc.tokens) == 1


def test_an_expired_token_is_dropped_and_the_realm_asked_for_without_it(ngc, signed_in):
    signed_in.manifest(ref(ngc))
    ngc.expire()
    assert signed_in.manifest(ref(ngc)).compressed_bytes == 1230
    before_last = [seen.authorization for seen in ngc.seen[-4:]]
    assert before_last[0] == "Bearer token-0"  # refused, with the realm moved to authn.nvidia.com
    assert before_last[1] is None  # asked anew without it
    assert (before_last[2] or "").startswith("Basic")
    assert before_last[3] == "Bearer token-1"


def test_access_token_is_a_token_too(ngc, registry):
    ngc.token_field = "access_token"
    registry.manifest(ref(ngc))


@pytest.mark.parametrize(
    "realm",
    [
        "https://evil.example/token",
        "http://nvcr.io/proxy_auth",
        "https://nvcr.io:8443/proxy_auth",
        "https://nvcr.io.evil.example/token",
        "https://nvcr.io@evil.example/token",
        "https://evil.example\\\\@nvcr.io/token",
        "ftp://127.0.0.1/token",
        "nonsense",
    ],
)
def test_the_key_goes_to_no_other_realm(ngc, signed_in, realm):
    ngc.realm = realm
    with pytest.raises(RegistryAnswer) as caught:
        signed_in.manifest(ref(ngc))
    assert len(ngc.seen) == 1
    assert "CANARY" not in shown(caught.value)


def test_the_key_goes_to_another_port_of_this_machine_when_the_registry_is_here(ngc, signed_in):
    with serving(NgcServer(tokens=ngc.tokens)) as other:
        ngc.realm = f"http://{other.host}/proxy_auth?moved=yes"
        signed_in.manifest(ref(ngc))
        assert other.seen[0].path == "/proxy_auth?moved=yes&scope=repository:nvidia/tensorflow:pull"
        assert (other.seen[0].authorization or "").startswith("Basic")


def test_a_realm_that_redirects_is_not_followed(ngc, signed_in):
    with serving(NgcServer()) as thief:
        ngc.fail("proxy_auth", lambda h: h.send(307, b"", Location=f"http://{thief.host}/proxy_auth"))
        with pytest.raises(RegistryAnswer, match="redirects"):
            signed_in.manifest(ref(ngc))
        assert thief.seen == []


def test_a_blob_is_followed_to_its_cdn_without_authorization(ngc, signed_in):
    with serving(NgcServer()) as cdn:
        image = signed_in.manifest(ref(ngc))
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
        registry.manifest(ref(ngc))
    basic = base64.b64encode(b"thief:CANARY-netrc").decode()
    assert all(basic not in (seen.authorization or "") for seen in ngc.seen)


# Why something can't be had


def explained(ngc: NgcServer, name: str, credential: Credential | None = None) -> NgcdlError | None:
    error = explain(ref(ngc, name), credential)
    assert error is None or "CANARY" not in shown(error)
    return error


def test_nothing_is_explained_where_the_image_can_be_had(ngc):
    assert explained(ngc, "nvidia/tensorflow:18.01-py2") is None
    assert explained(ngc, "nvidia/tensorflow:18.01-py2", GOOD) is None


def test_an_unknown_tag_is_answered_with_the_nearest(ngc):
    for tag in ("18.01-py3", "18.02-py2", "19.10-py2", "17.12", "25.02-tf2-py3", "18.03-py2"):
        ngc.add_image("nvidia/tensorflow", tag)
    error = explained(ngc, "nvidia/tensorflow:18.02-py3")
    assert isinstance(error, UnknownTag)
    assert error.nearest[:3] == ("18.01-py3", "18.02-py2", "18.01-py2")
    assert len(error.nearest) == 5
    assert f"{ngc.host}/nvidia/tensorflow:18.01-py3" in error.hint


@pytest.mark.parametrize("act", [denied, status(403), html(403), status(402)])
def test_a_403_for_an_absent_tag_is_still_an_unknown_tag(ngc, act):
    ngc.fail("manifests/18.02", act)
    assert isinstance(explained(ngc, "nvidia/tensorflow:18.02-py2", GOOD), UnknownTag)


def test_a_403_for_a_tag_that_is_there_is_a_matter_of_rights(ngc):
    ngc.fail("manifests/", denied)
    assert isinstance(explained(ngc, "nvidia/tensorflow:18.01-py2", GOOD), KeyWithoutRights)
    assert isinstance(explained(ngc, "nvidia/tensorflow:18.01-py2"), LoginNeeded)


@pytest.mark.parametrize(
    ("name", "credential", "expected"),
    [
        ("nvidia/tensorflow:18.01-py2", BAD, KeyRejected),
        ("nim/gated:1.0", None, LoginNeeded),
        ("nim/gated:1.0", BAD, KeyRejected),
        ("nvaie/denied:1.0", GOOD, KeyWithoutRights),
        ("nvaie/denied:1.0", None, LoginNeeded),
        ("nvidia/tensorflwo:18.01-py2", None, UnknownRepository),
        ("nvidia/tensorflwo:18.01-py2", GOOD, UnknownRepository),
        (f"nvidia/tensorflow@sha256:{'0' * 64}", None, UnknownTag),
    ],
)
def test_each_refusal_has_its_name(ngc, name, credential, expected):
    ngc.add_image("nim/gated", "1.0")
    ngc.add_image("nvaie/denied", "1.0")
    assert type(explained(ngc, name, credential)) is expected


def test_the_gated_image_is_had_with_the_key(ngc):
    ngc.add_image("nim/gated", "1.0")
    assert explained(ngc, "nim/gated:1.0", GOOD) is None


def test_402_is_said_as_it_is(ngc):
    ngc.fail("proxy_auth", status(402))
    error = explained(ngc, "nvidia/tensorflow:18.01-py2", GOOD)
    assert isinstance(error, KeyWithoutRights)
    assert "(402)" in error.message


def test_a_token_that_opens_nothing_is_a_matter_of_rights(ngc):
    ngc.fail("manifests", lambda handler: handler._challenge(f'realm="http://{ngc.host}/proxy_auth"'))
    assert isinstance(explained(ngc, "nvidia/tensorflow:18.01-py2", GOOD), KeyWithoutRights)
    assert isinstance(explained(ngc, "nvidia/tensorflow:18.01-py2"), LoginNeeded)


def test_a_tag_that_is_listed_without_a_manifest_is_the_registrys_trouble(ngc):
    ngc.tags["nvidia/tensorflow"]["18.09"] = "gone"
    assert isinstance(explained(ngc, "nvidia/tensorflow:18.09"), RegistryAnswer)


# Faults


@pytest.mark.parametrize("path", ["/v2/", "proxy_auth", "manifests"])
@pytest.mark.parametrize("code", [200, 401, 404, 418])
def test_a_web_page_is_quoted_short_and_clean(ngc, path, code):
    ngc.fail(path, html(code))
    error = explained(ngc, "nvidia/tensorflow:18.01-py2", GOOD)
    if path == "proxy_auth" and code == 401:
        assert isinstance(error, KeyRejected)
        return
    assert isinstance(error, RegistryAnswer)
    assert "Corporate portal" in error.message
    assert not any(mark in error.message for mark in ("<", "\x1b", "\x07", "var x"))
    assert len(error.message) < 350


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"schemaVersion": 2}', b"{}", b"[" * 100_000, b'{"a":' * 100_000],
)
def test_a_broken_body_anywhere_is_an_error_of_ours(ngc, registry, body):
    for path in ("manifests", "tags", "proxy_auth", "/v2/$"):
        ngc.faults[:] = []
        ngc.fail(path, lambda handler: handler.send(200, body))
        for ask in (lambda: registry.manifest(ref(ngc)), lambda: registry.tags("nvidia/tensorflow"), registry.ping):
            try:
                ask()
            except NgcdlError:
                continue


@pytest.mark.parametrize(
    "body", [b'{"token": 7}', b'{"token": ""}', b'{"token": "a\\nb"}', b'{"token": "\xc3\xa4"}', b"token"]
)
def test_a_token_that_is_none_is_not_sent_on(ngc, registry, body):
    ngc.fail("proxy_auth", lambda handler: handler.send(200, body))
    with pytest.raises(RegistryAnswer):
        registry.manifest(ref(ngc))


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
@pytest.mark.parametrize("path", ["/v2/", "proxy_auth"])
def test_trouble_that_passes_is_not_noticed(ngc, registry, naps, code, path):
    ngc.fail(path, status(code), times=2)
    assert registry.manifest(ref(ngc)).compressed_bytes == 1230
    assert len(naps) == 2
    assert 0.25 <= naps[0] <= 0.75
    assert 0.5 <= naps[1] <= 1.5


def test_trouble_that_stays_is_named_after_three_tries(ngc, registry, naps):
    ngc.fail("manifests", status(429))
    with pytest.raises(RateLimited):
        registry.manifest(ref(ngc))
    assert len(naps) == 2
    ngc.faults[:] = []
    ngc.fail("manifests", html(502))
    with pytest.raises(RegistryAnswer, match="502 Bad Gateway"):
        registry.manifest(ref(ngc))


def test_retry_after_is_honoured_up_to_thirty_seconds(ngc, registry, naps):
    ngc.fail("manifests", status(429, Retry_After="7"), times=1)
    registry.manifest(ref(ngc))
    assert naps == [7.0]
    ngc.fail("manifests", status(429, Retry_After="31"))
    with pytest.raises(RateLimited, match="wait 31 s"):
        registry.manifest(ref(ngc))
    assert len(naps) == 1


@pytest.mark.parametrize("text", ["Wed, 21 Oct 2015 07:28:00 GMT", "soon", "", "-5", "1e9", "²"])
def test_a_strange_retry_after_is_a_short_wait(ngc, registry, naps, text):
    ngc.fail("manifests", status(503, Retry_After=text.encode("ascii", "ignore").decode()), times=1)
    registry.manifest(ref(ngc))
    assert len(naps) == 1
    assert naps[0] < 1


@pytest.mark.parametrize("act", [reset, short])
def test_a_cut_connection_is_tried_again(ngc, registry, naps, act):
    ngc.fail("tags", act, times=2)
    assert registry.tags("nvidia/tensorflow") == ["18.01-py2"]
    ngc.fail("tags", act)
    with pytest.raises(RegistryUnreachable):
        registry.tags("nvidia/tensorflow")


def test_a_registry_that_never_answers_is_given_up(ngc, registry, naps):
    ngc.fail("/v2/", silent)
    with pytest.raises(RegistryUnreachable, match=r"no answer within 0\.3 s"):
        registry.ping()
    assert naps == []


def test_a_refused_port_and_an_unknown_name_are_told_apart(naps):
    with Registry("127.0.0.1:1", sleep=naps.append) as registry, pytest.raises(RegistryUnreachable, match="refused"):
        registry.ping()
    with Registry("nosuch.invalid", sleep=naps.append) as registry, pytest.raises(RegistryUnreachable) as caught:
        registry.ping()
    assert "nosuch.invalid" in caught.value.message


def test_an_answer_without_end_is_not_read_to_its_end(ngc, registry):
    ngc.fail("tags", lambda handler: handler.send(200, b"x" * (9 << 20)))
    with pytest.raises(RegistryAnswer, match="more than"):
        registry.tags("nvidia/tensorflow")


def test_bytes_that_are_not_their_digest_are_refused(ngc, registry):
    name = ngc.tags["nvidia/tensorflow"]["18.01-py2"]
    image = registry.manifest(ref(ngc))
    ngc.blobs[image.config_digest or ""] += b" "
    with pytest.raises(DigestMismatch):
        registry.config(ref(ngc), image)
    kind, body = ngc.manifests[name]
    ngc.manifests[name] = kind, body + b" "
    for image_name in ("nvidia/tensorflow:18.01-py2", f"nvidia/tensorflow@{name}"):
        with pytest.raises(DigestMismatch):
            registry.manifest(ref(ngc, image_name))


def test_a_denied_blob_is_named(ngc, signed_in):
    image = signed_in.manifest(ref(ngc))
    ngc.fail("blobs", lambda handler: handler.send(403, DENIED))
    with pytest.raises(KeyWithoutRights):
        signed_in.config(ref(ngc), image)


# TLS


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=lab -addext subjectAltName=IP:127.0.0.1"
    made = subprocess.run(
        [*command.split(), "-keyout", folder / "key.pem", "-out", folder / "cert.pem"], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("openssl is missing: no certificate can be made")
    return folder


@pytest.fixture
def tls_url(certificate):
    class Greeter(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format, *args):
            pass

    class Quiet(HTTPServer):
        def handle_error(self, request, client_address):
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    server = Quiet(("127.0.0.1", 0), Greeter)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}/v2/"
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_unknown_certificate_is_refused_and_never_tried_without_tls(tls_url, naps):
    wire = Wire(sleep=naps.append, environ={})
    with pytest.raises(RegistryUnreachable, match="certificate is not trusted"):
        wire.ask(Question(tls_url))
    assert naps == []
    wire.close()


@pytest.mark.parametrize("variable", ["NGCDL_CA_FILE", "REQUESTS_CA_BUNDLE"])
def test_a_ca_file_adds_trust(tls_url, certificate, variable):
    wire = Wire(environ={variable: str(certificate / "cert.pem")})
    assert wire.ask(Question(tls_url)).body == b"{}"
    wire.close()


def test_a_ca_file_that_is_none_is_said(tmp_path):
    for path in (tmp_path / "absent.pem", tmp_path):
        with pytest.raises(BadOption, match="NGCDL_CA_FILE"):
            Wire(environ={"NGCDL_CA_FILE": str(path)})


def test_a_server_that_drips_does_not_hold_the_rest_back(ngc):
    """What has come is taken at once: a whole block is not waited for."""
    def drip(handler):
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for byte in b'{"tags": ["a"]}':
            handler.wfile.write(b"1\r\n%c\r\n" % byte)
            handler.wfile.flush()
        handler.wfile.write(b"0\r\n\r\n")

    ngc.fail("tags", drip)
    with Registry(ngc.host) as registry:
        assert registry.tags("nvidia/tensorflow") == ["a"]


def test_the_digest_of_the_test_is_the_digest_of_the_product():
    from ngcdl.registry.manifest import digest as ours

    assert ours(b"x") == digest(b"x")
