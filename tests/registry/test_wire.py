"""ngcdl.registry.wire: all kinds of faults, retried or reported; TLS."""

from __future__ import annotations

import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import certificates
import pytest
import requests
from ngc_server import (
    DENIED,
    digest,
    html,
    reset,
    short,
    silent,
    status,
)
from registry_asker import GOOD, ref

from ngcdl.errors import (
    DigestMismatch,
    KeyRejected,
    KeyWithoutRights,
    NgcdlError,
    RateLimited,
    RegistryAnswer,
    RegistryUnreachable,
)
from ngcdl.pulling.fetch import explain
from ngcdl.registry.client import LINUX_AMD64, Registry
from ngcdl.registry.line_trouble import translated
from ngcdl.registry.wire import Request, Wire

# Faults


@pytest.mark.parametrize("path", ["/v2/", "proxy_auth", "manifests"])
@pytest.mark.parametrize("code", [200, 401, 404, 418])
def test_a_web_page_is_quoted_short_and_clean(ngc, path, code):
    ngc.fail(path, html(code))
    error = explain(ref(ngc), GOOD)
    if path == "proxy_auth" and code == 401:
        assert isinstance(error, KeyRejected)
        return
    assert isinstance(error, RegistryAnswer)
    assert "Corporate portal" in error.message
    assert not any(mark in error.message for mark in ("<", "\x1b", "\x07", "var x"))
    assert len(error.message) < 350


def test_an_image_for_other_processors_only_is_there(ngc):
    ngc.add_image("nvidia/tensorflow", "arm64", ("linux/arm64",))
    assert explain(ref(ngc, "nvidia/tensorflow:arm64"), GOOD) is None, "the engine knows which processor it has"


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"schemaVersion": 2}', b"{}", b"[" * 100_000, b'{"a":' * 100_000],
)
def test_a_broken_body_anywhere_is_an_error_of_ours(ngc, registry, body):
    for path in ("manifests", "tags", "proxy_auth", "/v2/$"):
        ngc.faults[:] = []
        ngc.fail(path, lambda handler: handler.send(200, body))
        for ask in (
            lambda: registry.described(ref(ngc), LINUX_AMD64),
            lambda: registry.tags("nvidia/tensorflow"),
            registry.ping,
        ):
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
        registry.described(ref(ngc), LINUX_AMD64)


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
@pytest.mark.parametrize("path", ["/v2/", "proxy_auth"])
def test_trouble_that_passes_is_not_noticed(ngc, registry, naps, code, path):
    ngc.fail(path, status(code), times=2)
    assert registry.described(ref(ngc), LINUX_AMD64)[0].compressed_bytes == 1230
    assert len(naps) == 2
    assert 0.25 <= naps[0] <= 0.75
    assert 0.5 <= naps[1] <= 1.5


def test_trouble_that_stays_is_named_after_three_tries(ngc, registry, naps):
    ngc.fail("manifests", status(429))
    with pytest.raises(RateLimited):
        registry.described(ref(ngc), LINUX_AMD64)
    assert len(naps) == 2
    ngc.faults[:] = []
    ngc.fail("manifests", html(502))
    with pytest.raises(RegistryAnswer, match="502 Bad Gateway"):
        registry.described(ref(ngc), LINUX_AMD64)


def test_retry_after_is_honoured_up_to_thirty_seconds(ngc, registry, naps):
    ngc.fail("manifests", status(429, Retry_After="7"), times=1)
    registry.described(ref(ngc), LINUX_AMD64)
    assert naps == [7.0]
    ngc.fail("manifests", status(429, Retry_After="31"))
    with pytest.raises(RateLimited, match="wait 31 s"):
        registry.described(ref(ngc), LINUX_AMD64)
    assert len(naps) == 1
    ngc.faults.clear()
    ngc.fail("manifests", status(503, Retry_After="60"))
    with pytest.raises(RegistryAnswer, match="503") as caught:
        registry.described(ref(ngc), LINUX_AMD64)
    assert caught.value.seconds == 60


@pytest.mark.parametrize("text", ["Wed, 21 Oct 2015 07:28:00 GMT", "soon", "", "-5", "1e9", "²"])
def test_a_strange_retry_after_is_a_short_wait(ngc, registry, naps, text):
    ngc.fail("manifests", status(503, Retry_After=text.encode("ascii", "ignore").decode()), times=1)
    registry.described(ref(ngc), LINUX_AMD64)
    assert len(naps) == 1
    assert naps[0] < 1


@pytest.mark.parametrize("act", [reset, short])
def test_a_cut_connection_is_tried_again(ngc, registry, naps, act):
    ngc.fail("tags", act, times=2)
    assert registry.tags("nvidia/tensorflow") == ["18.01-py2"]
    ngc.fail("tags", act)
    with pytest.raises(RegistryUnreachable):
        registry.tags("nvidia/tensorflow")


def test_a_registry_that_never_answers_is_given_up(ngc, naps):
    ngc.fail("/v2/", silent)
    registry = Registry(ngc.host, sleep=naps.append, timeout_seconds=(20, 0.3))
    with registry, pytest.raises(RegistryUnreachable, match=r"no answer within 0\.3 s"):
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
    image, _ = registry.described(ref(ngc), LINUX_AMD64)
    ngc.blobs[image.config_digest or ""] += b" "
    with pytest.raises(DigestMismatch):
        registry.config(ref(ngc), image)
    kind, body = ngc.manifests[name]
    ngc.manifests[name] = kind, body + b" "
    for image_name in ("nvidia/tensorflow:18.01-py2", f"nvidia/tensorflow@{name}"):
        with pytest.raises(DigestMismatch):
            registry.described(ref(ngc, image_name), LINUX_AMD64)


def test_a_denied_blob_is_named(ngc, signed_in):
    image, _ = signed_in.described(ref(ngc), LINUX_AMD64)
    ngc.fail("blobs", lambda handler: handler.send(403, DENIED))
    with pytest.raises(KeyWithoutRights):
        signed_in.config(ref(ngc), image)


# TLS


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A key and two certificates: cert.pem is the server's, other.pem is unrelated."""
    folder = tmp_path_factory.mktemp("tls")
    for key, name in (("other.key", "other.pem"), ("key.pem", "cert.pem")):
        certificates.make(folder / key, folder / name, "lab", "IP:127.0.0.1")
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
    with pytest.raises(RegistryUnreachable, match="certificate is not trusted") as caught:
        wire.ask(Request(tls_url))
    assert "NGCDL_CA_FILE" in caught.value.hint
    assert naps == []
    wire.close()


def test_no_ca_is_asked_for_where_the_certificate_is_for_another_name(tls_url, certificate):
    wire = Wire(environ={"NGCDL_CA_FILE": str(certificate / "cert.pem")})
    with pytest.raises(
        RegistryUnreachable, match=r"its certificate is not for that address \(.*localhost'\)\.$"
    ) as caught:
        wire.ask(Request(tls_url.replace("127.0.0.1", "localhost")))
    assert "NGCDL_CA_FILE" not in caught.value.hint
    assert "subjectAltName" in caught.value.hint
    wire.close()


@pytest.mark.parametrize("code", [9, 10])  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
def test_the_clock_is_named_where_the_certificate_is_not_valid_now(code):
    refused = ssl.SSLCertVerificationError()
    refused.verify_code, refused.verify_message = code, "certificate has expired"
    error, is_worth_a_retry = translated("mirror:5443", requests.exceptions.SSLError(refused), (1, 1))
    assert "by this machine's clock, its certificate is not valid now (certificate has expired)." in error.message
    assert error.commands[-1] == "date -u"
    assert error.by_clock
    assert not is_worth_a_retry


@pytest.mark.parametrize("variable", ["NGCDL_CA_FILE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"])
def test_a_ca_file_adds_trust_and_so_does_the_system_s(tls_url, certificate, monkeypatch, variable):
    monkeypatch.setenv(variable, str(certificate / "cert.pem"))  # OpenSSL itself reads the last variable
    wire = Wire(environ={variable: str(certificate / "cert.pem")})
    assert wire.ask(Request(tls_url)).body == b"{}"
    wire.close()


def test_a_bundle_that_is_named_stands_for_the_system_s(tls_url, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    wire = Wire(environ={"REQUESTS_CA_BUNDLE": str(certificate / "other.pem")})
    with pytest.raises(RegistryUnreachable, match="certificate is not trusted"):
        wire.ask(Request(tls_url))
    wire.close()


@pytest.mark.parametrize("swapped", [False, True])
def test_a_ca_file_takes_no_trust_away(tls_url, certificate, tmp_path, swapped):
    """One variable names a file with another CA, the other one the server's own."""
    names = ["NGCDL_CA_FILE", "REQUESTS_CA_BUNDLE"][:: -1 if swapped else 1]
    other = certificate / "other.pem"
    environ = {names[0]: str(certificate / "cert.pem"), names[1]: str(other)}
    wire = Wire(environ=environ)
    assert wire.ask(Request(tls_url)).status == 200
    wire.close()


@pytest.mark.parametrize(("variable", "value"), [("HTTPS_PROXY", "http://127.0.0.1:1"), ("ALL_PROXY", "socks5://x:1")])
def test_a_proxy_that_fails_is_named_as_the_cause(naps, monkeypatch, variable, value):
    for name in ("HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv(variable, value)
    with Registry("nosuch.invalid", sleep=naps.append) as registry, pytest.raises(RegistryUnreachable, match="proxy"):
        registry.ping()
    assert naps == []


def test_a_proxy_that_is_no_address_is_named_without_its_password(naps, monkeypatch):
    for name in ("HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("ALL_PROXY", "http://me:canary#x@proxy:3128")
    registry = Registry("nosuch.invalid", sleep=naps.append)
    with registry, pytest.raises(RegistryUnreachable, match="ALL_PROXY is not a valid address") as caught:
        registry.ping()
    assert "canary" not in f"{caught.value} {caught.value.hint}"


def test_a_server_that_drips_does_not_hold_the_rest_back(ngc):
    """Data is read as it arrives, without waiting for a whole block."""

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


# Budgets


def test_what_is_given_holds_for_all_tries_and_waits_together(ngc, naps):
    ngc.fail("tags", status(503, Retry_After="30"))  # the longest wait that is granted
    with Registry(ngc.host, sleep=naps.append) as registry:
        registry.give(30)
        with pytest.raises(RegistryAnswer, match="503"):
            registry.tags("nvidia/tensorflow")
    assert naps == []


def test_nothing_is_asked_any_more_once_all_is_spent(ngc):
    with Registry(ngc.host) as registry:
        registry.give(0.0)
        with pytest.raises(RegistryUnreachable, match="no answer within 0 s"):
            registry.ping()
    assert ngc.seen == []


def test_a_silent_registry_is_given_up_when_all_is_spent(ngc, naps):
    ngc.fail("/v2/", silent)
    with Registry(ngc.host, sleep=naps.append) as registry:
        registry.give(0.3)
        with pytest.raises(RegistryUnreachable, match=r"no answer within 0\.3 s"):
            registry.ping()
