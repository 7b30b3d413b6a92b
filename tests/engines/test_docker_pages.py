"""A page of HTML that comes in place of Docker's answer, as from a proxy, is told in a line, with its status."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from docker_socket import Daemon, serving

from ngcdl.engines.docker import connect
from ngcdl.engines.docker.messages import pull_meaning
from ngcdl.errors import EngineAbsent, EngineRefused, NgcdlError
from ngcdl.spec import ImageRef

IMAGE = ImageRef.parse("tensorflow:18.01-py2")
PAGE = (
    """
<!DOCTYPE html>
<html><head><title>Gateway</title><style>body { color: red }</style></head>
<body class="x"><center><h1>502 Bad Gateway</h1></center>
<script>var secret = 1;</script><p>The certificate of the server is not known.</p>
"""
    + "<p>And a long story.</p>\n" * 200
)
LINE = "HTTP 502, and a page in place of an answer: 502 Bad Gateway The certificate of the server is not known. And a "

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # docker SDK's socket


@dataclass
class Fronted(Daemon):
    """A daemon behind a proxy that answers requests for `shut` by itself."""

    shut: str = ""
    page: tuple[int, str] = (502, PAGE)

    def answer(self, path: str) -> tuple[int, Any]:
        return self.page if self.shut in path else super().answer(path)


def asked() -> None:
    engine = connect()
    engine.facts()
    engine.pull(IMAGE, lambda _: None)


def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shut: str) -> NgcdlError:
    with serving(Fronted(tmp_path / "d.sock", shut=shut)) as daemon:
        monkeypatch.setenv("DOCKER_HOST", daemon.host)
        monkeypatch.setattr("time.sleep", lambda _: None)  # before the pull is tried again
        with pytest.raises(NgcdlError) as caught:
            asked()
    return caught.value


@pytest.mark.parametrize("shut", ["/info", "/images/create"])
def test_a_page_is_not_shown_as_what_docker_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shut: str) -> None:
    error = told(monkeypatch, tmp_path, shut)
    assert isinstance(error, EngineRefused)
    assert error.message.startswith(f"Docker said: {LINE}")
    assert len(error.message) < 200
    assert error.commands == ["docker version"]


@pytest.mark.parametrize("page", [PAGE, "404 page not found", ""])
def test_a_page_is_not_taken_for_docker_s_word_that_it_has_no_such_image(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, page: str
) -> None:
    with serving(Fronted(tmp_path / "d.sock", shut="/images/", page=(404, page))) as daemon:
        monkeypatch.setenv("DOCKER_HOST", daemon.host)
        with pytest.raises(EngineRefused, match=r"HTTP 404, and a page in place of an answer: \w") as caught:
            connect().has(IMAGE)
        assert caught.value.commands == ["docker version"]
    with serving(Daemon(tmp_path / "other.sock")) as daemon:
        monkeypatch.setenv("DOCKER_HOST", daemon.host)
        assert connect().has(IMAGE) is None


def test_an_engine_whose_version_is_a_page_does_not_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    error = told(monkeypatch, tmp_path, "/version")
    assert isinstance(error, EngineAbsent)
    assert error.message.startswith(f"No Docker engine answers at unix://{tmp_path}/d.sock: {LINE}")
    assert len(error.message) < 200 + len(str(tmp_path))


def test_a_page_that_docker_got_from_a_registry_is_cut_to_a_line() -> None:
    error = pull_meaning(f"error parsing HTTP 502 response body: invalid character '<': {PAGE!r}", "nvcr.io")
    assert error.message.startswith("nvcr.io did not answer like a registry: error parsing HTTP 502 response body:")
    assert "<" not in error.message.removeprefix("nvcr.io did not answer like a registry: ").replace("'<'", "")
    assert len(error.message) < 300
