"""CIFAR-10 behind a CA that is in no bundle, such as a company proxy that intercepts TLS."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import certificates
import pytest

from ngcdl.errors import BadOption, DatasetUnavailable

from . import small
from .host import Host, whole
from .server import Reply, Server

NAME = "cifar.invalid"  # behind a proxy only


@pytest.fixture(scope="module")
def ca_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for this machine and NAME, with its key beside it."""
    folder = tmp_path_factory.mktemp("tls")
    certificates.make(folder / "key.pem", folder / "cert.pem", NAME, f"IP:127.0.0.1,DNS:{NAME}")
    return folder / "cert.pem"


@pytest.fixture
def tls(ca_file: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ca_file, ca_file.with_name("key.pem"))
    return context


@pytest.fixture(autouse=True)
def _no_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NGCDL_CA_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def far(tls: ssl.SSLContext) -> Iterator[Server]:
    server = Server(Reply(small.PACKED), tls=tls)
    yield server
    server.stop()


@pytest.fixture
def proxied(serve: Callable[..., Server], tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> str:
    """An address behind a proxy that intercepts TLS: it answers in the host's place, with its own certificate."""
    server = serve()
    handler = server.RequestHandlerClass

    class Opening(handler):  # type: ignore[misc, valid-type]
        def do_CONNECT(self) -> None:  # noqa: N802
            self.send_response(200)
            self.end_headers()
            self.request = tls.wrap_socket(self.connection, server_side=True)
            self.setup()
            self.close_connection = False

        def finish(self) -> None:
            super().finish()
            self.request.close()

    server.RequestHandlerClass = Opening
    monkeypatch.setenv("HTTPS_PROXY", server.url.rsplit("/", 1)[0])
    return f"https://{NAME}/cifar-10-binary.tar.gz"


@pytest.mark.parametrize("variable", ["NGCDL_CA_FILE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"])
def test_a_ca_that_is_named_is_trusted_and_so_is_the_system_s(
    host: Host, far: Server, ca_file: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, str(ca_file))  # OpenSSL itself reads the last
    host.environ[variable] = str(ca_file)
    assert whole(host.prepare(archive=small.archive_of(small.PACKED, far.url)))


def test_a_ca_that_is_not_known_is_told_with_the_variable_that_names_it(host: Host, far: Server) -> None:
    with pytest.raises(
        DatasetUnavailable, match=r"its certificate is not trusted \(self.signed certificate\)"
    ) as caught:
        host.prepare(archive=small.archive_of(small.PACKED, far.url))
    assert "export NGCDL_CA_FILE=" in caught.value.hint
    assert "--data DIR" in caught.value.hint
    assert far.seen == []


def test_no_ca_is_asked_for_where_the_certificate_is_for_another_name(host: Host, far: Server, ca_file: Path) -> None:
    host.environ["NGCDL_CA_FILE"] = str(ca_file)
    with pytest.raises(DatasetUnavailable, match="its certificate is not for that address") as caught:
        host.prepare(archive=small.archive_of(small.PACKED, far.url.replace("127.0.0.1", "localhost")))
    assert "NGCDL_CA_FILE" not in caught.value.hint


def test_another_trouble_does_not_ask_for_a_ca(host: Host, serve: Callable[..., Server]) -> None:
    url = serve().url.replace("http://", "https://")
    with pytest.raises(DatasetUnavailable, match="TLS failed") as caught:
        host.prepare(archive=small.archive_of(small.PACKED, url))
    assert "NGCDL_CA_FILE" not in caught.value.hint


def test_behind_a_proxy_that_opens_tls_the_archive_comes_once_its_ca_is_named(
    host: Host, proxied: str, ca_file: Path
) -> None:
    archive = small.archive_of(small.PACKED, proxied)
    with pytest.raises(DatasetUnavailable, match="certificate is not trusted") as caught:
        host.prepare(archive=archive)
    assert "export NGCDL_CA_FILE=" in caught.value.hint
    host.environ["NGCDL_CA_FILE"] = str(ca_file)
    assert whole(host.prepare(archive=archive))


def test_a_ca_file_that_is_none_is_said(host: Host, far: Server, tmp_path: Path) -> None:
    host.environ["NGCDL_CA_FILE"] = str(tmp_path / "absent.pem")
    with pytest.raises(BadOption, match="NGCDL_CA_FILE"):
        host.prepare(archive=small.archive_of(small.PACKED, far.url))
