"""Refusals by a registry, or because of a key: each is told apart, with what to type next, and nothing runs."""

from __future__ import annotations

import json

import pytest
from faulty_front import Front
from ngcdl_child import Done, User
from stand_ins import stand_in

pytestmark = pytest.mark.lab


def refused(done: Done, *texts: str) -> None:
    assert done.code == 125, done
    for text in texts:
        assert text in done.err, done
    assert done.out == ""


def test_an_unknown_tag_is_told_with_the_nearest_ones(user: User) -> None:
    user.login()
    refused(user.run("pull", "tensorflow:18.01-py3"), "does not exist", "nvidia/tensorflow:18.01-py2")
    refused(user.run("run", "busybox:bigg", "--", "true"), "does not exist", "nvidia/busybox:big\n")
    assert not user.ids()


def test_an_unknown_repository_is_not_taken_for_a_wrong_key(user: User) -> None:
    user.login()
    refused(user.run("pull", "nosuchimage:1"), "nvidia/nosuchimage", "A misspelt name gets the same answer")


def test_without_a_key_a_private_repository_asks_to_sign_in(user: User) -> None:
    name = "tensorflow:18.01-py2"
    refused(user.run("pull", name), "serves nvidia/tensorflow only to users who are signed in", "ngcdl login")


@pytest.mark.parametrize("kind", ["key_revoked", "nvapi-never-issued-0123456789"])
def test_a_key_that_the_registry_refuses_is_401_and_not_kept(user: User, kind: str) -> None:
    key = user.lab["registry"].get(kind, kind)
    refused(user.run("login", "--password-stdin", stdin=key), "refused the key from standard input (401)")
    assert not (user.home / ".docker/config.json").exists()
    done = user.run("pull", "tensorflow:18.01-py2", NGC_API_KEY=key)
    refused(done, "refused the key from the variable NGC_API_KEY (401)", "unset NGC_API_KEY && ngcdl login")
    assert key not in done.err


@pytest.mark.parametrize(("key", "image"), [("key_without_rights", "tensorflow:18.01-py2"), ("key", "gated:1")])
def test_a_good_key_without_the_right_is_403(user: User, key: str, image: str) -> None:
    user.login(user.lab["registry"][key])
    name = f"nvidia/{image.split(':')[0]}"
    refused(user.run("pull", image), f"accepts the key, but it gives no access to {name} (403)", "NGC Catalog")


def test_an_image_for_other_processors_only_says_which(user: User) -> None:
    refused(user.run("pull", "busybox:arm64"), "the image is made for arm64, not for amd64")
    refused(user.run("pull", "busybox:arm64", "--force"), "is not built for linux/amd64", "linux/arm64")


def test_a_registry_that_is_down_is_unreachable(user: User) -> None:
    refused(user.run("pull", "busybox:1", NGCDL_REGISTRY="127.0.0.1:1"), "127.0.0.1:1 can't be reached")


def test_a_digest_that_does_not_exist_runs_nothing(user: User) -> None:
    refused(user.run("run", f"busybox@sha256:{'0' * 64}", "--", "true"), "does not exist")
    assert not user.ids()


@pytest.mark.parametrize("shape", ["missing", "broken", "hanging"])
def test_a_credential_helper_in_trouble_does_not_stop_a_public_image(
    user: User, front: Front, shape: str, images: dict[str, str]
) -> None:
    folder = user.folder / "bin"
    folder.mkdir()
    if shape != "missing":
        stand_in(folder, "docker-credential-lab", "echo garbage" if shape == "broken" else "exec sleep 60")
    (user.home / ".docker").mkdir()
    (user.home / ".docker/config.json").write_text(json.dumps({"credsStore": "lab"}))
    path = f"{folder}:{user.environment['PATH']}"
    done = user.run("pull", "busybox:1", PATH=path, NGCDL_REGISTRY=front.host)
    assert done.code == 0, done
    assert done.out.strip() == f"{front.host}/nvidia/busybox@{images['busybox:1']}"
    user.docker("rmi", f"{front.host}/nvidia/busybox:1")  # a later test's registry may have the same port
    assert "docker-credential-lab" in done.err
    assert "Trying without a key" in done.err
    if shape == "broken":
        refused(user.run("pull", "tensorflow:18.01-py2", PATH=path, NGCDL_REGISTRY=front.host), "docker-credential-lab")


def test_a_broken_config_file_is_named_and_left_alone(user: User) -> None:
    path = user.home / ".docker/config.json"
    path.parent.mkdir()
    path.write_text('{"auths": {')
    refused(user.run("login", "--password-stdin", stdin=user.lab["registry"]["key"]), str(path), "left as it is")
    assert path.read_text() == '{"auths": {'
    done = user.run("run", "busybox:1", "--pull", "always", "--", "true")
    assert done.code == 0, done
    assert str(path) in done.err


def test_a_pull_by_tag_launches_and_records_the_digest(user: User, images: dict[str, str]) -> None:
    done = user.run("run", "busybox:1", "--pull", "always", "-d", "--", "sleep", "600")
    assert done.code == 0, done
    name = f"{user.lab['registry']['host']}/nvidia/busybox"
    assert user.inspect()["Config"]["Image"] == f"{name}@{images['busybox:1']}"
    assert user.record()["image"] == {"reference": f"{name}:1", "digest": images["busybox:1"], "id": None}
    assert user.run("stop", "last").code == 0
