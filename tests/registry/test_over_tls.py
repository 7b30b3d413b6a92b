"""A registry that is not on the loopback: https throughout, and the key is sent nowhere else."""

from __future__ import annotations

import base64
import socket
import ssl

import certificates
import pytest
from ngc_server import NgcServer, serving
from registry_asker import GOOD, ref, shown

from ngcdl.errors import RealmRefused, RegistryAnswer, RegistryUnreachable
from ngcdl.registry.client import LINUX_AMD64, Registry


@pytest.fixture(scope="session")
def own_address():
    """An address of this machine other than the loopback's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing, only selects the source address
        except OSError:
            pytest.skip("this machine has no address but the loopback's")
        return probe.getsockname()[0]


@pytest.fixture
def far(own_address, tmp_path, monkeypatch):
    """nvcr.io over TLS, with its CA in NGCDL_CA_FILE."""
    certificates.make(tmp_path / "key.pem", tmp_path / "cert.pem", "lab", f"IP:{own_address}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NGCDL_CA_FILE", str(tmp_path / "cert.pem"))
    server = NgcServer()
    server.add_image("nvidia/tensorflow", "18.01-py2")
    with serving(server, own_address, context):
        server.realm = f"https://{server.host}/proxy_auth"
        yield server


def test_the_key_is_taken_over_tls(far):
    with Registry(far.host, GOOD) as registry:
        assert registry.verify(GOOD)
        assert registry.described(ref(far), LINUX_AMD64)[0].compressed_bytes == 1230


def test_a_netrc_is_never_asked(far, tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("default login thief password CANARY-netrc\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with Registry(far.host) as registry:
        registry.described(ref(far), LINUX_AMD64)
    with Registry(far.host, GOOD) as registry:
        registry.described(ref(far), LINUX_AMD64)
    thief = base64.b64encode(b"thief:CANARY-netrc").decode()
    assert all(thief not in (seen.authorization or "") for seen in far.seen)


@pytest.mark.parametrize(
    "realm", ["http://{host}/proxy_auth", "http://127.0.0.1:1/proxy_auth", "https://127.0.0.1:1/x"]
)
def test_neither_plain_http_nor_this_machine_is_a_realm_for_a_far_registry(far, realm):
    far.realm = realm.format(host=far.host)
    with Registry(far.host, GOOD) as registry, pytest.raises(RealmRefused) as caught:
        registry.described(ref(far), LINUX_AMD64)
    assert "CANARY" not in shown(caught.value)
    assert len(far.seen) == 1


def test_a_blob_is_not_followed_out_of_tls(far):
    with serving(NgcServer()) as plain, Registry(far.host, GOOD) as registry:
        far.cdn = f"http://{plain.host}"
        image, _ = registry.described(ref(far), LINUX_AMD64)
        with pytest.raises(RegistryAnswer, match="does not go to"):
            registry.config(ref(far), image)
        assert plain.seen == []


def test_without_the_ca_file_nothing_is_sent(far, monkeypatch):
    monkeypatch.delenv("NGCDL_CA_FILE")
    with Registry(far.host, GOOD) as registry, pytest.raises(RegistryUnreachable, match="certificate is not trusted"):
        registry.verify(GOOD)
    assert far.seen == []
