"""ngcdl.judging.imagefacts: facts from an image's registry, or from the catalogue if the registry can't be asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from images_asked import NEW, OLD, Clock, files_in, ref, sign_in
from ngc_server import SCHEMA_1, Handler, NgcServer, html, status

from ngcdl.errors import (
    KeyRejected,
    KeyWithoutRights,
    LoginNeeded,
    NgcdlError,
    NotAsked,
    RateLimited,
    RegistryAnswer,
    RegistryUnreachable,
    UnknownRepository,
    UnknownTag,
)
from ngcdl.judging import imagefacts
from ngcdl.spec import ImageRef


def test_the_registry_is_asked_for_four_things_and_once(ngc: NgcServer, cache: Path) -> None:
    found = imagefacts.look_up(ref(ngc), cache, "amd64")
    assert (found.origin, found.trouble, found.requests) == ("registry", None, 4)
    assert (found.facts.cuda, found.facts.driver, found.facts.release) == ("9.0.176", "384.81", "18.01")
    assert (found.facts.compressed_bytes, found.facts.architectures) == (1230, ("amd64",))
    assert found.facts.digest == ngc.tags["nvidia/tensorflow"]["18.01-py2"]
    assert 0 < found.bytes < 65536
    again = imagefacts.look_up(ref(ngc), cache, "amd64")
    assert (again.origin, again.requests, again.bytes) == ("cache", 0, 0)
    assert again.facts == found.facts
    assert len(ngc.seen) == 4


def test_an_image_of_several_platforms_is_that_of_the_asked_one_under_the_tag_s_digest(
    ngc: NgcServer, cache: Path
) -> None:
    found = imagefacts.look_up(ref(ngc, NEW), cache, "arm64")
    assert found.requests == 5
    assert found.facts.architectures == ("amd64", "arm64")
    assert found.facts.digest == ngc.tags["nvidia/tensorflow"]["25.02-tf2-py3"]
    assert imagefacts.look_up(ref(ngc, NEW), cache, "arm64").origin == "cache"
    assert imagefacts.look_up(ref(ngc, NEW), cache, "amd64").origin == "registry"


@pytest.mark.parametrize("platforms", [(), ("linux/amd64",)])
def test_what_is_made_for_others_is_said_to_be(ngc: NgcServer, cache: Path, platforms: tuple[str, ...]) -> None:
    ngc.add_image("nvidia/tensorflow", "19.10-py3", platforms)
    found = imagefacts.look_up(ref(ngc, "nvidia/tensorflow:19.10-py3"), cache, "arm64")
    assert (found.origin, found.facts.architectures) == ("registry", ("amd64",))


def test_a_schema_1_image_tells_its_environment_and_no_size(ngc: NgcServer, cache: Path) -> None:
    inner = json.dumps({"architecture": "amd64", "config": {"Env": ["CUDA_VERSION=8.0.61"]}})
    body = json.dumps({"schemaVersion": 1, "history": [{"v1Compatibility": inner}], "fsLayers": []}).encode()
    ngc.manifests["sha256:" + "1" * 64] = (SCHEMA_1, body)
    ngc.tags["nvidia/tensorflow"]["17.01"] = "sha256:" + "1" * 64
    for origin in ("registry", "cache"):
        found = imagefacts.look_up(ref(ngc, "nvidia/tensorflow:17.01"), cache, "amd64")
        assert (found.origin, found.facts.is_schema_1, found.facts.cuda) == (origin, True, "8.0.61")
        assert found.facts.compressed_bytes is None


def test_a_token_that_expires_in_mid_look_is_not_noticed(ngc: NgcServer, cache: Path) -> None:
    def expire_first(handler: Handler) -> None:
        handler.ngc.expire()
        handler._registry()

    ngc.fail("blobs", expire_first, times=1)
    found = imagefacts.look_up(ref(ngc), cache, "amd64")
    assert (found.origin, found.facts.cuda) == ("registry", "9.0.176")
    assert found.requests == len(ngc.seen) == 7  # refused, asked without the token, a new one, and the blob


def test_nobody_is_refused_and_then_the_key_is_shown(ngc: NgcServer, cache: Path, home: Path) -> None:
    ngc.gated.add("nvidia/tensorflow")
    sign_in(home, ngc.host)
    found = imagefacts.look_up(ref(ngc), cache, "amd64")
    assert (found.origin, found.requests) == ("registry", 5)
    shown = [(seen.authorization or "").partition(" ")[0] for seen in ngc.seen]
    assert shown == ["", "", "Basic", "Bearer", "Bearer"]


def test_no_key_and_no_token_is_kept(ngc: NgcServer, cache: Path, home: Path) -> None:
    ngc.gated.add("nvidia/tensorflow")
    sign_in(home, ngc.host)
    imagefacts.look_up(ref(ngc), cache, "amd64")
    imagefacts.tags(ngc.host, "nvidia/tensorflow", cache)
    assert len(files_in(cache)) == 3
    for path in files_in(cache):
        assert not any(secret in path.read_text() for secret in ("CANARY", "token-", "Bearer", "Basic"))


def test_a_public_image_is_never_shown_the_key(ngc: NgcServer, cache: Path, home: Path) -> None:
    sign_in(home, ngc.host, "nvapi-CANARY-wrong")
    assert imagefacts.look_up(ref(ngc), cache, "amd64").origin == "registry"
    assert not any((seen.authorization or "").startswith("Basic") for seen in ngc.seen)


# The registry's last word


def test_an_unknown_tag_is_the_truth_whatever_the_catalogue_has(ngc: NgcServer, cache: Path) -> None:
    with pytest.raises(UnknownTag) as caught:
        imagefacts.look_up(ref(ngc, "nvidia/tensorflow:18.02-py2"), cache, "amd64")
    assert "18.01-py2" in caught.value.nearest


def test_a_tag_that_is_gone_is_not_answered_from_what_was_kept(ngc: NgcServer, cache: Path) -> None:
    clock = Clock()
    imagefacts.look_up(ref(ngc), cache, "amd64", now=clock)
    del ngc.tags["nvidia/tensorflow"]["18.01-py2"]
    clock.seconds += imagefacts.TAG_SECONDS + 1
    with pytest.raises(UnknownTag):
        imagefacts.look_up(ref(ngc), cache, "amd64", now=clock)


def test_an_unknown_repository_is_the_truth(ngc: NgcServer, cache: Path) -> None:
    with pytest.raises(UnknownRepository):
        imagefacts.look_up(ref(ngc, "nvidia/pytorch:25.03-py3"), cache, "amd64")


# The catalogue


@pytest.mark.parametrize("kind", ["refuses", "limits", "odd", "wants a key", "wrong key", "no rights", "broken config"])
def test_a_registry_that_can_t_be_asked_leaves_it_to_the_catalogue_and_says_why(
    ngc: NgcServer, cache: Path, home: Path, kind: str
) -> None:
    gated = {"wants a key", "wrong key", "no rights", "broken config"}
    ngc.gated |= {"nvidia/tensorflow"} if kind in gated else set()
    if kind == "limits":
        ngc.fail("/v2/", status(429, Retry_After="60"))
    elif kind == "odd":
        ngc.fail("/v2/", html(200))
    elif kind == "wrong key":
        sign_in(home, ngc.host, "nvapi-CANARY-wrong")
    elif kind == "no rights":
        ngc.denied.add("nvidia/tensorflow")
        sign_in(home, ngc.host)
    elif kind == "broken config":
        (home / ".docker/config.json").write_text("{")
    image = ImageRef.parse(f"127.0.0.1:1/{OLD}") if kind == "refuses" else ref(ngc)
    found = imagefacts.look_up(image, cache, "amd64")
    expected = {
        "refuses": RegistryUnreachable, "limits": RateLimited, "odd": RegistryAnswer, "wants a key": LoginNeeded,
        "wrong key": KeyRejected, "no rights": KeyWithoutRights,
    }  # fmt: skip
    assert isinstance(found.trouble, expected.get(kind, NgcdlError))
    assert (found.origin, found.facts.release, found.facts.digest) == ("catalogue", "18.01", None)
    assert found.requests == len(ngc.seen) or kind == "refuses"
    assert files_in(cache) == []


def test_what_nobody_knows_raises_the_trouble(ngc: NgcServer, cache: Path) -> None:
    ngc.gated.add("nim/llama")
    ngc.add_image("nim/llama", "1.0")
    with pytest.raises(LoginNeeded):
        imagefacts.look_up(ref(ngc, "nim/llama:1.0"), cache, "amd64")
    with pytest.raises(RegistryUnreachable):
        imagefacts.look_up(ImageRef.parse("127.0.0.1:1/nim/llama:1.0"), cache, "amd64")


def test_offline_the_catalogue_answers_and_nothing_is_asked(ngc: NgcServer, cache: Path) -> None:
    found = imagefacts.look_up(ref(ngc), cache, "amd64", offline=True)
    assert (found.origin, found.trouble, found.requests, found.facts.release) == ("catalogue", None, 0, "18.01")
    with pytest.raises(NotAsked, match=r"nvidia/tensorflow:99\.01"):
        imagefacts.look_up(ref(ngc, "nvidia/tensorflow:99.01"), cache, "amd64", offline=True)
    assert ngc.seen == []
