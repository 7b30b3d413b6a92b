"""ngcdl.judging.imagefacts: many images at once, and the existing tags."""

from __future__ import annotations

from pathlib import Path

import pytest
from images_asked import NEW, Clock, ref, sign_in
from ngc_server import NgcServer, status

from ngcdl.errors import NotAsked, RateLimited, RegistryUnreachable, UnknownRepository, UnknownTag
from ngcdl.judging import imagefacts
from ngcdl.judging.imagefacts import Found


def test_many_are_asked_at_once_and_those_that_are_kept_not_at_all(ngc: NgcServer, cache: Path) -> None:
    names = [f"18.{month:02d}-py3" for month in range(1, 13)]
    for name in names:
        ngc.add_image("nvidia/tensorflow", name, environ=(f"CUDA_VERSION=9.{int(name[3:5])}",))
    refs = [ref(ngc, f"nvidia/tensorflow:{name}") for name in [*names, "77.01-py3"]]
    kept = imagefacts.look_up(refs[3], cache, "amd64")
    found = imagefacts.look_up_all([*refs, refs[0]], cache, "amd64")
    assert list(found) == refs
    assert found[refs[3]] == Found(kept.facts, "cache", None, 0, 0, found[refs[3]].age_seconds)  # type: ignore[union-attr]
    assert isinstance(found.pop(refs[-1]), UnknownTag)
    assert [one.facts.cuda for one in found.values() if isinstance(one, Found)] == [f"9.{n}" for n in range(1, 13)]
    asked = len(ngc.seen)
    again = imagefacts.look_up_all(refs[:-1], cache, "amd64")
    assert {one.origin for one in again.values() if isinstance(one, Found)} == {"cache"}
    assert len(ngc.seen) == asked


def test_many_count_each_its_own_cost(ngc: NgcServer, cache: Path) -> None:
    found = imagefacts.look_up_all([ref(ngc), ref(ngc, NEW)], cache, "amd64")
    assert sum(one.requests for one in found.values() if isinstance(one, Found)) == len(ngc.seen)


def test_a_registry_that_is_down_is_asked_once_by_each_thread(ngc: NgcServer, cache: Path) -> None:
    ngc.fail("/v2/", status(429, Retry_After="60"))
    refs = [ref(ngc, f"nvidia/tensorflow:{year}.{month:02d}-py3") for year in range(16, 19) for month in range(1, 13)]
    found = imagefacts.look_up_all(refs, cache, "amd64")
    assert len(ngc.seen) <= imagefacts.THREADS
    known = {one.tag for one, answer in found.items() if isinstance(answer, Found)}
    assert "18.01-py3" in known
    assert "16.01-py3" not in known
    assert all(isinstance(one.trouble, RateLimited) for one in found.values() if isinstance(one, Found))
    assert all(isinstance(one, Found | RateLimited) for one in found.values())


def test_many_with_the_key_show_it_to_the_realm_only(ngc: NgcServer, cache: Path, home: Path) -> None:
    ngc.gated.add("nvidia/tensorflow")
    sign_in(home, ngc.host)
    found = imagefacts.look_up_all([ref(ngc), ref(ngc, NEW)], cache, "amd64")
    assert {one.origin for one in found.values() if isinstance(one, Found)} == {"registry"}
    shown = {seen.path.partition("?")[0] for seen in ngc.seen if (seen.authorization or "").startswith("Basic")}
    assert shown == {"/proxy_auth"}


def test_many_offline_are_told_from_the_catalogue_or_not_at_all(ngc: NgcServer, cache: Path) -> None:
    unknown = ref(ngc, "nvidia/tensorflow:99.01")
    found = imagefacts.look_up_all([ref(ngc), unknown], cache, "amd64", offline=True)
    assert isinstance(found[unknown], NotAsked)
    assert isinstance(one := found[ref(ngc)], Found)
    assert (one.origin, ngc.seen) == ("catalogue", [])


def test_none_are_none(cache: Path) -> None:
    assert imagefacts.look_up_all([], cache, "amd64") == {}


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
