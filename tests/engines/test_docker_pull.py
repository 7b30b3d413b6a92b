"""The pull's loop over the daemon's stream: which errors are retried, and which digest counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import docker.errors
import pytest

from ngcdl.engines.docker.pull import TRIES, pull
from ngcdl.engines.values import PullEvent
from ngcdl.errors import DigestMismatch, DiskFull, EngineRefused, NgcdlError, RateLimited, RegistryAnswer
from ngcdl.errors import RegistryUnreachable as Unreachable
from ngcdl.spec import ImageRef

DIGEST, OTHER = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
IMAGE = ImageRef.parse("tensorflow:18.01-py2", "nvcr.io")
GOOD = [{"status": "Pulling from nvidia/tensorflow", "id": "18.01-py2"}, {"status": f"Digest: {DIGEST}"}]


@dataclass
class Daemon:
    """Answers each pull with the next stream; `has` lists the digests present afterwards."""

    streams: list[list[Mapping[str, Any]]]
    has: tuple[str, ...] = (DIGEST,)
    asked: list[dict[str, Any]] = field(default_factory=list)

    def pull(self, name: str, **options: Any) -> Iterator[Mapping[str, Any]]:
        self.asked.append({"name": name, **options})
        return iter(self.streams[min(len(self.asked), len(self.streams)) - 1])

    def inspect_image(self, name: str) -> dict[str, Any]:
        if name.partition("@")[2] not in self.has:
            raise docker.errors.ImageNotFound(name)
        return {}


def _pulled(daemon: Daemon, image: ImageRef = IMAGE) -> tuple[str, list[float], list[PullEvent]]:
    waits: list[float] = []
    events: list[PullEvent] = []
    return pull(daemon, image, None, events.append, waits.append), waits, events


def _error(text: str) -> Iterable[Mapping[str, Any]]:
    return [{"error": text, "errorDetail": {"message": text}}]


def test_a_stream_that_ends_well_gives_its_digest() -> None:
    daemon = Daemon([GOOD])
    assert _pulled(daemon)[:2] == (DIGEST, [])
    # Empty, so that the SDK looks for no credentials itself.
    assert daemon.asked[0]["auth_config"] == {}
    assert daemon.asked[0]["tag"] == "18.01-py2"


@pytest.mark.parametrize("text", [
    "received unexpected HTTP status: 502 Bad Gateway", "toomanyrequests: slow down", "unexpected EOF",
    "Get https://nvcr.io/v2/: net/http: request canceled (Client.Timeout exceeded while awaiting headers)",
])  # fmt: skip
def test_what_passes_is_tried_again_after_longer_and_longer_waits(text: str) -> None:
    digest, waits, events = _pulled(Daemon([list(_error(text)), list(_error(text)), GOOD]))
    assert (digest, waits) == (DIGEST, [2.0, 4.0])
    assert "Trying again in 2 s (2 of 4)" in events[0].status


@pytest.mark.parametrize(("text", "kind"), [
    ("received unexpected HTTP status: 502 Bad Gateway", RegistryAnswer), ("toomanyrequests: slow down", RateLimited),
    ("Client.Timeout exceeded: net/http: request canceled", Unreachable),
])  # fmt: skip
def test_what_does_not_pass_is_given_up_after_four_tries(text: str, kind: type[NgcdlError]) -> None:
    daemon = Daemon([list(_error(text))])
    with pytest.raises(kind):
        _pulled(daemon)
    assert len(daemon.asked) == TRIES


@pytest.mark.parametrize(("text", "kind"), [
    ("unauthorized: authentication required", EngineRefused), ("denied: Access Denied", EngineRefused),
    ("manifest unknown: manifest unknown", EngineRefused), ("no space left on device", DiskFull),
    ("filesystem layer verification failed for digest sha256:aa", DigestMismatch),
    ("dial tcp 127.0.0.1:1: connect: connection refused", Unreachable),
    ("dial tcp: lookup nvcr.io: no such host", Unreachable),
    ("error parsing HTTP 200 response body: invalid character '<' looking for beginning of value", RegistryAnswer),
])  # fmt: skip
def test_what_will_not_change_is_not_tried_again(text: str, kind: type[NgcdlError]) -> None:
    daemon = Daemon([list(_error(text))])
    with pytest.raises(kind):
        _pulled(daemon)
    assert len(daemon.asked) == 1


def test_what_the_engine_tried_again_by_itself_is_not_tried_four_times_more() -> None:
    daemon = Daemon([[{"status": "Retrying in 5 seconds", "id": "9b08e8a0f76b"}, *_error("unexpected EOF")]])
    with pytest.raises(RegistryAnswer):
        _pulled(daemon)
    assert len(daemon.asked) == 1


def test_a_digest_that_the_engine_has_not_afterwards_is_refused() -> None:
    with pytest.raises(DigestMismatch):
        _pulled(Daemon([GOOD], has=(OTHER,)))


def test_another_digest_than_the_one_asked_for_is_refused() -> None:
    with pytest.raises(DigestMismatch):
        _pulled(Daemon([GOOD]), ImageRef.parse(f"tensorflow@{OTHER}", "nvcr.io"))


def test_a_stream_without_a_digest_is_no_pull() -> None:
    with pytest.raises(NgcdlError, match="without naming a digest"):
        _pulled(Daemon([GOOD[:1]]))
