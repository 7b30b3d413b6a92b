"""Fetches an image into a file, for a machine that can't reach the registry: `docker load -i FILE` there.

The file is an OCI image layout in a tar, with a manifest.json for engines before Docker 25, as `docker save` writes it:
https://github.com/opencontainers/image-spec/blob/main/image-layout.md
https://docs.docker.com/reference/cli/docker/image/save/
The same image gives the same bytes. No engine is needed. What has arrived is kept in blobs, as during a pull.
Every blob is hashed while it is copied.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tarfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO

from ngcdl import tars, whole
from ngcdl.engines.values import WAITING, ShowPull
from ngcdl.errors import DigestMismatch, DiskFull, NgcdlError, NotWritten, RegistryAnswer
from ngcdl.figures import size
from ngcdl.frozen import dataclass
from ngcdl.pulling import blob_folder, disk_space
from ngcdl.pulling.blobs import Blob, FolderTrouble
from ngcdl.pulling.relay import CONNECTIONS
from ngcdl.pulling.waits import Waits
from ngcdl.registry.client import Registry
from ngcdl.registry.key import Credential
from ngcdl.registry.manifest import INDEX_TYPES, Document, Layer, Manifest
from ngcdl.spec import ImageRef

_LOOK_SECONDS = 0.5  # between two looks for a Ctrl-C


def loaded_name(ref: ImageRef) -> str:
    """Return the name under which an engine has the image once it has loaded the file. An engine takes no digest there:
    an image without a tag gets the digest's beginning as its tag."""
    return f"{ref.name}:{ref.tag or str(ref.digest).replace(':', '-')[:19]}"


@dataclass(frozen=True)
class Saving:
    """One image, on its way into a file. `folder` is for the blobs. `sleep` replaces real waits, in tests."""

    ref: ImageRef
    path: Path
    credential: Credential | None
    folder: Path
    show: ShowPull
    say: Callable[[str], None]
    sleep: Callable[[float], None] | None = None

    def save(self, platform: tuple[str, str]) -> str:
        """Write the image of `platform` (os, architecture), and return its digest.

        Raise RegistryError, DigestMismatch, DiskFull or NotWritten; nothing is then at `path`."""
        with contextlib.ExitStack() as stack:
            # before anything is asked: a mistyped folder is told at once, not after 20 GB
            with _new(self.path) as draft:
                with self._registry() as registry:
                    image, document = registry.described(self.ref, platform)
                    parts = self._parts(registry, image, document)
                self._check_room(parts)
                screen = threading.Lock()
                waits = Waits(self.say, screen)
                try:
                    blobs = [Blob(self.folder, part.digest, part.size_bytes, waits) for part in parts]
                    for blob in blobs:
                        stack.callback(blob.close)
                    self._fetch(blobs, screen)
                except FolderTrouble as trouble:
                    raise _not_kept(self.folder, trouble) from trouble
                self.say(f"writing {self.path}")
                _write(draft, loaded_name(self.ref), image, document, blobs)
            for blob in blobs:
                blob.close(keep=False)
        blob_folder.sweep(self.folder)
        return image.digest

    def _registry(self, sleep: Callable[[float], object] = time.sleep) -> Registry:
        return Registry(self.ref.registry, self.credential, sleep=self.sleep or sleep)

    def _parts(self, registry: Registry, image: Manifest, document: Document) -> tuple[Layer, ...]:
        """Return the configuration, first, and the layers, each once."""
        if image.is_schema_1:
            said = f"{self.ref} has a manifest of schema 1, of before 2017, which no file can hold."
            raise RegistryAnswer(self.ref.registry, said)
        return tuple(dict.fromkeys((registry.config_blob(document), *image.layers)))

    def _check_room(self, parts: Sequence[Layer]) -> None:
        """Raise DiskFull before a byte is fetched if the blobs, or the file beside them, have no room."""
        whole = sum(part.size_bytes for part in parts)
        here = sum(min(blob_folder.here_bytes(self.folder, part.digest), part.size_bytes) for part in parts)
        beside = self.path.parent
        blobs, file = (disk_space.file_system_of(one, as_root=False) for one in (self.folder, beside))
        is_one = blobs is not None and file is not None and blobs.device == file.device
        for where, room, need in ((self.folder, blobs, whole - here + whole * is_one), (beside, file, whole)):
            if room is not None and room.free_bytes < need:
                needs = f"{self.ref} needs {size(need)} there; {size(room.free_bytes)} are free"
                raise DiskFull(str(where), needs, is_engines=False)
        kept = f", of which {size(here)} are here already" if here else ""
        self.say(f"{self.ref}: {size(whole)}{kept}; Ctrl-C keeps what has arrived.")

    def _fetch(self, blobs: Sequence[Blob], screen: threading.Lock) -> None:
        """Complete all blobs, over several connections. Raise the first error at once, as Ctrl-C: a connection may wait
        for minutes, if the registry asks for that, or until its read times out. It ends on its own."""
        waiting, stopping = deque(blobs), threading.Event()
        ends: SimpleQueue[Exception | None] = SimpleQueue()
        for blob in blobs[1:]:  # only some are fetched at a time, and the total is that of all
            self.show(replace(blob.event(), status=WAITING))

        def work() -> None:
            try:
                with self._registry(stopping.wait) as registry, contextlib.suppress(IndexError):
                    while True:
                        fill(waiting.popleft(), registry)
            except Exception as error:  # the thread ends here
                ends.put(error)
            else:
                ends.put(None)

        def fill(blob: Blob, registry: Registry) -> None:
            def grown() -> None:
                if blob is not blobs[0] and not stopping.is_set():  # the configuration is no layer
                    event = blob.event()
                    with screen:  # nothing is unpacked: a layer that is here is done
                        self.show(replace(event, status="Pull complete") if blob.is_whole else event)

            sleep = self.sleep or stopping.wait
            blob.fill(lambda start: registry.open(self.ref.repository, blob.digest, start), sleep, grown)
            grown()

        connections = min(CONNECTIONS, len(blobs))
        try:
            for _ in range(connections):
                threading.Thread(target=work, daemon=True).start()
            for _ in range(connections):
                if (error := _got(ends)) is not None:
                    raise error
        finally:
            waiting.clear()
            stopping.set()


def _got(ends: SimpleQueue[Exception | None]) -> Exception | None:
    """Wait for the next one. With a limit: a Ctrl-C in the moment before a wait is noticed only after it."""
    while True:
        with contextlib.suppress(Empty):
            return ends.get(timeout=_LOOK_SECONDS)


# -- the file -------------------------------------------------------------------------------------------------------


def _write(draft: IO[bytes], name: str, image: Manifest, document: Document, blobs: Sequence[Blob]) -> None:
    """Write the tar. Raise DigestMismatch if a blob that an earlier process left is damaged; that one is removed."""
    about = {
        "mediaType": document.kind,
        "digest": document.digest,
        "size": len(document.body),
        # the name under which an engine with containerd's image store loads it:
        # https://github.com/containerd/containerd/blob/main/core/images/annotations.go
        "annotations": {"io.containerd.image.name": name},
    }
    index = {"schemaVersion": 2, "mediaType": INDEX_TYPES[0], "manifests": [about]}
    for_older = {
        "Config": _member(str(image.config_digest)),
        "RepoTags": [name],
        "Layers": [_member(layer.digest) for layer in image.layers],
    }
    with tarfile.open(fileobj=draft, mode="w") as tar:
        tars.add(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        tars.add(tar, "index.json", json.dumps(index).encode())
        tars.add(tar, "manifest.json", json.dumps([for_older]).encode())
        tars.add(tar, _member(document.digest), document.body)
        for blob in blobs:
            algorithm, _, expected = blob.digest.partition(":")
            for descriptor, *_range in blob.arriving(0):  # all of it is here; its name may be gone
                with Path(f"/proc/self/fd/{descriptor}").open("rb") as file:
                    found = tars.add_hashed(tar, _member(blob.digest), file, blob.size_bytes, algorithm)
                if found != expected:
                    blob.close(keep=False)
                    raise DigestMismatch(f"the layer {blob.digest}, kept here since an earlier pull, is damaged")


def _member(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


@contextlib.contextmanager
def _new(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that is at `path` after the block. Raise DiskFull, or NotWritten, at once if something is there."""
    try:
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, "it is there already")
        with whole.written(path, 0o666, is_new=True) as file:
            yield file
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFull(str(path.parent), f"{path} could not be written", is_engines=False) from error
        raise NotWritten(path, error.strerror or str(error)) from error


def _not_kept(folder: Path, trouble: FolderTrouble) -> NgcdlError:
    error = trouble.__cause__
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return DiskFull(str(folder), "a layer could not be kept there", is_engines=False)
    elsewhere = "Layers are kept there until the file is whole. To keep them elsewhere:\n    export XDG_CACHE_HOME=DIR"
    return NotWritten(folder, str(trouble).removeprefix(f"{folder}: "), elsewhere)
