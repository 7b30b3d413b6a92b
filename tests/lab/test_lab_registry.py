"""The lab's registry behaves like nvcr.io, and each fault strikes."""

from __future__ import annotations

import http.client
import json
import random
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
from docker_client import Docker
from faulty_front import Front

pytestmark = pytest.mark.lab


@pytest.fixture
def key(lab: dict[str, Any]) -> str:
    return str(lab["registry"]["key"])


def blob(front: Front, tag: str = "big", name: str = "busybox") -> str:
    """Return the path of an image's biggest layer."""
    return f"/v2/nvidia/{name}/blobs/{front.biggest_layer(tag, name)}"


# ---- nvcr.io's protocol ----


def test_the_challenge_names_realm_and_scope_but_no_service(front: Front) -> None:
    answer = front.get("/v2/nvidia/tensorflow/manifests/18.01-py2")
    assert answer.status == 401
    assert (
        answer.headers["Www-Authenticate"]
        == f'Bearer realm="http://{front.host}/proxy_auth",scope="repository:nvidia/tensorflow:pull"'
    )
    assert front.get("/v2/").headers["Www-Authenticate"].endswith(',scope=""')


def test_the_token_answer_calls_itself_text(front: Front, key: str) -> None:
    answer = front.get("/proxy_auth?scope=repository:nvidia/pytorch:pull", key=key)
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert set(json.loads(answer.body)) == {"token", "expires_in"}


def test_basic_straight_at_the_registry_is_refused(front: Front, key: str) -> None:
    assert front.get("/v2/", key=key).status == 401


def test_a_valid_key_logs_in_and_a_revoked_one_does_not(lab: dict[str, Any], docker: Docker) -> None:
    assert "unauthorized: authentication required" in docker.login(lab["registry"]["key_revoked"], fails=True)
    assert "unauthorized" in docker.login("never-issued", fails=True)
    assert "Login Succeeded" in docker.login(lab["registry"]["key"])


def test_a_key_without_rights_logs_in_and_is_denied_at_the_manifest(
    lab: dict[str, Any], docker: Docker, front: Front
) -> None:
    key = lab["registry"]["key_without_rights"]
    docker.login(key)
    assert "denied: Access Denied" in docker(
        "pull", f"{lab['registry']['host']}/nvidia/tensorflow:18.01-py2", fails=True
    )
    answer = front.get("/v2/nvidia/tensorflow/manifests/18.01-py2", token=front.token("tensorflow", key))
    assert (answer.status, answer.body) == (403, b'{"errors":[{"code":"DENIED","message":"Access Denied"}]}')


def test_a_gated_and_a_missing_repository_are_denied_even_with_the_key(lab: dict[str, Any], docker: Docker) -> None:
    docker.login(lab["registry"]["key"])
    for name in ("gated:1", "nosuch:1"):
        assert "denied" in docker("pull", f"{lab['registry']['host']}/nvidia/{name}", fails=True)


def test_busybox_pulls_without_login_and_tensorflow_does_not(lab: dict[str, Any], docker: Docker) -> None:
    docker("pull", f"{lab['registry']['host']}/nvidia/busybox:1")
    assert "unauthorized" in docker("pull", f"{lab['registry']['host']}/nvidia/tensorflow:18.01-py2", fails=True)


def test_tags_are_listed_and_a_wrong_tag_is_unknown(lab: dict[str, Any], docker: Docker, front: Front) -> None:
    answer = front.get("/v2/nvidia/busybox/tags/list", token=front.token())
    assert {"1", "entry", "big", "arm64"} <= set(json.loads(answer.body)["tags"])
    assert "manifest unknown" in docker("pull", f"{lab['registry']['host']}/nvidia/busybox:nosuch", fails=True)


def test_an_image_for_another_processor_is_refused_by_name(lab: dict[str, Any], docker: Docker) -> None:
    assert "no matching manifest for linux/amd64" in docker(
        "pull", f"{lab['registry']['host']}/nvidia/busybox:arm64", fails=True
    )


def test_only_the_pushing_account_writes(lab: dict[str, Any], docker: Docker) -> None:
    name = f"{lab['registry']['host']}/nvidia/scratch:pushed"
    docker("pull", "-q", f"{lab['registry']['host']}/nvidia/busybox:1")
    docker("tag", f"{lab['registry']['host']}/nvidia/busybox:1", name)
    docker.login(lab["registry"]["key"])
    text = docker("push", name, fails=True)
    assert "denied" in text or "403" in text  # docker uses HEAD if the repository exists, and HEAD has no body
    push = lab["registry"]["push"]
    docker.login(push["password"], push["user"])
    assert "pushed: digest: sha256:" in docker("push", name)


def test_the_log_says_who_asked_but_never_with_what(front: Front, key: str) -> None:
    token = front.token("pytorch", key)
    front.get("/v2/nvidia/pytorch/tags/list", token=token, Range="bytes=0-1")
    asked, listed = front.requests()
    assert (asked["authorization"], asked["query_scope"], asked["status"]) == (
        "basic",
        "repository:nvidia/pytorch:pull",
        200,
    )
    assert (listed["authorization"], listed["scope"], listed["range"]) == (
        "bearer",
        "repository:nvidia/pytorch:pull",
        "bytes=0-1",
    )
    text = front.log.read_text()
    assert token not in text
    assert key not in text


# ---- faults of the registry ----


def test_a_status_strikes_so_many_times_with_its_own_body(front: Front) -> None:
    front.break_down(
        token={
            "status": 429,
            "body": "<html>busy</html>",
            "content_type": "text/html",
            "headers": {"Retry-After": "2"},
            "times": 1,
        }
    )
    answer = front.get("/proxy_auth?scope=")
    assert (answer.status, answer.body, answer.headers["Retry-After"]) == (429, b"<html>busy</html>", "2")
    assert answer.headers["Content-Type"] == "text/html"
    assert front.get("/proxy_auth?scope=").status == 200
    assert [line["fault"] for line in front.requests()] == ["token", None]


@pytest.mark.parametrize("kind", ["manifest", "blob", "tags", "ping"])
def test_every_kind_of_request_can_fail(front: Front, kind: str) -> None:
    paths = {
        "manifest": "/v2/nvidia/busybox/manifests/1",
        "blob": blob(front),
        "tags": "/v2/nvidia/busybox/tags/list",
        "ping": "/v2/",
    }
    token = front.token()
    front.break_down(**{kind: {"status": 503}})
    assert {k: front.get(path, token=token).status for k, path in paths.items()} == {
        k: 503 if k == kind else 200 for k in paths
    }


def test_a_fault_can_be_late_or_never_or_cut_the_line(front: Front) -> None:
    front.break_down(ping=[{"match": "/v2/", "delay": 0.3, "times": 1}])
    began = time.monotonic()
    front.get("/v2/")
    assert time.monotonic() - began > 0.3
    front.break_down(ping={"hang": True})
    with pytest.raises(TimeoutError):
        front.get("/v2/", timeout=0.5)
    front.break_down(ping={"reset": True})
    with pytest.raises(ConnectionResetError):
        front.get("/v2/")


def test_a_blob_can_be_corrupt_cut_or_slow_and_resumes_by_range(front: Front) -> None:
    path, token = blob(front), front.token()
    whole = front.get(path, token=token).body
    front.break_down(blob={"corrupt": True, "times": 1})
    assert front.get(path, token=token).body == bytes([whole[0] ^ 0xFF]) + whole[1:]
    front.break_down(blob={"cut_after": 1000, "times": 1})
    with pytest.raises(http.client.IncompleteRead) as cut:
        front.get(path, token=token)
    rest = front.get(path, token=token, Range="bytes=1000-")
    assert rest.status == 206
    assert cut.value.partial + rest.body == whole
    front.break_down(blob={"bytes_per_second": 1_000_000, "cut_after": 500_000})
    began = time.monotonic()
    with pytest.raises(http.client.IncompleteRead):
        front.get(path, token=token)
    assert time.monotonic() - began > 0.3
    front.break_down(blob={"stall_after": 1000})
    with pytest.raises(TimeoutError):
        front.get(path, token=token, timeout=0.5)


def test_tokens_end_and_the_realm_can_move(front: Front) -> None:
    front.break_down(token_lifetime=0, realm_moves=True)
    answer = front.get("/v2/nvidia/busybox/tags/list", token=front.token())
    assert answer.status == 401
    assert (
        answer.headers["Www-Authenticate"]
        == f'Bearer realm="http://{front.host}/token",service="registry",error="invalid_token"'
    )
    assert front.get("/token?service=registry&scope=repository:nvidia/busybox:pull").status == 401
    front.break_down()
    assert front.get("/v2/nvidia/busybox/tags/list", token="made-up").headers["Www-Authenticate"].count("error=") == 0


def test_a_redirected_blob_needs_no_token_and_the_log_shows_one_that_came(front: Front) -> None:
    front.break_down(redirect_blobs=True)
    token = front.token()
    answer = front.get(blob(front), token=token)
    assert answer.status == 307
    host, _, path = answer.headers["Location"].removeprefix("http://").partition("/")
    for headers in ({}, {"Authorization": f"Bearer {token}"}):
        connection = http.client.HTTPConnection(host)
        connection.request("GET", f"/{path}", headers=headers)
        got = connection.getresponse()
        assert (got.status, len(got.read()) > 29_000_000) == (200, True)
        connection.close()
    assert [line["authorization"] for line in front.requests() if line["listener"] == "cdn"] == ["none", "bearer"]


def test_docker_itself_meets_the_faults(lab: dict[str, Any], docker: Docker, front: Front, tmp_path: Path) -> None:
    own = f"{lab['registry']['host']}/nvidia/scratch:cut"  # with a layer that no other test leaves in the engine
    (tmp_path / "layer.bin").write_bytes(random.Random(7).randbytes(12_000_000))
    with tarfile.open(tmp_path / "layer.tar", "w") as tar:
        tar.add(tmp_path / "layer.bin", "layer.bin", filter=lambda entry: entry.replace(mtime=0, deep=False))
    docker("import", str(tmp_path / "layer.tar"), own)
    push = lab["registry"]["push"]
    docker.login(push["password"], push["user"])
    docker("push", own)
    docker("rmi", own)
    image = own.replace(lab["registry"]["host"], front.host)
    front.break_down(manifest={"status": 429})
    docker("pull", image, fails=True)
    assert front.requests()[-1]["status"] == 429
    front.break_down()
    layer = blob(front, "cut", "scratch")
    front.break_down(blob={"cut_after": 5_000_000, "times": 1, "match": layer}, redirect_blobs=True)
    docker("pull", image)
    docker("rmi", image)
    cdn = [line for line in front.requests() if line["listener"] == "cdn"]
    assert ("bytes=5000000-", 206) in [(line["range"], line["status"]) for line in cdn], cdn
    assert {line["authorization"] for line in cdn} == {"none"}
