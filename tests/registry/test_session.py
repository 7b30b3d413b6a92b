"""ngcdl.registry.session: anonymous first, the key only where it is needed, all within a time limit."""

from __future__ import annotations

import json
import threading

import pytest
from ngc_server import KEY
from stock import auth

from ngcdl.errors import HelperMissing, LoginNeeded, RegistryUnreachable
from ngcdl.registry.session import Keys, Patience, Session


@pytest.fixture
def key(ngc, monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("NGCDL_REGISTRY", ngc.host)
    monkeypatch.delenv("NGC_CLI_API_KEY", raising=False)
    monkeypatch.setenv("NGC_API_KEY", KEY)


def tags(session, ngc, repository):
    return session.ask(ngc.host, repository, lambda registry: registry.tags(repository))


def test_the_key_of_a_gated_repository_is_not_shown_for_a_public_one(ngc, key):
    ngc.add_image("nim/gated", "1.0")
    with Session(Keys()) as session:
        assert tags(session, ngc, "nim/gated") == ["1.0"]
        asked = len(ngc.seen)
        assert tags(session, ngc, "nvidia/tensorflow") == ["18.01-py2"]
        assert session.cost[0] == len(ngc.seen)
    assert not any((seen.authorization or "").startswith("Basic") for seen in ngc.seen[asked:])


def test_a_key_that_can_t_be_read_is_the_trouble(ngc, key, monkeypatch, tmp_path):
    monkeypatch.delenv("NGC_API_KEY")
    ngc.add_image("nim/gated", "1.0")
    with Session(Keys()) as session, pytest.raises(LoginNeeded):
        tags(session, ngc, "nim/gated")
    (tmp_path / "config.json").write_text('{"credsStore": "nowhere-to-be-found"}')
    with Session(Keys()) as session:
        assert tags(session, ngc, "nvidia/tensorflow") == ["18.01-py2"]
        with pytest.raises(HelperMissing):
            tags(session, ngc, "nim/gated")
    (tmp_path / "config.json").write_text(
        json.dumps({"credsStore": "nowhere-to-be-found", "auths": {ngc.host: {"auth": auth(secret=KEY)}}})
    )
    with Session(Keys()) as session:
        assert tags(session, ngc, "nim/gated") == ["1.0"], "another place has a key"


def test_a_question_that_never_ends_is_left_behind(ngc):
    release = threading.Event()
    with Session(Keys(), Patience(0.05, 0.05)) as session:
        with pytest.raises(RegistryUnreachable, match=r"no answer within 0\.05 s"):
            session.ask(ngc.host, "nvidia/tensorflow", lambda _: release.wait(60))
        release.set()
