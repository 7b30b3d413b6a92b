from __future__ import annotations

import socket
import threading

import pytest

from ngcdl.dataset.address import Failure, addresses, answer, host
from ngcdl.dataset.pace import Patience
from ngcdl.errors import BadOption

from . import small
from .server import Reply, Server


def test_mirrors_come_first_and_each_address_once() -> None:
    archive = small.archive_of(small.PACKED)
    urls = f"https://a.example/x {archive.url} https://a.example/x http://localhost:1/y http://[::1]:2/z"
    assert addresses(archive, {"NGCDL_CIFAR10_URLS": urls}) == (
        "https://a.example/x",
        archive.url,
        "http://localhost:1/y",
        "http://[::1]:2/z",
    )
    assert addresses(archive, {}) == (archive.url,)


def test_a_host_is_named_without_password_path_and_query() -> None:
    assert host("https://me:secret@a.example:8443/x?token=1") == "a.example:8443"
    assert host("https://[fd00::5]:8443/x") == "[fd00::5]:8443"
    assert host("https://[fd00::5]/x") == "[fd00::5]"
    assert host("http://[") == "?"
    assert host("nonsense") == "?"


def test_a_server_that_speaks_no_tls_was_reached(serve: object) -> None:
    assert callable(serve)
    server = serve(Reply(b"x"))
    url = server.url.replace("http://", "https://")
    with pytest.raises(Failure, match="TLS failed") as caught, answer(url, {}, Patience()):
        pass
    assert caught.value.answered


def test_a_proxy_that_leads_nowhere_is_no_network(monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", refused.rsplit("/", 1)[0])
    with pytest.raises(Failure, match="proxy") as caught, answer("https://a.example/x", {}, Patience()):
        pass
    assert not caught.value.answered


@pytest.mark.parametrize("code", [403, 407, 502])
def test_a_proxy_that_refuses_is_a_setting_to_mend(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    server = Server(Reply(b""))
    handler = server.RequestHandlerClass

    class Asking(handler):  # type: ignore[misc, valid-type]
        def do_CONNECT(self) -> None:  # noqa: N802
            self.send_error(code)

    server.RequestHandlerClass = Asking
    monkeypatch.setenv("HTTPS_PROXY", server.url.rsplit("/", 1)[0])
    try:
        with (
            pytest.raises(Failure, match=f"Tunnel connection failed: {code}") as caught,
            answer("https://a.example/x", {}, Patience()),
        ):
            pass
    finally:
        server.stop()
    assert caught.value.answered


def test_a_silent_server_is_left_after_the_stall_limit(serve: object) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x"
        hasty = Patience(stall_seconds=0.1)
        with pytest.raises(Failure, match=r"no answer within 0\.1 s") as caught, answer(url, {}, hasty):
            pass
    assert caught.value.answered
    assert not caught.value.again


def test_an_address_in_brackets_is_one_to_resolve() -> None:
    url = "https://[::1]:1/x"
    with pytest.raises(Failure) as caught, answer(url, {}, Patience(connect_seconds=2)):
        pass
    assert "resolved" not in caught.value.why


def test_a_name_that_can_not_be_resolved_costs_no_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")  # alone it is no proxy
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: over.wait() and [])  # as with a server that is gone
    hasty = Patience(lookup_seconds=0.1)
    with pytest.raises(Failure, match="can't be resolved") as caught, answer("https://name.invalid/x", {}, hasty):
        pass
    assert not over.is_set()
    over.set()
    assert not caught.value.answered


def test_a_dead_name_server_is_outlived(monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    look, after = socket.getaddrinfo, threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *words: after.wait(0.3) or look(*words))
    with pytest.raises(Failure) as caught, answer(refused, {}, Patience(connect_seconds=0.1)):
        pass
    assert "resolved" not in caught.value.why
    assert Patience().lookup_seconds > 2 * 5  # glibc waits 5 s for each


@pytest.mark.parametrize("password", ["canary#x", "canary/x", "canary?x", "12/canary"])
def test_a_password_that_makes_an_address_invalid_is_not_shown(monkeypatch: pytest.MonkeyPatch, password: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:{password}@127.0.0.1:1")
    with pytest.raises(Failure) as caught, answer("https://a.example/x", {}, Patience()):
        pass
    assert "canary" not in caught.value.why
    assert ("HTTPS_PROXY is not a valid address" in caught.value.why) == password.startswith("canary")
    mirror = f"https://me:{password}@mirror.example/x"
    assert host(mirror) == "?"
    if password.startswith("canary"):
        with pytest.raises(BadOption, match="NGCDL_CIFAR10_URLS: "):
            addresses(small.archive_of(small.PACKED), {"NGCDL_CIFAR10_URLS": mirror})


def test_an_address_that_leads_to_no_valid_one_is_at_fault_itself() -> None:
    with (
        pytest.raises(Failure, match="that is not a valid address"),
        answer("https://127.0.0.1:99999/x", {}, Patience()),
    ):
        pass
