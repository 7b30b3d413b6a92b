"""ngcdl.registry.client: what exists, and why something does not."""

from __future__ import annotations

import json

import pytest
import requests
from ngc_server import (
    OCI_INDEX,
    SCHEMA_1,
    NgcServer,
    denied,
    digest,
    html,
    status,
)
from registry_asker import BAD, GOOD, ref, shown

from ngcdl.errors import (
    KeyRejected,
    KeyWithoutRights,
    LoginNeeded,
    NgcdlError,
    RegistryAnswer,
    UnknownRepository,
    UnknownTag,
    WrongPlatform,
)
from ngcdl.pulling.fetch import explain
from ngcdl.registry import client
from ngcdl.registry.client import LINUX_AMD64, Registry
from ngcdl.registry.key import Credential
from ngcdl.spec import ImageRef

# What exists


def test_a_public_image_is_described_before_any_layer_is_pulled(ngc, registry):
    image, _ = registry.described(ref(ngc), LINUX_AMD64)
    assert image.compressed_bytes == 1230
    assert [layer.size_bytes for layer in image.layers] == [1000, 200, 30]
    assert image.digest == ngc.tags["nvidia/tensorflow"]["18.01-py2"]
    config = registry.config(ref(ngc), image)
    assert config["config"]["Env"] == ["CUDA_VERSION=9.0.176"]
    assert config["architecture"] == "amd64"


def test_an_index_is_resolved_to_the_platform(ngc, registry):
    ngc.add_image("nvidia/tensorflow", "25.02-tf2-py3", platforms=("linux/arm64", "linux/amd64"))
    both = ref(ngc, "nvidia/tensorflow:25.02-tf2-py3")
    for architecture in ("amd64", "arm64"):
        image, _ = registry.described(both, ("linux", architecture))
        assert image.digest != ngc.tags["nvidia/tensorflow"]["25.02-tf2-py3"], "which is the index"
        assert image.platform == f"linux/{architecture}"
        assert registry.config(both, image)["architecture"] == architecture


def test_a_platform_that_is_not_there_is_named_with_those_that_are(ngc, registry):
    ngc.add_image("nvidia/tensorflow", "24.05-igpu", platforms=("linux/arm64",))
    with pytest.raises(WrongPlatform) as caught:
        registry.described(ref(ngc, "nvidia/tensorflow:24.05-igpu"), LINUX_AMD64)
    assert "linux/amd64" in caught.value.message
    assert "linux/arm64" in caught.value.message
    assert "unknown" not in caught.value.message


def test_an_image_is_had_by_its_digest(ngc, registry):
    name = ngc.tags["nvidia/tensorflow"]["18.01-py2"]
    assert registry.described(ref(ngc, f"nvidia/tensorflow@{name}"), LINUX_AMD64)[0].digest == name


def test_a_schema_1_image_is_recognised_and_read_without_sizes(ngc, registry):
    inner = json.dumps({"architecture": "amd64", "config": {"Env": ["A=b"]}})
    body = json.dumps({"schemaVersion": 1, "history": [{"v1Compatibility": inner}], "fsLayers": []}).encode()
    ngc.manifests["old"] = (SCHEMA_1, body)
    ngc.tags["nvidia/tensorflow"]["17.01"] = "old"
    image, _ = registry.described(ref(ngc, "nvidia/tensorflow:17.01"), LINUX_AMD64)
    assert image.is_schema_1
    assert (image.media_type, image.compressed_bytes, image.layers) == (SCHEMA_1, None, ())
    assert registry.config(ref(ngc), image)["config"]["Env"] == ["A=b"]


def test_what_an_old_registry_says_for_a_digest_and_is_none_is_not_taken(ngc, registry):
    body = json.dumps({"schemaVersion": 1, "history": [], "fsLayers": []}).encode()
    ngc.fail("manifests", lambda h: h.send(200, body, **{"Content-Type": SCHEMA_1, "Docker-Content-Digest": "../../x"}))
    assert registry.described(ref(ngc, "nvidia/tensorflow:17.01"), LINUX_AMD64)[0].digest == digest(body)


def test_tags_are_read_page_by_page(ngc, registry):
    ngc.page = 2
    for month in range(2, 9):
        ngc.add_image("nvidia/tensorflow", f"18.0{month}-py2")
    assert registry.tags("nvidia/tensorflow") == [f"18.0{month}-py2" for month in range(1, 9)]


def test_a_repository_without_tags_lists_none(ngc, registry):
    ngc.tags["nvidia/tensorflow"] = {}
    assert registry.tags("nvidia/tensorflow") == []


def test_pages_that_lead_elsewhere_or_never_end_are_refused(ngc, registry, monkeypatch):
    ngc.fail("tags", lambda h: h.send(200, {"tags": ["a"]}, Link='<http://127.0.0.1:1/v2/x>; rel="next"'), times=1)
    with pytest.raises(RegistryAnswer, match="another host"):
        registry.tags("nvidia/tensorflow")
    ngc.fail("tags", lambda h: h.send(200, {"tags": ["a"]}, Link=f'<{h.path}>; rel="next"'))
    with pytest.raises(RegistryAnswer, match="does not end"):
        registry.tags("nvidia/tensorflow")
    monkeypatch.setattr(client, "_TAGS_LIMIT_BYTES", 100)
    before = registry.asked_requests
    with pytest.raises(RegistryAnswer, match="does not end"):
        registry.tags("nvidia/tensorflow")
    assert registry.asked_requests - before < 20


def test_ping_tells_whether_sign_ins_are_wanted(ngc, registry):
    assert registry.ping()
    ngc.challenges = False
    assert not registry.ping()


# Why something is unavailable


def explained(ngc: NgcServer, name: str, credential: Credential | None = None) -> NgcdlError | None:
    error = explain(ref(ngc, name), credential)
    assert error is None or "CANARY" not in shown(error)
    return error


def test_nothing_is_explained_where_the_image_can_be_had(ngc):
    assert explained(ngc, "nvidia/tensorflow:18.01-py2") is None
    assert explained(ngc, "nvidia/tensorflow:18.01-py2", GOOD) is None


def test_an_unknown_tag_is_answered_with_the_nearest(ngc):
    for tag in ("18.01-py3", "18.02-py2", "19.10-py2", "17.12", "25.02-tf2-py3", "18.03-py2"):
        ngc.add_image("nvidia/tensorflow", tag)
    error = explained(ngc, "nvidia/tensorflow:18.02-py3")
    assert isinstance(error, UnknownTag)
    assert error.nearest[:3] == ("18.01-py3", "18.02-py2", "18.01-py2")
    assert len(error.nearest) == 5
    assert error.hint.splitlines()[-1] == f"    ngcdl images {ngc.host}/nvidia/tensorflow"
    assert f"{ngc.host}/nvidia/tensorflow:18.01-py3" in error.hint


@pytest.mark.parametrize("act", [denied, status(403), html(403), status(402)])
def test_a_403_for_an_absent_tag_is_still_an_unknown_tag(ngc, act):
    ngc.fail("manifests/18.02", act)
    assert isinstance(explained(ngc, "nvidia/tensorflow:18.02-py2", GOOD), UnknownTag)


def test_a_403_for_a_tag_that_is_there_is_a_matter_of_rights(ngc):
    ngc.fail("manifests/", denied)
    assert isinstance(explained(ngc, "nvidia/tensorflow:18.01-py2", GOOD), KeyWithoutRights)
    assert isinstance(explained(ngc, "nvidia/tensorflow:18.01-py2"), LoginNeeded)


@pytest.mark.parametrize("act", [html(403), lambda handler: handler.send(403, b"")])
def test_a_403_without_a_registry_s_words_may_be_a_proxy_s(ngc, act):
    ngc.fail("manifests/", act)
    ngc.fail("tags/", act)
    for credential, kind in ((GOOD, KeyWithoutRights), (None, LoginNeeded)):
        error = explained(ngc, "nvidia/tensorflow:18.01-py2", credential)
        assert type(error) is kind
        first, *more = error.hint.splitlines()
        assert first.startswith("A proxy in between may have refused it, as no registry's words came with it: 403 Forb")
        assert more
    ngc.faults.clear()
    ngc.fail("manifests/", denied)
    assert "proxy" not in explained(ngc, "nvidia/tensorflow:18.01-py2").hint


@pytest.mark.parametrize(
    ("name", "credential", "expected"),
    [
        ("nvidia/tensorflow:18.01-py2", BAD, KeyRejected),
        ("nim/gated:1.0", None, LoginNeeded),
        ("nim/gated:1.0", BAD, KeyRejected),
        ("nvaie/denied:1.0", GOOD, KeyWithoutRights),
        ("nvaie/denied:1.0", None, LoginNeeded),
        ("nvidia/tensorflwo:18.01-py2", None, UnknownRepository),
        ("nvidia/tensorflwo:18.01-py2", GOOD, UnknownRepository),
        (f"nvidia/tensorflow@sha256:{'0' * 64}", None, UnknownTag),
    ],
)
def test_each_refusal_has_its_name(ngc, name, credential, expected):
    ngc.add_image("nim/gated", "1.0")
    ngc.add_image("nvaie/denied", "1.0")
    assert type(explained(ngc, name, credential)) is expected


@pytest.mark.parametrize("page", [b"", b"404 page not found", b"<html><body>Not here</body>", b'{"error": "no"}'])
def test_a_404_that_is_no_registry_s_says_nothing_about_an_image(ngc, registry, page):
    ngc.fail("/manifests/", lambda handler: handler.send(404, page))
    ngc.fail("/tags/", lambda handler: handler.send(404, page))
    for name in ("nvidia/tensorflow:18.02-py2", f"nvidia/tensorflow@sha256:{'0' * 64}"):
        error = explained(ngc, name)
        assert isinstance(error, RegistryAnswer)
        assert "404 Not Found" in error.message
    with pytest.raises(RegistryAnswer, match="404 Not Found"):
        registry.tags("nvidia/tensorflow")


def test_a_404_without_a_body_is_a_registry_s_by_its_header(ngc, registry):
    ngc.fail("/tags/", lambda handler: handler.send(404, b"", Docker_Distribution_Api_Version="registry/2.0"))
    with pytest.raises(UnknownRepository):
        registry.tags("nvidia/tensorflow")


@pytest.mark.parametrize(
    ("name", "credential"),
    [("nim/gated:1.0", None), ("nim/gated:1.0", BAD), ("nim/denied:1.0", GOOD), ("nvidia/tensorflwo:18.01-py2", None)],
)
def test_a_refusal_names_the_login_of_that_registry(ngc, monkeypatch, name, credential):
    ngc.add_image("nim/gated", "1.0")
    ngc.add_image("nim/denied", "1.0")
    ngc.denied.add("nim/denied")
    monkeypatch.setenv("NGCDL_REGISTRY", ngc.host)
    of_mirror = explained(ngc, name, credential)
    assert "nvidia.com" in of_mirror.hint
    monkeypatch.delenv("NGCDL_REGISTRY")
    of_others = explained(ngc, name, credential)
    assert of_others.message == of_mirror.message
    assert "ngcdl login" not in of_others.hint
    assert "nvidia.com" not in of_others.hint
    assert f"    docker login {ngc.host}" in of_others.hint or type(of_others) is KeyWithoutRights


def test_the_gated_image_is_had_with_the_key(ngc):
    ngc.add_image("nim/gated", "1.0")
    assert explained(ngc, "nim/gated:1.0", GOOD) is None


def test_402_is_said_as_it_is(ngc):
    ngc.fail("proxy_auth", status(402))
    error = explained(ngc, "nvidia/tensorflow:18.01-py2", GOOD)
    assert isinstance(error, KeyWithoutRights)
    assert "(402)" in error.message


def test_a_token_that_opens_nothing_is_a_matter_of_rights(ngc):
    ngc.fail("manifests", lambda handler: handler._challenge(f'realm="http://{ngc.host}/proxy_auth"'))
    assert isinstance(explained(ngc, "nvidia/tensorflow:18.01-py2", GOOD), KeyWithoutRights)
    assert isinstance(explained(ngc, "nvidia/tensorflow:18.01-py2"), LoginNeeded)


def test_a_tag_that_is_listed_without_a_manifest_is_the_registrys_trouble(ngc):
    ngc.tags["nvidia/tensorflow"]["18.09"] = "gone"
    assert isinstance(explained(ngc, "nvidia/tensorflow:18.09"), RegistryAnswer)


# What inspecting an image costs


def test_an_image_that_is_made_for_others_is_described_without_a_question_more(ngc, registry):
    ngc.add_image("nvidia/tensorflow", "24.05-igpu", platforms=("linux/arm64", "linux/riscv64"))
    image, _ = registry.described(ref(ngc, "nvidia/tensorflow:24.05-igpu"), LINUX_AMD64, any_platform=True)
    assert (image.platform, image.platforms) == ("linux/arm64", ("linux/arm64", "linux/riscv64"))
    assert len(ngc.seen) == 4  # challenge, token, index, manifest


def test_the_wanted_platform_goes_before_any(ngc, registry):
    ngc.add_image("nvidia/tensorflow", "25.02-tf2-py3", platforms=("linux/arm64", "linux/amd64"))
    both = ref(ngc, "nvidia/tensorflow:25.02-tf2-py3")
    for wanted, given in (("amd64", "linux/amd64"), ("arm64", "linux/arm64"), ("ppc64le", "linux/amd64")):
        assert registry.described(both, ("linux", wanted), any_platform=True)[0].platform == given


def test_an_image_in_no_index_leaves_its_platform_to_the_configuration(ngc, registry):
    image, _ = registry.described(ref(ngc), ("linux", "arm64"))
    assert (image.platform, image.platforms) == (None, ())


def add_index(ngc, tag, *entries):
    body = json.dumps({"schemaVersion": 2, "manifests": entries}).encode()
    ngc.tags["nvidia/tensorflow"][tag] = digest(body)
    ngc.manifests[digest(body)] = (OCI_INDEX, body)
    return digest(body)


def test_one_in_an_index_that_names_no_platform_does_too(ngc, registry):
    one, other = ngc.tags["nvidia/tensorflow"]["18.01-py2"], digest(b"provenance")
    add_index(ngc, "0", {"digest": one}, {"digest": other})
    image, document = registry.described(ref(ngc, "nvidia/tensorflow:0"), LINUX_AMD64)
    assert (image.digest, document.digest, image.platform, image.platforms) == (one, one, None, ())


def test_of_an_index_within_others_the_outermost_that_names_platforms_says_which_there_are(ngc, registry):
    ngc.add_image("nvidia/tensorflow", "inner", platforms=("linux/amd64",))
    at = ngc.tags["nvidia/tensorflow"]["inner"]
    arm64 = {"digest": digest(b"other"), "platform": {"os": "linux", "architecture": "arm64"}}
    at = add_index(ngc, "both", arm64, {"digest": at, "platform": {"os": "linux", "architecture": "amd64"}})
    add_index(ngc, "0", {"digest": at})
    image, document = registry.described(ref(ngc, "nvidia/tensorflow:0"), LINUX_AMD64)
    assert (image.platform, image.platforms) == ("linux/amd64", ("linux/arm64", "linux/amd64"))
    assert len(image.layers) == 3
    assert document.digest == image.digest


def test_indexes_within_each_other_without_end_are_not_followed(ngc, registry):
    at = ngc.tags["nvidia/tensorflow"]["18.01-py2"]
    for number in range(9):
        at = add_index(ngc, str(number), {"digest": at})
    with pytest.raises(RegistryAnswer, match="inside an index"):
        registry.described(ref(ngc, "nvidia/tensorflow:8"), LINUX_AMD64)
    assert registry.described(ref(ngc, "nvidia/tensorflow:2"), LINUX_AMD64)[0].layers


def test_an_index_of_nothing_is_for_no_platform(ngc, registry):
    add_index(ngc, "0")
    with pytest.raises(WrongPlatform):
        registry.described(ref(ngc, "nvidia/tensorflow:0"), LINUX_AMD64, any_platform=True)


def test_a_document_that_was_asked_already_is_not_asked_again(ngc, registry):
    ngc.add_image("nvidia/tensorflow", "25.02-tf2-py3", platforms=("linux/amd64",))
    both = ref(ngc, "nvidia/tensorflow:25.02-tf2-py3")
    document = registry.document(both)
    assert document.digest == ngc.tags["nvidia/tensorflow"]["25.02-tf2-py3"]
    asked = len(ngc.seen)
    assert registry.described(both, LINUX_AMD64, document=document)[0].platforms == ("linux/amd64",)
    assert len(ngc.seen) == asked + 1


def test_requests_and_bytes_are_counted_those_to_the_token_server_too(ngc, registry):
    config = registry.config(ref(ngc), registry.described(ref(ngc), LINUX_AMD64)[0])
    assert config["architecture"] == "amd64"
    assert registry.asked_requests == len(ngc.seen) == 4
    blob = next(iter(ngc.blobs.values()))
    manifest = next(iter(ngc.manifests.values()))[1]
    assert len(blob) + len(manifest) < registry.asked_bytes < len(blob) + len(manifest) + 400


def test_who_signs_in_later_is_not_asked_again_who_they_are(ngc, registry):
    ngc.add_image("nim/gated", "1.0")
    gated = ref(ngc, "nim/gated:1.0")
    with pytest.raises(LoginNeeded):
        registry.described(gated, LINUX_AMD64)
    registry.sign_in(GOOD)
    assert registry.described(gated, LINUX_AMD64)[0].compressed_bytes == 1230
    paths = [seen.path.split("?")[0].rpartition("/")[2] for seen in ngc.seen]
    assert paths == ["1.0", "proxy_auth", "proxy_auth", "1.0"]


def test_a_question_that_has_grown_old_is_heard_again_after_signing_in(ngc, registry):
    registry.described(ref(ngc), LINUX_AMD64)
    registry.sign_in(GOOD)
    ngc.fail("manifests", lambda h: h._challenge(f'realm="http://{ngc.host}/proxy_auth?new=1",scope=""'), times=2)
    assert registry.described(ref(ngc), LINUX_AMD64)[0].compressed_bytes == 1230
    assert ngc.seen[-2].path == "/proxy_auth?new=1&scope=repository:nvidia/tensorflow:pull"


@pytest.mark.parametrize(
    ("host", "repository", "path"),
    [
        ("docker.io", "ubuntu", "registry-1.docker.io/v2/library/ubuntu"),
        ("docker.io", "pytorch/pytorch", "registry-1.docker.io/v2/pytorch/pytorch"),
        ("mirror.example", "ubuntu", "mirror.example/v2/ubuntu"),
    ],
)
def test_docker_hub_s_images_of_one_word_are_in_its_library(monkeypatch, host, repository, path):
    asked = []

    def request(_session, _method, url, **_):
        asked.append(url)
        raise requests.exceptions.InvalidSchema

    monkeypatch.setattr(requests.Session, "request", request)
    with Registry(host) as registry:
        for ask in (
            lambda: registry.tags(repository),
            lambda: registry.document(ImageRef(host, repository, "22.04")),
            lambda: registry.open(repository, "sha256:0"),
        ):
            with pytest.raises(NgcdlError):
                ask()
    assert [url.rsplit("/", 2)[0] for url in asked] == [f"https://{path}"] * 3
