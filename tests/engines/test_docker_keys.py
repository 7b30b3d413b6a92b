"""The keys that detach a terminal, as the daemon reads them in docker's config.json."""

from __future__ import annotations

from pathlib import Path

import pytest

from ngcdl.engines.docker import keys


@pytest.mark.parametrize(("text", "sent"), [
    ("ctrl-p,ctrl-q", b"\x10\x11"), ("ctrl-@", b"\0"), ("ctrl-[,ctrl-\\,ctrl-],ctrl-^,ctrl-_", b"\x1b\x1c\x1d\x1e\x1f"),
    ("ctrl-a,x,X,-", b"\1xX-"), ("DEL", b"\x7f"),
    ("ctrl-P", b""), ("ctrl-,", b""), ("ctrl-p,", b""), ("escape", b""), ("\N{EURO SIGN}", b""),
])  # fmt: skip
def test_keys_are_read_as_the_daemon_reads_them(text: str, sent: bytes) -> None:
    assert keys.typed(text) == sent


@pytest.mark.parametrize(("config", "named"), [
    (None, keys.DEFAULT), ("{", keys.DEFAULT), ("[]", keys.DEFAULT), ("{}", keys.DEFAULT),
    ('{"detachKeys": ""}', keys.DEFAULT), ('{"detachKeys": 7}', keys.DEFAULT), ('{"detachKeys": "ctrl-@"}', "ctrl-@"),
])  # fmt: skip
def test_the_keys_are_those_of_dockers_config(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, config: str | None, named: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    assert keys.named() == named
