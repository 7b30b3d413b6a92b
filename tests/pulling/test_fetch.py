"""Who has the last word when an engine's pull fails: the registry if it was heard from here, else the engine."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fakes import FakeEngine, FakeJob
from house import until
from ngc_server import KEY, NgcServer, denied, html, status
from pulling_engine import Table

from ngcdl.engines.values import PullEvent, ShowPull
from ngcdl.errors import EngineRefused, KeyRejected, KeyWithoutRights, RateLimited, UnknownTag
from ngcdl.pulling import fetch
from ngcdl.spec import ImageRef


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without a key, whose engine has another route to the registry than this host."""
    for name in ("DOCKER_CONFIG", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in ("NGC_API_KEY", "NGC_CLI_API_KEY", "NO_PROXY", "no_proxy", "NGCDL_CA_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")


def pull(engine: FakeEngine, image: ImageRef) -> list[str]:
    said: list[str] = []
    fetch.image(engine, image, lambda _: None, said.append)
    return said


def no_route(table: Table, _monkeypatch: pytest.MonkeyPatch) -> ImageRef:
    return ImageRef("registry.invalid", "nvidia/tensorflow", "18.01")


def broken(act: Callable[..., None]) -> Callable[[Table, pytest.MonkeyPatch], ImageRef]:
    def prepare(table: Table, _monkeypatch: pytest.MonkeyPatch) -> ImageRef:
        table.ngc.fail("/v2/", act)
        return table.image

    return prepare


def no_ca(table: Table, monkeypatch: pytest.MonkeyPatch) -> ImageRef:
    monkeypatch.setenv("NGCDL_CA_FILE", "/nowhere/ca.crt")
    return table.image


UNHEARD = pytest.mark.parametrize(
    "prepare",
    [no_route, broken(html(418)), broken(status(429, Retry_After="600")), no_ca],
    ids=["no-route", "odd", "busy", "no-ca-file"],
)
Prepare = Callable[[Table, pytest.MonkeyPatch], ImageRef]


@UNHEARD
def test_a_registry_that_is_not_heard_from_here_leaves_the_engine_s_word(
    table: Table, monkeypatch: pytest.MonkeyPatch, prepare: Prepare
) -> None:
    refusal = EngineRefused("manifest unknown")
    with pytest.raises(EngineRefused, match="manifest unknown"):
        pull(FakeEngine(FakeJob(), pulled=refusal), prepare(table, monkeypatch))


def test_a_registry_that_limits_the_engine_too_says_for_how_long(table: Table) -> None:
    table.ngc.fail("/v2/", status(429, Retry_After="600"))
    with pytest.raises(RateLimited, match="It asks to wait 600 s"):
        pull(FakeEngine(FakeJob(), pulled=RateLimited(table.ngc.host, None)), table.image)


def test_one_that_is_heard_says_what_the_engine_does_not(table: Table) -> None:
    image = ImageRef(table.ngc.host, "nvidia/tensorflow", "18.01")
    with pytest.raises(UnknownTag) as caught:
        pull(FakeEngine(FakeJob(), pulled=EngineRefused("not found")), image)
    assert caught.value.nearest == ("18.01-py2",)


@dataclass
class Forgetful(FakeEngine):
    """Its token expires during the first pull."""

    def pull(self, image: ImageRef, show: ShowPull, auth: Mapping[str, str] | None = None) -> str:
        if not self.auths:
            self.auths.append(auth)
            raise EngineRefused("unauthorized: authentication required")
        return super().pull(image, show, auth)


@UNHEARD
def test_a_token_that_expired_is_renewed_though_the_registry_is_not_heard_from_here(
    table: Table, monkeypatch: pytest.MonkeyPatch, prepare: Prepare
) -> None:
    engine = Forgetful(FakeJob())
    assert "Trying again" in pull(engine, prepare(table, monkeypatch))[-1]
    assert len(engine.auths) == 2


@dataclass
class Stalled(FakeEngine):
    """Shows a byte, and then nothing until `said` has a line."""

    said: list[str] = field(default_factory=list)

    def pull(self, image: ImageRef, show: ShowPull, auth: Mapping[str, str] | None = None) -> str:
        show(PullEvent("a1b2c3", "Downloading", 1, 2))
        until(lambda: [line for line in self.said if line.startswith("waiting for")], "a word")
        return super().pull(image, show, auth)


def test_a_pull_by_the_engine_that_shows_nothing_for_long_is_told(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NGCDL_PULL", "engine")
    monkeypatch.setattr(fetch, "SILENT_SECONDS", 0.01)
    engine = Stalled(FakeJob())
    fetch.image(engine, table.image, lambda _: None, engine.said.append)
    told = r"waiting for the engine's pull, which has shown nothing for \d+ s \(\d+ s so far\); Ctrl-C cancels"
    assert any(re.fullmatch(told, line) for line in engine.said)


def test_a_pull_that_shows_something_is_not_silent() -> None:
    now, shown = [0.0], list[PullEvent]()
    silence = fetch.Silence(shown.append, lambda: now[0])
    now[0] = 29.0
    silence.show(PullEvent("a1b2c3", "Downloading", 1, 2))
    now[0] = 58.0
    assert silence.told() is None
    now[0] = 59.0
    assert silence.told() == "the engine's pull, which has shown nothing for 30 s"
    assert len(shown) == 1


def test_an_image_without_this_processor_is_left_to_the_engine_to_refuse(table: Table) -> None:
    ngc: NgcServer = table.ngc
    ngc.add_image("nvidia/tensorflow", "arm", ("linux/arm64",))
    refusal = EngineRefused("no matching manifest for linux/riscv64 in the manifest list entries")
    with pytest.raises(EngineRefused, match="no matching manifest for linux/riscv64"):
        pull(FakeEngine(FakeJob(), pulled=refusal), ImageRef(ngc.host, "nvidia/tensorflow", "arm"))


@pytest.fixture
def expired(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that the registry no longer accepts."""
    monkeypatch.setenv("NGCDL_REGISTRY", table.ngc.host)
    monkeypatch.setenv("NGC_API_KEY", "nvapi-CANARY-expired")


@pytest.mark.usefixtures("expired")
@pytest.mark.parametrize("way", ["relay", "engine"])
def test_a_refused_key_does_not_keep_a_public_image_away(
    table: Table, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("NGCDL_PULL", way)
    engine = table.engine if way == "relay" else Forgetful(FakeJob())
    said = pull(engine, table.image)
    refused = f"{table.ngc.host} refused the key from the variable NGC_API_KEY (401)"
    assert any(line.startswith(refused) and line.endswith("Trying without a key.") for line in said)
    assert engine.auths[-1] is None


@pytest.mark.usefixtures("expired")
def test_a_refused_key_is_the_reason_where_the_image_needs_one(table: Table) -> None:
    table.ngc.gated = {"nvidia/tensorflow"}
    with pytest.raises(KeyRejected, match="NGC_API_KEY"):
        pull(table.engine, table.image)


@pytest.mark.usefixtures("expired")
def test_a_refused_key_does_not_hide_that_there_is_no_such_tag(table: Table) -> None:
    with pytest.raises(UnknownTag):
        pull(table.engine, ImageRef(table.ngc.host, "nvidia/tensorflow", "18.01"))


def test_a_key_in_a_file_that_others_read_after_a_helper_failed_is_told(table: Table, tmp_path: Path) -> None:
    auth = base64.b64encode(f"$oauthtoken:{KEY}".encode()).decode()
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"credsStore": "gone", "auths": {table.ngc.host: {"auth": auth}}}))
    config.chmod(0o644)
    failed, exposed, pulling, *_ = pull(table.engine, table.image)
    assert "docker-credential-gone" in failed
    assert failed.endswith(f" Taking the key of {config} instead.")
    assert exposed == f"Others on this machine can read {config} (mode 0644): chmod 600 {config}"
    assert pulling.endswith(f"with the key of {config}")
    config.chmod(0o600)
    config.write_text(json.dumps({"auths": {table.ngc.host: {"auth": auth}}}))
    assert pull(table.engine, table.image)[0] == pulling


@pytest.fixture
def narrow(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is valid, but not for the NGC Catalog."""
    monkeypatch.setenv("NGCDL_REGISTRY", table.ngc.host)
    monkeypatch.setenv("NGC_API_KEY", KEY)


@pytest.mark.usefixtures("narrow")
def test_a_key_without_rights_does_not_keep_a_public_image_away(table: Table) -> None:
    table.ngc.fail("/proxy_auth", denied, times=1)
    said = pull(table.engine, table.image)
    assert any("it gives no access to nvidia/tensorflow (403). Trying without a key." in line for line in said)
    assert table.engine.auths[-1] is None


@pytest.mark.usefixtures("narrow")
def test_a_key_without_rights_is_the_reason_where_the_image_needs_one(table: Table) -> None:
    table.ngc.denied = {"nvidia/tensorflow"}
    with pytest.raises(KeyWithoutRights):
        pull(table.engine, table.image)
