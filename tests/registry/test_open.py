"""A blob over real HTTP: from any offset, with a new token, through a redirect, over a line that dies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from blob_line import CONTENT, DIGEST
from ngc_server import Handler, NgcServer, html, serving, status

from ngcdl.errors import BlobMissing, LoginNeeded, RateLimited, RegistryAnswer
from ngcdl.pulling.blobs import Blob
from ngcdl.registry.client import Registry

REPOSITORY = "nvidia/tensorflow"


@pytest.fixture
def blob(ngc: NgcServer, tmp_path: Path) -> Iterator[Blob]:
    ngc.blobs[DIGEST] = CONTENT
    one = Blob(tmp_path, DIGEST, len(CONTENT))
    yield one
    one.close()


def fill(blob: Blob, registry: Registry) -> None:
    blob.fill(lambda start: registry.open(REPOSITORY, DIGEST, start), lambda _: None)


def ranged(handler: Handler) -> None:
    """Answer a Range request as a CDN does."""
    found = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", "bytes=0-"))
    assert found
    start = int(found[1])
    about = f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}"
    handler.send(206 if start else 200, CONTENT[start:], Content_Range=about)


def half(handler: Handler) -> None:
    """Send the first two million bytes, then cut the connection."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(CONTENT)))
    handler.end_headers()
    handler.wfile.write(CONTENT[:2_000_000])
    handler.close_connection = True


def half_and_silence(handler: Handler) -> None:
    half(handler)
    handler.wfile.flush()
    handler.ngc.stopping.wait(60)


def test_an_answer_that_begins_earlier_than_asked_is_put_where_it_belongs(ngc: NgcServer, blob: Blob) -> None:
    def aligned(handler: Handler) -> None:
        start = int(handler.headers["Range"].removeprefix("bytes=").rstrip("-")) // 65536 * 65536
        handler.send(206, CONTENT[start:], Content_Range=f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")

    ngc.challenges = False
    ngc.fail("/blobs/", half, times=1)
    ngc.fail("/blobs/", aligned, times=1)
    with Registry(ngc.host, timeout_seconds=(20, 20)) as registry:
        fill(blob, registry)
    assert blob.read() == CONTENT
    assert len(ngc.seen) == 2


def test_a_page_in_place_of_a_layer_is_no_part_of_it(ngc: NgcServer, blob: Blob) -> None:
    def page(handler: Handler) -> None:
        handler.send(200, b"<html>Your download is being scanned.</html>")

    def page_as_a_part(handler: Handler) -> None:
        handler.send(206, b"<html>", Content_Range="bytes 2000000-2000005/2000006")

    ngc.challenges = False
    for fault in (page, half, page_as_a_part):
        ngc.fail("/blobs/", fault, times=1)
    ngc.fail("/blobs/", ranged)
    with Registry(ngc.host) as registry:
        fill(blob, registry)
    assert blob.read() == CONTENT
    assert [seen.range for seen in ngc.seen] == [None, None, "bytes=2000000-", "bytes=2000000-"]
    assert blob.came_bytes == len(CONTENT)


@pytest.mark.parametrize("fault", [half, half_and_silence], ids=["cut", "silent"])
def test_a_line_that_dies_is_left_and_the_rest_asked_for(ngc: NgcServer, blob: Blob, fault: object) -> None:
    ngc.challenges = False
    ngc.fail("/blobs/", fault, times=1)  # type: ignore[arg-type]  # both are faults
    ngc.fail("/blobs/", ranged)
    with Registry(ngc.host, timeout_seconds=(20, 1)) as registry:
        fill(blob, registry)
    assert blob.read() == CONTENT
    assert blob.came_bytes == len(CONTENT)


def test_an_expired_token_is_dropped_and_a_new_one_fetched(ngc: NgcServer, registry: Registry, blob: Blob) -> None:
    registry.open(REPOSITORY, DIGEST).close()
    ngc.expire()
    fill(blob, registry)
    assert blob.read() == CONTENT
    assert len(ngc.tokens) == 2


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
def test_another_host_or_port_is_not_shown_the_token(
    ngc: NgcServer, registry: Registry, blob: Blob, address: str
) -> None:
    cdn = NgcServer(challenges=False)
    cdn.fail("/signed/", ranged)
    with serving(cdn, address):
        ngc.cdn = f"http://{cdn.host}"
        fill(blob, registry)
    assert blob.read() == CONTENT
    assert [seen.authorization for seen in cdn.seen] == [None]


def test_a_registry_that_redirects_to_itself_is_shown_the_token_there_too(
    ngc: NgcServer, registry: Registry, blob: Blob
) -> None:
    def guarded(handler: Handler) -> None:
        if handler.headers.get("Authorization", "").startswith("Bearer "):
            ranged(handler)
        else:
            handler.send(401, b"")

    ngc.cdn = f"http://{ngc.host}"
    ngc.fail("/signed/", guarded)
    fill(blob, registry)
    assert blob.read() == CONTENT


@pytest.mark.parametrize("code", [401, 402, 403])
def test_a_refusal_of_another_host_says_nothing_about_the_key(
    ngc: NgcServer, registry: Registry, signed_in: Registry, blob: Blob, code: int
) -> None:
    cdn = NgcServer(challenges=False)
    with serving(cdn, "127.0.0.2"):
        ngc.cdn = f"http://{cdn.host}"
        cdn.fail("/signed/", html(code))
        for asker in (registry, signed_in):
            with pytest.raises(RegistryAnswer, match=rf"{cdn.host} did not answer .*{code}.*Corporate portal"):
                fill(blob, asker)


def test_another_host_s_challenge_is_not_answered_with_the_key(ngc: NgcServer, signed_in: Registry, blob: Blob) -> None:
    cdn = NgcServer()
    with serving(cdn, "127.0.0.2"):
        ngc.cdn = f"http://{cdn.host}"  # its challenge names its own realm
        with pytest.raises(RegistryAnswer, match=cdn.host):
            fill(blob, signed_in)
    assert {seen.path.partition("/sha256")[0] for seen in cdn.seen} == {"/signed"}


def test_a_blob_that_is_not_there_is_told_from_a_registry_that_is_busy(
    ngc: NgcServer, registry: Registry, signed_in: Registry, blob: Blob
) -> None:
    for code, error in ((404, BlobMissing), (429, RateLimited), (403, LoginNeeded)):
        ngc.faults.clear()
        ngc.fail("/blobs/", status(code))
        with pytest.raises(error):
            fill(blob, registry)


def test_a_page_of_a_proxy_says_nothing_about_a_blob(ngc: NgcServer, registry: Registry, blob: Blob) -> None:
    ngc.fail("/blobs/", html(404))
    with pytest.raises(RegistryAnswer, match=rf"{ngc.host} did not answer .*404 Not Found: .*Corporate portal"):
        fill(blob, registry)
