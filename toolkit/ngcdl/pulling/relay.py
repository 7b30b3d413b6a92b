"""A registry on loopback that serves one image, and passes its layers on while they are still arriving.

The engine pulls the layers from the relay, by digest, and verifies them as always. It gains what Docker's own download
lacks: layers that survive a killed client, tokens renewed during a pull, patience with 429 and 5xx, and one download
for two pulls. A path with 128 random bits serves as the password: other users of this machine can't guess it, and no
other path leads anywhere. Nothing is logged, and the relay does not get the key, which stays in `registry.client`.

dockerd accepts plain http from 127.0.0.0/8 by default:
https://docs.docker.com/reference/cli/dockerd/#insecure-registries

docs/performance.md compares a pull by relay with `docker pull`. The relay uses six connections, because the rate of
each is often limited separately: at 12 MB/s each, a pull of 302 MB over 3, 4, 6 and 8 connections took 1.10, 0.94, 0.79
and 0.73 times as long as Docker's (Docker 26.1, 2 cores, 2026-11-21). Eight gain little more, and the registry has
other clients to serve.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Self

from ngcdl.pulling import relay_server
from ngcdl.pulling.blobs import Blob, Stopped
from ngcdl.pulling.inflate import Lead, NoGzip, lead_bytes
from ngcdl.pulling.offer import Offer
from ngcdl.spec import ImageRef

if TYPE_CHECKING:
    from ngcdl.registry.client import Registry
    from ngcdl.registry.wire import Stream

CONNECTIONS = 6
# Connections start one after another: on a fast line the lowest layer arrives first, and the engine starts with it.
_APART_SECONDS = 0.2
_SHOWN_SECONDS = 0.1
_LOOK_SECONDS = 0.05  # between the server's checks for shutdown
_OWN = re.compile(r"ngcdl-[0-9a-f]{32}/")


def is_relays(name: ImageRef) -> bool:
    """Return whether `name` is a relay's, running or past."""
    return name.registry.startswith("127.0.0.1:") and bool(_OWN.match(name.repository))


class Relay:
    """Serves within a `with` block. Several threads call `grown` with each blob as it arrives. `connect` is called for
    each of them: a Registry serves one thread.

    The blobs in `ahead` (None: all) are fetched before the engine asks for them, `connections` at a time; the others
    when it asks. `failure` is the error that ended the relay, from the registry, the disk, or a layer that is not gzip;
    after that the engine gets nothing more. `lead` holds tars back, and must be told what the engine has unpacked.
    """

    def __init__(
        self,
        offer: Offer,
        connect: Callable[[], Registry],
        grown: Callable[[Blob], object],
        *,
        ahead: Iterable[Blob] | None = None,
        connections: int = CONNECTIONS,
    ) -> None:
        self.failure: Exception | None = None
        self.was_asked = False
        self.offer, self._connect, self._grown, self._connections = offer, connect, grown, connections
        self._waiting = deque(offer.blobs if ahead is None else ahead)
        self._wanted: deque[Blob] = deque()
        self._begun: set[str] = set()  # fetched, being fetched, or queued because the engine asked
        self.lead = Lead(offer.unpacked, lead_bytes())
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._token = f"ngcdl-{secrets.token_hex(16)}"
        self._server = relay_server.server(self)

    @property
    def name(self) -> ImageRef:
        """The name for the engine to pull."""
        port = self._server.server_port
        image = self.offer.image
        return ImageRef(f"127.0.0.1:{port}", f"{self._token}/{image.repository}", None, image.digest)

    @property
    def is_no_gzip(self) -> bool:
        """Whether the relay ended because a layer is not gzip. The engine may accept that layer as it is."""
        return isinstance(self.failure, NoGzip)

    @property
    def came_bytes(self) -> int:
        """The number of bytes of blobs that the registry has sent to this process."""
        return sum(blob.came_bytes for blob in self.offer.blobs)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(_LOOK_SECONDS,), daemon=True).start()
        for number in range(self._connections):
            threading.Thread(target=self._fetch, args=(number * _APART_SECONDS,), daemon=True).start()
        return self

    def __exit__(self, *_about: object) -> None:
        """Stop. The threads end on their own, at the latest when their read from the registry times out."""
        self._stopping.set()
        self.lead.stop()
        with self._changed:
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    # -- fetching ---------------------------------------------------------------------------------------------------

    def _fetch(self, in_seconds: float) -> None:
        if self._stopping.wait(in_seconds):
            return
        try:
            with contextlib.closing(self._connect()) as source:
                while True:
                    self._fill(self._next(), source)
        except Stopped:
            return
        except Exception as error:  # the thread ends here; `failure` passes the error to whoever waits
            self.fail(error)

    def _next(self) -> Blob:
        """Wait for a blob to fetch and return it. Raise Stopped at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._wanted or self._waiting or self._is_over())
            if self._is_over():
                raise Stopped
            blob = (self._wanted or self._waiting).popleft()
            self._begun.add(blob.digest)
            return blob

    def _is_over(self) -> bool:
        return self._stopping.is_set() or self.failure is not None

    def _fill(self, blob: Blob, source: Registry) -> None:
        shown = 0.0

        def grown() -> None:
            nonlocal shown
            if self._is_over():
                raise Stopped
            if time.monotonic() - shown > _SHOWN_SECONDS:
                shown = time.monotonic()
                self._grown(blob)

        def open_at(start: int) -> Stream:
            return source.open(self.offer.image.repository, blob.digest, start)

        grown()
        blob.fill(open_at, self._stopping.wait, grown)
        self._grown(blob)

    def fail(self, error: Exception) -> None:
        """Stop serving, because of `error`."""
        with self._changed:
            self.failure = self.failure or error
            self._changed.notify_all()
        self.lead.stop()
        for blob in self.offer.blobs:
            if not blob.is_whole:
                blob.fail(error)

    def want(self, digest: str) -> Blob | None:
        """Return a blob, and fetch it next if it is not here. None if the image has no such blob or fetching ended."""
        for blob in self.offer.blobs:
            if blob.digest == digest and (blob.is_whole or not self._is_over()):
                with self._changed:
                    if digest not in self._begun:
                        with contextlib.suppress(ValueError):
                            self._waiting.remove(blob)
                        self._wanted.append(blob)
                        self._begun.add(digest)
                        self._changed.notify()
                return blob
        return None

    def manifest(self, path: str) -> tuple[str, bytes] | None:
        self.was_asked = True
        return (self.offer.media_type, self.offer.manifest) if path == self._path("manifests") else None

    def blob(self, path: str) -> tuple[Blob, str] | None:
        """Return the requested blob, and the digest in the request: the blob's or its tar's. None for another path."""
        folder, _, digest = path.rpartition("/")
        if folder != self._path("blobs").rpartition("/")[0]:
            return None
        layer = self.offer.unpacked.get(digest)
        blob = self.want(layer.digest if layer else digest)
        return (blob, digest) if blob else None

    def _path(self, kind: str) -> str:
        return f"/v2/{self.name.repository}/{kind}/{self.offer.image.digest}"
