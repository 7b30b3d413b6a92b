"""Docker's proxies for containers are those that the docker command finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ngcdl.engines.docker import proxies

ALL = {
    "httpProxy": "http://a",
    "httpsProxy": "http://b",
    "ftpProxy": "http://c",
    "noProxy": ".lan",
    "allProxy": "http://d",
}


@pytest.mark.parametrize(
    ("host", "asked", "values"),
    [
        ("unix:///x.sock", None, []),
        ("unix:///x.sock", {}, []),
        ("unix:///x.sock", {"default": {"httpProxy": "", "noProxy": ".lan"}}, [".lan"]),
        ("unix:///x.sock", {"default": ALL}, sorted(ALL.values())),
        ("unix:///x.sock", {"default": ALL, "unix:///x.sock": {"httpProxy": "http://x"}}, ["http://x"]),
        ("unix:///x.sock", {"tcp://far:2376": ALL}, []),
        ("tcp://far:2376", {"tcp://far:2376": {}, "default": ALL}, []),
    ],
)
def test_the_engine_s_own_come_before_the_default_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, asked: dict[str, Any] | None, values: list[str]
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", host)
    (tmp_path / "config.json").write_text(json.dumps({} if asked is None else {"proxies": asked}))
    found = proxies.variables()
    assert sorted(value for name, value in found.items() if name.isupper()) == values
    assert {name.lower(): value for name, value in found.items() if name.isupper()} == {
        name: value for name, value in found.items() if name.islower()
    }


@pytest.mark.parametrize("text", [None, '{"proxies": []}', '{"proxies": {"default": "http://x:1"}}', "[]", "{"])
def test_what_is_no_configuration_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    assert proxies.variables() == {}
