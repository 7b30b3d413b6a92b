"""The registry on the loopback, over real HTTP: what it serves to a client that knows the path, and when."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.client
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from blob_line import CONTENT, DIGEST, Line
from house import until
from ports import silent_port

from ngcdl.errors import BlobMissing
from ngcdl.pulling.blobs import Blob
from ngcdl.pulling.offer import Offer
from ngcdl.pulling.relay import Relay, is_relays
from ngcdl.spec import ImageRef

KIND = "application/vnd.docker.distribution.manifest.v2+json"
MANIFEST = b'{"schemaVersion": 2}'
IMAGE = ImageRef("nvcr.io", "nvidia/tensorflow", None, f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}")


@dataclass
class Upstream:
    """A registry that has `contents`; each blob is sent only once its event is set. `asked` is the request order."""

    contents: dict[str, bytes]
    gates: dict[str, threading.Event] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    connections: int = 0
    was_asked: threading.Event = field(default_factory=threading.Event)

    def connect(self) -> Upstream:
        self.connections += 1
        return self

    def open(self, repository: str, digest: str, start: int = 0) -> Line:
        assert repository == "nvidia/tensorflow"
        self.asked.append(digest)
        self.was_asked.set()
        if digest not in self.contents:
            raise BlobMissing("nvcr.io", digest)
        gate = self.gates.get(digest)
        line = Line(self.contents[digest])
        if gate is not None:
            line.at_piece = lambda: None if line.is_unread() else self._wait(gate)
        return line.open(start)

    def _wait(self, gate: threading.Event) -> None:
        assert gate.wait(240)

    def close(self) -> None: ...


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@contextlib.contextmanager
def relaying(folder: Path, upstream: Upstream, digests: list[str], connections: int = 1) -> Iterator[Relay]:
    sizes = {digest: len(upstream.contents.get(digest, b"x" * 10)) for digest in digests}
    blobs = tuple(Blob(folder, digest, size) for digest, size in sizes.items())
    with Relay(Offer(IMAGE, KIND, MANIFEST, blobs), upstream.connect, lambda _: None, connections=connections) as relay:
        yield relay
    for blob in blobs:
        blob.close()


@contextlib.contextmanager
def offering_a_tar(folder: Path, layer: bytes) -> Iterator[tuple[Relay, str]]:
    """Yield a relay that offers the tar in `layer` under the digest of CONTENT."""
    upstream = Upstream({digest_of(layer): layer})
    blob = Blob(folder, digest_of(layer), len(layer))
    offer = Offer(IMAGE, KIND, MANIFEST, (blob,), {DIGEST: blob})
    with Relay(offer, upstream.connect, lambda _: None) as relay:
        yield relay, blob_path(relay)
    blob.close()


def get(relay: Relay, path: str, method: str = "GET", **headers: str) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection(relay.name.registry, timeout=240)
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def blob_path(relay: Relay, digest: str = DIGEST) -> str:
    return f"/v2/{relay.name.repository}/blobs/{digest}"


def test_whoever_knows_the_path_gets_the_manifest_and_the_blobs(tmp_path: Path) -> None:
    with relaying(tmp_path, Upstream({DIGEST: CONTENT}), [DIGEST]) as relay:
        status, headers, body = get(relay, f"/v2/{relay.name.repository}/manifests/{IMAGE.digest}")
        assert (status, headers["Content-Type"], body) == (200, KIND, MANIFEST)
        assert headers["Docker-Content-Digest"] == IMAGE.digest == relay.name.digest
        assert get(relay, blob_path(relay))[2] == CONTENT
        status, headers, body = get(relay, blob_path(relay), "HEAD")
        assert (status, headers["Content-Length"], body) == (200, str(len(CONTENT)), b"")
        assert get(relay, "/v2/")[0] == 200
        assert is_relays(relay.name)


@pytest.mark.parametrize("path", [
    "/v2/nvidia/tensorflow/blobs/{digest}", "/v2/ngcdl-{zeros}/nvidia/tensorflow/blobs/{digest}",
    "/v2/ngcdl-{zeros}/nvidia/tensorflow/manifests/{digest}", "/v2/_catalog", "/", "/v2/ngcdl-/../blobs/{digest}",
])  # fmt: skip
def test_nobody_else_gets_anything(tmp_path: Path, path: str) -> None:
    with relaying(tmp_path, Upstream({DIGEST: CONTENT}), [DIGEST]) as relay:
        assert get(relay, path.format(digest=DIGEST, zeros="0" * 32))[0] == 404


def test_two_relays_have_different_paths(tmp_path: Path) -> None:
    names = set()
    for _ in range(2):
        with relaying(tmp_path, Upstream({DIGEST: CONTENT}), [DIGEST]) as relay:
            names.add(relay.name.repository)
    assert len(names) == 2


@pytest.mark.parametrize(("asked", "start"), [("bytes=4000000-", 4_000_000), ("bytes=1-", 1), ("bytes=9000000-", 0)])
def test_an_engine_that_goes_on_gets_the_rest(tmp_path: Path, asked: str, start: int) -> None:
    with relaying(tmp_path, Upstream({DIGEST: CONTENT}), [DIGEST]) as relay:
        status, headers, body = get(relay, blob_path(relay), Range=asked)
        assert (status, body) == (206 if start else 200, CONTENT[start:])
        assert headers["Content-Range"] == (f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}" if start else None)


def test_bytes_are_handed_on_before_the_rest_has_come(tmp_path: Path) -> None:
    upstream = Upstream({DIGEST: CONTENT}, {DIGEST: threading.Event()})
    with relaying(tmp_path, upstream, [DIGEST]) as relay:
        connection = http.client.HTTPConnection(relay.name.registry, timeout=240)
        with contextlib.closing(connection):
            connection.request("GET", blob_path(relay))
            answer = connection.getresponse()
            assert answer.read(100_000) == CONTENT[:100_000]
            assert not upstream.gates[DIGEST].is_set()
            upstream.gates[DIGEST].set()
            assert answer.read() == CONTENT[100_000:]


def test_what_the_engine_asks_for_goes_before_what_is_fetched_ahead(tmp_path: Path) -> None:
    contents = {digest_of(text): text for text in (b"a" * 200_000, b"b", b"c", b"d")}
    first, *rest = contents
    upstream = Upstream(contents, {first: threading.Event()})
    with relaying(tmp_path, upstream, list(contents)) as relay:
        assert upstream.was_asked.wait(240)
        assert relay.want(rest[2]) is not None
        upstream.gates[first].set()
        assert get(relay, blob_path(relay, rest[1]))[2] == b"c"
        assert upstream.asked[:2] == [first, rest[2]]


def test_as_many_connections_are_made_as_are_asked_for(tmp_path: Path) -> None:
    contents = {digest_of(content): content for content in (bytes([n]) * 200_000 for n in range(9))}
    gate = threading.Event()
    upstream = Upstream(contents, dict.fromkeys(contents, gate))
    with relaying(tmp_path, upstream, list(contents), connections=3) as relay:
        until(lambda: len(upstream.asked) == 3)
        gate.set()
        for digest, content in contents.items():
            assert get(relay, blob_path(relay, digest))[2] == content
    assert upstream.connections == 3
    assert sorted(upstream.asked) == sorted(contents)


def test_after_its_end_no_connection_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ngcdl.pulling.relay._APART_SECONDS", 60)
    upstream, before = Upstream({DIGEST: CONTENT}), threading.active_count()
    with relaying(tmp_path, upstream, [DIGEST], connections=3) as relay:
        assert get(relay, blob_path(relay))[2] == CONTENT
    until(lambda: threading.active_count() <= before)  # a thread that was counted before may have ended
    assert upstream.connections == 1


def test_when_the_registry_fails_the_engine_gets_nothing_more(tmp_path: Path) -> None:
    missing = digest_of(b"nowhere")
    with relaying(tmp_path, Upstream({DIGEST: CONTENT}), [missing, DIGEST]) as relay:
        with contextlib.suppress(http.client.HTTPException):  # cut, if the answer had already begun
            assert get(relay, blob_path(relay, missing))[0] == 404
        assert isinstance(relay.failure, BlobMissing)
        assert get(relay, blob_path(relay))[0] == 404
        assert relay.came_bytes == 0


def test_tls_is_answered_as_what_it_is_not(tmp_path: Path) -> None:
    with relaying(tmp_path, Upstream({DIGEST: CONTENT}), [DIGEST]) as relay:
        host, _, port = relay.name.registry.partition(":")
        with socket.create_connection((host, int(port)), timeout=240) as line:
            line.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")  # a ClientHello without a line end
            assert line.recv(100).startswith(b"HTTP/1.0 400")


def test_after_its_end_nobody_listens(tmp_path: Path) -> None:
    with relaying(tmp_path, Upstream({DIGEST: CONTENT}), [DIGEST]) as relay:
        host, _, port = relay.name.registry.partition(":")
    with silent_port(host, int(port)), pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=240)


def test_a_tar_is_given_from_its_beginning_or_not_at_all(tmp_path: Path) -> None:
    layer = gzip.compress(CONTENT, 1)
    with offering_a_tar(tmp_path, layer) as (relay, path):
        for asked in ({}, {"Range": "bytes=0-"}):
            status, headers, body = get(relay, path, **asked)
            assert (status, body == CONTENT) == (200, True)
            assert (headers["Content-Length"], headers["Docker-Content-Digest"]) == (None, DIGEST)
        assert relay.lead.size_bytes(DIGEST) == len(CONTENT)
        assert get(relay, path, "HEAD")[::2] == (200, b"")
        assert get(relay, path, Range="bytes=1000-")[::2] == (200, b""), "Docker would not read what is no 206"
        assert get(relay, blob_path(relay, digest_of(layer)))[2] == layer


def test_a_layer_that_is_no_gzip_ends_the_relay_and_no_tar_looks_whole(tmp_path: Path) -> None:
    with offering_a_tar(tmp_path, gzip.compress(CONTENT, 1)[:-8] + bytes(8)) as (relay, path):
        with pytest.raises(http.client.IncompleteRead):
            get(relay, path)
        assert relay.is_no_gzip
        assert relay.lead.size_bytes(DIGEST) is None
        assert get(relay, blob_path(relay, digest_of(b"more")))[0] == 404
