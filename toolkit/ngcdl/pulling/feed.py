"""Brings an image's layers to the engine by way of this host, so that they survive a cut line or a killed client.

What arrives is kept in blobs (`blobs`) and passed on by a relay (`relay`). First the engine pulls from the relay:
unpacked layers if it accepts them (`offer`), else the originals. Then the engine pulls the image's real name, finds the
layers already there and fetches a few KB, so names, digests and trust remain the registry's. Afterwards the relay's
name and the blobs are removed. If any of this is impossible, the engine pulls everything itself, as with `docker pull`.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from ngcdl import figures
from ngcdl.engines.base import Engine
from ngcdl.engines.values import WAITING, LayerStore, PullEvent, ShowPull, short_id
from ngcdl.errors import (
    BadOption,
    DigestMismatch,
    DiskFull,
    EngineError,
    EngineRefused,
    NgcdlError,
    RateLimited,
    RegistryAnswer,
    RegistryUnreachable,
)
from ngcdl.preflight.image import estimated_unpacked
from ngcdl.pulling import blob_folder, disk_space, given_as_tars, offer
from ngcdl.pulling.blobs import PATIENCE_SECONDS, Blob, FolderTrouble
from ngcdl.pulling.pull_lock import PullLock, left_behind
from ngcdl.pulling.relay import Relay
from ngcdl.pulling.waits import Waits
from ngcdl.registry import manifest
from ngcdl.registry.client import Registry
from ngcdl.registry.key import Credential
from ngcdl.registry.manifest import Document, Layer, Manifest
from ngcdl.registry.wire import RETRY_AFTER_LIMIT_SECONDS
from ngcdl.spec import ImageRef

WAY = "NGCDL_PULL"
WAYS = ("relay", "engine")
_LOOK_SECONDS = 0.2
# After these errors the engine pulls by itself: it may have another route to the registry, and longer time limits.
_UNHEARD = (RegistryUnreachable, RegistryAnswer, RateLimited)
# The events shown from the engine's pull from the relay; bytes are counted where they arrive.
_SHOWN = ("Pulling fs layer", "Extracting", "Pull complete", "Already exists")


class _ByItself(Exception):
    """Why the engine must pull by itself. Not for users."""


class _Ended(Exception):
    """The relay has failed, and will send nothing more. Not for users."""


@dataclass
class Feed:
    """Supports one pull. Use it in a `with`, with bring() before the engine's own pull and tidy() after it.

    Without tidy(), what has arrived is kept for the next pull.
    """

    engine: Engine
    ref: ImageRef
    credential: Credential | None
    folder: Path  # for the blobs
    show: ShowPull
    say: Callable[[str], None]
    sleep: Callable[[float], None] = time.sleep
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _blobs: list[Blob] = field(default_factory=list)
    _about: Blob | None = None  # the image's configuration
    _turn: PullLock | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    patient: Waits = field(init=False)

    def __post_init__(self) -> None:
        self.patient = Waits(self.say, self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_about: object) -> None:
        self._stack.close()
        self._let_go()

    def bring(self) -> None:
        """Bring the layers to the engine, or say why the engine has to pull them by itself.

        Raise what would end any pull: DiskFull before a byte is fetched, a refusal of the registry, or a connection
        that fails for too long. What has arrived is kept.
        """
        try:
            self._bring()
        except _ByItself as why:
            self.say(f"The engine pulls by itself: {why}.")
        except FolderTrouble as trouble:
            self._drop()  # the engine may need the space that they took
            self.say(f"The engine pulls by itself: layers can't be kept in {trouble}.")

    def tidy(self) -> None:
        """Remove what this pull and earlier ones left behind. Call it once the engine has the image's real name."""
        self._drop()
        if self._turn is None:
            return
        # If the engine goes away now, the next pull finds the leftover names; the image is there all the same.
        with contextlib.suppress(NgcdlError, OSError):
            for name in self._turn.names():
                self.engine.untag(name)
            self._turn.forget()
            for name in left_behind(self.folder, self.engine.identity):
                self.engine.untag(name)
        blob_folder.sweep(self.folder)

    def _drop(self) -> None:
        for blob in self._blobs:
            blob.close(keep=False)

    def _let_go(self) -> None:
        """Close all blobs, and keep what has arrived of them."""
        for blob in self._blobs:
            blob.close()
        self._blobs.clear()

    def _bring(self) -> None:
        way = os.environ.get(WAY) or "relay"
        if way not in WAYS:
            raise BadOption(f"{WAY}={way}: must be one of {', '.join(WAYS)}.")
        if way == "engine":
            raise _ByItself(f"{WAY}=engine")
        try:
            store = self.engine.layer_store()
        except EngineRefused as error:  # a proxy in front of it may forbid this query, but allow pulls
            raise _ByItself(f"it does not list its images ({error.message.rstrip('.')})") from error
        if store.foreign:
            raise _ByItself(store.foreign)
        with Registry(self.ref.registry, self.credential, sleep=self.sleep) as registry:
            image, document = self._look(registry, store)
            try:
                turn = self._stack.enter_context(PullLock(self.folder, image.digest, self.engine.identity))
                if not turn.take():
                    self._wait(turn, image)
                    store = self.engine.layer_store()
            except OSError as error:
                raise _ByItself(f"layers can't be kept in {self.folder}: {error.strerror}") from error
            self._turn = turn
            for is_last in (False, True):
                relay = self._offer(registry, image, document, store, is_last=is_last)
                if relay is None:
                    return
                with relay:
                    if self._through(relay, turn, is_last=is_last):
                        return
                self._let_go()

    def _look(self, registry: Registry, store: LayerStore) -> tuple[Manifest, Document]:
        try:
            image, document = self._described(registry, store)
        except _UNHEARD as error:
            raise _unheard(error) from error
        if image.is_schema_1:
            raise _ByItself("the image's manifest has schema 1")
        return image, document

    def _described(self, registry: Registry, store: LayerStore) -> tuple[Manifest, Document]:
        """Ask the registry about the image; once more if it asks for a wait that the registry's client leaves to us."""
        try:
            return registry.described(self.ref, store.platform)
        except RateLimited as error:
            if error.seconds is None or not RETRY_AFTER_LIMIT_SECONDS < error.seconds <= PATIENCE_SECONDS:
                raise
            self.patient(error, error.seconds)
            self.sleep(error.seconds)
        return registry.described(self.ref, store.platform)

    def _wait(self, turn: PullLock, image: Manifest) -> None:
        """Show the progress of another ngcdl with the same image, until that process is done or gone."""
        self.say("Another ngcdl is pulling this image to this engine: waiting for it.")
        while not turn.take():
            for layer in image.layers:
                here = min(blob_folder.here_bytes(self.folder, layer.digest), layer.size_bytes)
                name = short_id(layer.digest)
                if here:
                    self._show(PullEvent(name, "Downloading", here, layer.size_bytes))
                else:  # without its size: the engine may have it, and then it is not fetched
                    self._show(PullEvent(name, WAITING))
            time.sleep(_LOOK_SECONDS)

    def _offer(
        self, registry: Registry, image: Manifest, document: Document, store: LayerStore, *, is_last: bool
    ) -> Relay | None:
        """Return the relay, None if the engine has all layers. Raise DiskFull."""
        config, described = self._config(registry, document)
        holds = offer.contents(described, len(image.layers))
        there = store.has(holds) if holds else 0
        missing = {layer.digest for layer in image.layers[there:]}
        sizes = {layer.digest: layer.size_bytes for layer in image.layers}
        # The engine knows each of its layers by the digest under which it got that layer.
        known = given_as_tars.read(self.folder.parent, self.engine.identity)
        as_tars = [content in known for content in (holds or ())[:there]]
        if not missing and (config.digest in store.chains or not any(as_tars)):
            self._blobs += self._left(sizes)  # for tidy() to remove
            return None
        form = self._form(sizes, missing, store, is_told=is_last)
        blobs = [Blob(self.folder, digest, size, self.patient) for digest, size in sizes.items()]
        self._blobs += blobs
        pinned = ImageRef(self.ref.registry, self.ref.repository, None, image.digest)
        offered = offer.packed(pinned, document, (config, *blobs))
        if holds:
            takes = not is_last and not store.keeps_packed and form is disk_space.LayerForm.UNPACKED
            as_tars += [takes] * (len(holds) - there)
            offered = offer.unpacked(offered, document.tree, holds, as_tars)
        ahead = [blob for blob in offered.blobs if blob.digest in missing]
        for blob in ahead:  # only some are fetched at a time, and the total is that of all
            self._show(replace(blob.event(), status=WAITING))
        return Relay(offered, lambda: Registry(self.ref.registry, self.credential), self._grown, ahead=ahead)

    def _form(
        self, sizes: Mapping[str, int], missing: Collection[str], store: LayerStore, *, is_told: bool
    ) -> disk_space.LayerForm:
        """Return the form in which there is room for the `missing` layers; unless `is_told`, say what they need. Raise
        DiskFull."""
        whole = sum(sizes[digest] for digest in missing)
        here = sum(blob_folder.here_bytes(self.folder, digest) for digest in missing)
        need = disk_space.Need(str(self.ref), whole, here, estimated_unpacked(whole) or 0)
        form = disk_space.judge(need, store.folder, self.folder, self.say)
        if form is disk_space.LayerForm.NOT_HERE:
            self._blobs += self._left(sizes)
            self._drop()  # the engine may need the space that they took
            raise _ByItself(f"{self.folder} has no room for the layers in transit")
        if not is_told and (line := disk_space.announced(need, store.folder)):
            self.say(line)
        if here and not is_told:
            self.say(f"{figures.size(here)} of {figures.size(whole)} are here already.")
        return form

    def _config(self, registry: Registry, document: Document) -> tuple[Blob, dict[str, Any]]:
        """Return the image's configuration, both as a blob, which the engine will fetch, and parsed."""
        about = registry.config_blob(document)
        blob = self._whole(registry, about)
        if manifest.digest(blob.read(), about.digest) != about.digest:  # damaged here, as by a power cut: try once more
            blob.close(keep=False)
            blob = self._whole(registry, about)
        try:
            return blob, manifest.parse(blob.read())
        except ValueError as error:
            raise RegistryAnswer(self.ref.registry, f"a configuration that can't be read: {error}.") from error

    def _whole(self, registry: Registry, about: Layer) -> Blob:
        blob = self._about = Blob(self.folder, about.digest, about.size_bytes, self.patient)
        self._blobs.append(blob)
        try:
            blob.fill(lambda start: registry.open(self.ref.repository, about.digest, start), self.sleep)
        except _UNHEARD as error:
            raise _unheard(error) from error
        return blob

    def _left(self, sizes: Mapping[str, int]) -> list[Blob]:
        """Open the blobs of these layers that earlier pulls, such as a killed client's, left on this host."""
        some = [digest for digest in sizes if blob_folder.here_bytes(self.folder, digest)]
        return [Blob(self.folder, digest, sizes[digest]) for digest in some]

    # -- the engine pulls from the relay ----------------------------------------------------------------------------

    def _through(self, relay: Relay, turn: PullLock, *, is_last: bool) -> bool:
        """Let the engine pull from `relay`. Return False if that fails, but may succeed with layers in another form."""
        try:
            turn.note(relay.name)
        except OSError as error:
            raise _ByItself(f"layers can't be kept in {self.folder}: {error.strerror}") from error
        tars = {short_id(content): content for content in relay.offer.unpacked}

        def show(event: PullEvent) -> None:
            if relay.failure is not None:
                raise _Ended
            if event.layer is not None and event.status in _SHOWN:
                content = tars.get(event.layer)
                self._show(self._as_layer(event, relay, content) if content else event)

        try:
            self.engine.pull(relay.name, show)
        except (_Ended, NgcdlError) as error:
            if relay.failure is not None and not relay.is_no_gzip:
                self._explain(relay)
            needs_less = isinstance(error, DiskFull) and bool(tars) and not is_last
            if isinstance(error, EngineError) and not isinstance(error, EngineRefused) and not needs_less:
                raise
            is_damaged = isinstance(error, DigestMismatch) and not tars
            if is_damaged:
                self._drop()  # the blobs were damaged on this host
            if is_last or not relay.was_asked or is_damaged:
                raise _ByItself(f"it can't take the layers from here ({error})") from error
            return False
        return True

    def _as_layer(self, event: PullEvent, relay: Relay, content: str) -> PullEvent:
        """Return a tar's event as an event of its layer. If the engine has unpacked the tar, let more be sent."""
        if event.status == "Pull complete":
            relay.lead.taken(content)
            given_as_tars.add(self.folder.parent, self.engine.identity, content)
        total_bytes = event.total_bytes or relay.lead.size_bytes(content)
        return replace(event, layer=short_id(relay.offer.unpacked[content].digest), total_bytes=total_bytes)

    def _explain(self, relay: Relay) -> None:
        """Raise the error that ended the relay, or _ByItself if this host could not reach the registry at all."""
        failure = relay.failure
        assert failure is not None  # the caller has checked
        if isinstance(failure, RegistryUnreachable) and not relay.came_bytes:
            raise _ByItself(f"from here {failure.message.rstrip('.')}") from failure
        if relay.came_bytes and isinstance(failure, NgcdlError) and not isinstance(failure, DigestMismatch):
            self.say("What arrived is kept: the next pull continues from there.")
        raise failure

    def _grown(self, blob: Blob) -> None:
        if blob is not self._about:  # the configuration is no layer
            self._show(blob.event())

    def _show(self, event: PullEvent) -> None:
        with self._lock:  # several threads show their progress on one screen
            self.show(event)


def _unheard(error: NgcdlError) -> _ByItself:
    return _ByItself(f"from here {error.message[0].lower()}{error.message[1:].rstrip('.')}")
