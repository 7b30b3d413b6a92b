"""ngcdl.imagefacts: what an image is, from its registry, from what was kept, from the catalogue."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from registry.ngc_server import KEY, SCHEMA_1, Handler, NgcServer, html, serving, status

from ngcdl import imagefacts
from ngcdl.errors import (
    KeyRejected,
    KeyWithoutRights,
    LoginNeeded,
    NgcdlError,
    NotAsked,
    RateLimited,
    RegistryAnswer,
    RegistryError,
    RegistryUnreachable,
    UnknownRepository,
    UnknownTag,
)
from ngcdl.imagefacts import Found
from ngcdl.spec import ImageRef

ROOT = Path(__file__).resolve().parents[1]
ENVIRON = ("CUDA_VERSION=9.0.176", "CUDA_DRIVER_VERSION=384.81", "NVIDIA_TENSORFLOW_VERSION=18.01")
OLD = "nvidia/tensorflow:18.01-py2"
NEW = "nvidia/tensorflow:25.02-tf2-py3"


class Clock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.seconds = 1_700_000_000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without any key."""
    for name in [name for name in os.environ if name.startswith(("NGC", "XDG", "DOCKER"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home/.docker").mkdir(parents=True)
    return tmp_path / "home"


@pytest.fixture
def cache(tmp_path: Path, home: Path) -> Path:
    return tmp_path / "cache/ngcdl"


@pytest.fixture
def ngc() -> Iterator[NgcServer]:
    server = NgcServer()
    server.add_image("nvidia/tensorflow", "18.01-py2", environ=ENVIRON)
    server.add_image("nvidia/tensorflow", "25.02-tf2-py3", ("linux/amd64", "linux/arm64"), ("CUDA_VERSION=12.8.0.038",))
    with serving(server):
        yield server


def ref(ngc: NgcServer, name: str = OLD) -> ImageRef:
    return ImageRef.parse(f"{ngc.host}/{name}")


def sign_in(home: Path, host: str, key: str = KEY) -> None:
    pair = base64.b64encode(f"$oauthtoken:{key}".encode()).decode()
    (home / ".docker/config.json").write_text(json.dumps({"auths": {host: {"auth": pair}}}))


def files_in(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if path.is_file())


# The registry


def test_the_registry_is_asked_for_four_things_and_once(ngc: NgcServer, cache: Path) -> None:
    found = imagefacts.of(ref(ngc), cache)
    assert (found.origin, found.trouble, found.requests) == ("registry", None, 4)
    assert (found.facts.cuda, found.facts.driver, found.facts.release) == ("9.0.176", "384.81", "18.01")
    assert (found.facts.compressed_bytes, found.facts.architectures) == (1230, ("amd64",))
    assert found.facts.digest == ngc.tags["nvidia/tensorflow"]["18.01-py2"]
    assert 0 < found.bytes < 65536
    again = imagefacts.of(ref(ngc), cache)
    assert (again.origin, again.requests, again.bytes) == ("cache", 0, 0)
    assert again.facts == found.facts
    assert len(ngc.seen) == 4


def test_an_image_of_several_platforms_is_that_of_the_asked_one_under_the_tag_s_digest(
    ngc: NgcServer, cache: Path
) -> None:
    found = imagefacts.of(ref(ngc, NEW), cache, "arm64")
    assert found.requests == 5
    assert found.facts.architectures == ("amd64", "arm64")
    assert found.facts.digest == ngc.tags["nvidia/tensorflow"]["25.02-tf2-py3"]
    assert imagefacts.of(ref(ngc, NEW), cache, "arm64").origin == "cache"
    assert imagefacts.of(ref(ngc, NEW), cache, "amd64").origin == "registry"


@pytest.mark.parametrize("platforms", [(), ("linux/amd64",)])
def test_what_is_made_for_others_is_said_to_be(ngc: NgcServer, cache: Path, platforms: tuple[str, ...]) -> None:
    ngc.add_image("nvidia/tensorflow", "19.10-py3", platforms)
    found = imagefacts.of(ref(ngc, "nvidia/tensorflow:19.10-py3"), cache, "arm64")
    assert (found.origin, found.facts.architectures) == ("registry", ("amd64",))


def test_a_schema_1_image_tells_its_environment_and_no_size(ngc: NgcServer, cache: Path) -> None:
    inner = json.dumps({"architecture": "amd64", "config": {"Env": ["CUDA_VERSION=8.0.61"]}})
    body = json.dumps({"schemaVersion": 1, "history": [{"v1Compatibility": inner}], "fsLayers": []}).encode()
    ngc.manifests["sha256:" + "1" * 64] = (SCHEMA_1, body)
    ngc.tags["nvidia/tensorflow"]["17.01"] = "sha256:" + "1" * 64
    for origin in ("registry", "cache"):
        found = imagefacts.of(ref(ngc, "nvidia/tensorflow:17.01"), cache)
        assert (found.origin, found.facts.is_schema_1, found.facts.cuda) == (origin, True, "8.0.61")
        assert found.facts.compressed_bytes is None


def test_a_token_that_expires_in_mid_look_is_not_noticed(ngc: NgcServer, cache: Path) -> None:
    def expire_first(handler: Handler) -> None:
        handler.ngc.expire()
        handler._registry()

    ngc.fail("blobs", expire_first, times=1)
    found = imagefacts.of(ref(ngc), cache)
    assert (found.origin, found.facts.cuda) == ("registry", "9.0.176")
    assert found.requests == len(ngc.seen) == 7  # refused, asked without the token, a new one, and the blob


def test_nobody_is_refused_and_then_the_key_is_shown(ngc: NgcServer, cache: Path, home: Path) -> None:
    ngc.gated.add("nvidia/tensorflow")
    sign_in(home, ngc.host)
    found = imagefacts.of(ref(ngc), cache)
    assert (found.origin, found.requests) == ("registry", 5)
    shown = [(seen.authorization or "").partition(" ")[0] for seen in ngc.seen]
    assert shown == ["", "", "Basic", "Bearer", "Bearer"]


def test_no_key_and_no_token_is_kept(ngc: NgcServer, cache: Path, home: Path) -> None:
    ngc.gated.add("nvidia/tensorflow")
    sign_in(home, ngc.host)
    imagefacts.of(ref(ngc), cache)
    imagefacts.tags(ngc.host, "nvidia/tensorflow", cache)
    assert len(files_in(cache)) == 3
    for path in files_in(cache):
        assert not any(secret in path.read_text() for secret in ("CANARY", "token-", "Bearer", "Basic"))


def test_a_public_image_is_never_shown_the_key(ngc: NgcServer, cache: Path, home: Path) -> None:
    sign_in(home, ngc.host, "nvapi-CANARY-wrong")
    assert imagefacts.of(ref(ngc), cache).origin == "registry"
    assert not any((seen.authorization or "").startswith("Basic") for seen in ngc.seen)


# The registry's last word


def test_an_unknown_tag_is_the_truth_whatever_the_catalogue_has(ngc: NgcServer, cache: Path) -> None:
    with pytest.raises(UnknownTag) as caught:
        imagefacts.of(ref(ngc, "nvidia/tensorflow:18.02-py2"), cache)
    assert "18.01-py2" in caught.value.nearest


def test_a_tag_that_is_gone_is_not_answered_from_what_was_kept(ngc: NgcServer, cache: Path) -> None:
    imagefacts.of(ref(ngc), cache)
    del ngc.tags["nvidia/tensorflow"]["18.01-py2"]
    with pytest.raises(UnknownTag):
        imagefacts.of(ref(ngc), cache, max_age_seconds=0)


def test_an_unknown_repository_is_the_truth(ngc: NgcServer, cache: Path) -> None:
    with pytest.raises(UnknownRepository):
        imagefacts.of(ref(ngc, "nvidia/pytorch:25.03-py3"), cache)


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
    found = imagefacts.of(image, cache)
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
        imagefacts.of(ref(ngc, "nim/llama:1.0"), cache)
    with pytest.raises(RegistryUnreachable):
        imagefacts.of(ImageRef.parse("127.0.0.1:1/nim/llama:1.0"), cache)


def test_offline_the_catalogue_answers_and_nothing_is_asked(ngc: NgcServer, cache: Path) -> None:
    found = imagefacts.of(ref(ngc), cache, offline=True)
    assert (found.origin, found.trouble, found.requests, found.facts.release) == ("catalogue", None, 0, "18.01")
    with pytest.raises(NotAsked, match=r"nvidia/tensorflow:99\.01"):
        imagefacts.of(ref(ngc, "nvidia/tensorflow:99.01"), cache, offline=True)
    assert ngc.seen == []


# What was kept


def test_a_tag_that_moved_is_noticed_after_ten_minutes(ngc: NgcServer, cache: Path) -> None:
    clock = Clock()
    before = imagefacts.of(ref(ngc), cache, now=clock)
    ngc.add_image("nvidia/tensorflow", "18.01-py2", environ=(*ENVIRON, "NVIDIA_BUILD_ID=2"))
    clock.seconds += 599
    found = imagefacts.of(ref(ngc), cache, now=clock)
    assert (found.origin, found.facts.digest, found.age_seconds) == ("cache", before.facts.digest, 599)
    clock.seconds += 2
    found = imagefacts.of(ref(ngc), cache, now=clock)
    assert (found.origin, found.facts.digest) == ("registry", ngc.tags["nvidia/tensorflow"]["18.01-py2"])
    assert found.facts.digest != before.facts.digest
    assert imagefacts.of(ref(ngc), cache, now=clock).age_seconds == 0


def test_a_tag_that_did_not_move_costs_no_configuration_again(ngc: NgcServer, cache: Path) -> None:
    clock = Clock()
    imagefacts.of(ref(ngc, NEW), cache, now=clock)
    clock.seconds += 601
    found = imagefacts.of(ref(ngc, NEW), cache, now=clock)
    assert (found.origin, found.requests) == ("registry", 3)  # challenge, token, index
    assert imagefacts.of(ref(ngc, NEW), cache, now=clock).origin == "cache"


@pytest.mark.parametrize("offline", [False, True])
def test_an_old_answer_is_better_than_none_and_said_to_be_old(ngc: NgcServer, cache: Path, offline: bool) -> None:
    clock = Clock()
    imagefacts.of(ref(ngc), cache, now=clock)
    ngc.fail("/v2/", status(429, Retry_After="60"))
    clock.seconds += 86400
    found = imagefacts.of(ref(ngc), cache, offline=offline, now=clock)
    assert (found.origin, found.age_seconds, found.facts.compressed_bytes) == ("cache", 86400, 1230)
    assert isinstance(found.trouble, type(None) if offline else RateLimited)


def test_a_clock_that_went_back_makes_an_answer_old_and_not_new(ngc: NgcServer, cache: Path) -> None:
    clock = Clock()
    imagefacts.of(ref(ngc), cache, now=clock)
    clock.seconds -= 86400
    assert imagefacts.of(ref(ngc), cache, now=clock).origin == "registry"


def test_what_a_digest_is_is_asked_once_and_for_ever(ngc: NgcServer, cache: Path) -> None:
    clock = Clock()
    pinned = ref(ngc, f"nvidia/tensorflow@{ngc.tags['nvidia/tensorflow']['25.02-tf2-py3']}")
    first = imagefacts.of(pinned, cache, now=clock)
    asked = len(ngc.seen)
    clock.seconds += 10**8
    again = imagefacts.of(pinned, cache, now=clock)
    assert (first.origin, again.origin, again.age_seconds) == ("registry", "cache", None)
    assert len(ngc.seen) == asked


def test_another_repository_s_digest_is_not_answered_from_this_one_s(ngc: NgcServer, cache: Path) -> None:
    digest = ngc.tags["nvidia/tensorflow"]["18.01-py2"]
    imagefacts.of(ref(ngc, f"nvidia/tensorflow@{digest}"), cache)
    with pytest.raises(RegistryError):
        imagefacts.of(ref(ngc, f"nvidia/other@{digest}"), cache)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"format": 1}', '{"format": 2}', "[" * 100_000, "\0"])
def test_a_broken_file_is_as_none_and_is_written_anew(ngc: NgcServer, cache: Path, text: str) -> None:
    imagefacts.of(ref(ngc), cache)
    imagefacts.tags(ngc.host, "nvidia/tensorflow", cache)
    good = {path: path.read_text() for path in files_in(cache)}
    for path in good:
        path.write_text(text)
    found = imagefacts.of(ref(ngc), cache)
    assert (found.origin, found.facts.cuda) == ("registry", "9.0.176")
    assert imagefacts.tags(ngc.host, "nvidia/tensorflow", cache).origin == "registry"
    assert files_in(cache) == sorted(good)
    assert all(json.loads(path.read_text()).keys() == json.loads(good[path]).keys() for path in good)


@pytest.mark.parametrize(
    "change",
    [{"digest": 7}, {"config": []}, {"architectures": "amd64"}, {"compressed_bytes": "x"}, {"compressed_bytes": []}],
)
def test_a_kept_image_of_another_shape_is_as_none(ngc: NgcServer, cache: Path, change: dict[str, object]) -> None:
    imagefacts.of(ref(ngc), cache)
    [path] = [path for path in files_in(cache) if path.name.startswith("sha256")]
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert imagefacts.of(ref(ngc), cache).origin == "registry"
    assert imagefacts.of(ref(ngc), cache).origin == "cache"


def test_a_cache_that_can_t_be_written_is_no_error(ngc: NgcServer, tmp_path: Path, home: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for _ in range(2):
        assert imagefacts.of(ref(ngc), tmp_path / "file").origin == "registry"
        assert imagefacts.tags(ngc.host, "nvidia/tensorflow", tmp_path / "file").origin == "registry"


def test_what_is_kept_is_for_this_user_s_eyes_and_written_whole(ngc: NgcServer, cache: Path) -> None:
    imagefacts.of(ref(ngc), cache)
    imagefacts.tags(ngc.host, "nvidia/tensorflow", cache)
    assert {path.stat().st_mode & 0o777 for path in files_in(cache)} == {0o600}
    assert {path.parent.stat().st_mode & 0o777 for path in files_in(cache)} == {0o700}
    assert not [path for path in files_in(cache) if path.name.startswith(".")]


def test_a_kept_answer_loads_neither_requests_nor_a_thread(ngc: NgcServer, cache: Path) -> None:
    imagefacts.of(ref(ngc), cache)
    code = (
        "import sys\nfrom pathlib import Path\nfrom ngcdl import imagefacts\nfrom ngcdl.spec import ImageRef\n"
        "found = imagefacts.of(ImageRef.parse(sys.argv[1]), Path(sys.argv[2]))\n"
        "assert found.origin == 'cache', found\n"
        "print(sorted({'requests', 'urllib3', 'docker', 'concurrent'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ref(ngc)), str(cache)], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(ROOT / "toolkit"), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("[]\n", "")


# Many


def test_many_are_asked_at_once_and_those_that_are_kept_not_at_all(ngc: NgcServer, cache: Path) -> None:
    names = [f"18.{month:02d}-py3" for month in range(1, 13)]
    for name in names:
        ngc.add_image("nvidia/tensorflow", name, environ=(f"CUDA_VERSION=9.{int(name[3:5])}",))
    refs = [ref(ngc, f"nvidia/tensorflow:{name}") for name in [*names, "77.01-py3"]]
    kept = imagefacts.of(refs[3], cache)
    found = imagefacts.many([*refs, refs[0]], cache)
    assert list(found) == refs
    assert found[refs[3]] == Found(kept.facts, "cache", None, 0, 0, found[refs[3]].age_seconds)  # type: ignore[union-attr]
    assert isinstance(found.pop(refs[-1]), UnknownTag)
    assert [one.facts.cuda for one in found.values() if isinstance(one, Found)] == [f"9.{n}" for n in range(1, 13)]
    asked = len(ngc.seen)
    again = imagefacts.many(refs[:-1], cache)
    assert {one.origin for one in again.values() if isinstance(one, Found)} == {"cache"}
    assert len(ngc.seen) == asked


def test_many_count_each_its_own_cost(ngc: NgcServer, cache: Path) -> None:
    found = imagefacts.many([ref(ngc), ref(ngc, NEW)], cache)
    assert sum(one.requests for one in found.values() if isinstance(one, Found)) == len(ngc.seen)


def test_a_registry_that_is_down_is_asked_once_by_each_thread(ngc: NgcServer, cache: Path) -> None:
    ngc.fail("/v2/", status(429, Retry_After="60"))
    refs = [ref(ngc, f"nvidia/tensorflow:{year}.{month:02d}-py3") for year in range(16, 19) for month in range(1, 13)]
    found = imagefacts.many(refs, cache)
    assert len(ngc.seen) <= imagefacts.THREADS
    known = {one.tag for one, answer in found.items() if isinstance(answer, Found)}
    assert "18.01-py3" in known
    assert "16.01-py3" not in known
    assert all(isinstance(one.trouble, RateLimited) for one in found.values() if isinstance(one, Found))
    assert all(isinstance(one, Found | RateLimited) for one in found.values())


def test_many_with_the_key_show_it_to_the_realm_only(ngc: NgcServer, cache: Path, home: Path) -> None:
    ngc.gated.add("nvidia/tensorflow")
    sign_in(home, ngc.host)
    found = imagefacts.many([ref(ngc), ref(ngc, NEW)], cache)
    assert {one.origin for one in found.values() if isinstance(one, Found)} == {"registry"}
    shown = {seen.path.partition("?")[0] for seen in ngc.seen if (seen.authorization or "").startswith("Basic")}
    assert shown == {"/proxy_auth"}


def test_many_offline_are_told_from_the_catalogue_or_not_at_all(ngc: NgcServer, cache: Path) -> None:
    unknown = ref(ngc, "nvidia/tensorflow:99.01")
    found = imagefacts.many([ref(ngc), unknown], cache, offline=True)
    assert isinstance(found[unknown], NotAsked)
    assert isinstance(one := found[ref(ngc)], Found)
    assert (one.origin, ngc.seen) == ("catalogue", [])


def test_none_are_none(cache: Path) -> None:
    assert imagefacts.many([], cache) == {}


# Tags


def test_tags_are_the_registry_s_and_remembered_for_an_hour(ngc: NgcServer, cache: Path) -> None:
    clock = Clock()
    tags = imagefacts.tags(ngc.host, "nvidia/tensorflow", cache, now=clock)
    assert (tags.names, tags.origin, tags.trouble) == (("18.01-py2", "25.02-tf2-py3"), "registry", None)
    ngc.add_image("nvidia/tensorflow", "26.09-tf2-py3")
    clock.seconds += 3599
    tags = imagefacts.tags(ngc.host, "nvidia/tensorflow", cache, now=clock)
    assert (len(tags.names), tags.origin, tags.age_seconds) == (2, "cache", 3599)
    clock.seconds += 2
    assert "26.09-tf2-py3" in imagefacts.tags(ngc.host, "nvidia/tensorflow", cache, now=clock).names


def test_without_the_registry_an_old_list_goes_before_the_catalogue_s(ngc: NgcServer, cache: Path) -> None:
    clock = Clock()
    ngc.fail("/v2/", status(429, Retry_After="60"))
    tags = imagefacts.tags(ngc.host, "nvidia/tensorflow", cache, now=clock)
    assert tags.origin == "catalogue"
    assert "18.08-py2" in tags.names
    assert isinstance(tags.trouble, RateLimited)
    ngc.faults.clear()
    imagefacts.tags(ngc.host, "nvidia/tensorflow", cache, now=clock)
    ngc.fail("/v2/", status(429, Retry_After="60"))
    clock.seconds += 86400
    tags = imagefacts.tags(ngc.host, "nvidia/tensorflow", cache, now=clock)
    assert (tags.origin, tags.age_seconds, tags.names) == ("cache", 86400, ("18.01-py2", "25.02-tf2-py3"))
    assert isinstance(tags.trouble, RateLimited)
    assert imagefacts.tags(ngc.host, "nvidia/tensorflow", cache, offline=True, now=clock).trouble is None


def test_tags_of_what_nobody_knows_raise(ngc: NgcServer, cache: Path) -> None:
    with pytest.raises(UnknownRepository):
        imagefacts.tags(ngc.host, "nvidia/pytorch", cache)
    with pytest.raises(RegistryUnreachable):
        imagefacts.tags("127.0.0.1:1", "elsewhere/tensorflow", cache)
    with pytest.raises(NotAsked, match="nim/llama"):
        imagefacts.tags(ngc.host, "nim/llama", cache, offline=True)


def test_the_tags_of_a_mirror_below_a_prefix_are_the_catalogue_s_too(cache: Path) -> None:
    assert imagefacts.tags("127.0.0.1:1", "nvcr/nvidia/pytorch", cache, offline=True).origin == "catalogue"
