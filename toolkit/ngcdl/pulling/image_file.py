"""Fetches an image into a file, for a machine that can't reach the registry: `docker load -i FILE` there.

The file is an OCI image layout in a tar, with a manifest.json for engines before Docker 25, as `docker save` writes it:
https://github.com/opencontainers/image-spec/blob/main/image-layout.md
https://docs.docker.com/reference/cli/docker/image/save/
The same image gives the same bytes. No engine is needed. What has arrived is kept in blobs, as during a pull.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import tarfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from ngcdl.engines.values import PullEvent, ShowPull
from ngcdl.errors import DiskFull, NotWritten, RegistryAnswer
from ngcdl.pulling import disk_space
from ngcdl.pulling.blob_folder import here_bytes
from ngcdl.pulling.blobs import Blob, FolderTrouble
from ngcdl.pulling.relay import CONNECTIONS
from ngcdl.registry.client import Registry
from ngcdl.registry.key import Credential
from ngcdl.registry.manifest import INDEX_TYPES, Document, Layer, Manifest
from ngcdl.spec import ImageRef


def save(
    ref: ImageRef,
    platform: tuple[str, str],
    path: Path,
    credential: Credential | None,
    folder: Path,
    show: ShowPull,
    say: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Write the image of `platform` (os, architecture) to `path`, and return its digest. `folder` is for the blobs.

    Raise RegistryError, DiskFull or NotWritten; nothing is then at `path`."""
    if os.path.lexists(path):
        raise NotWritten(path, "it is there already")
    with Registry(ref.registry, credential, sleep=sleep) as registry:
        image, document = registry.described(ref, platform)
    if image.is_schema_1:
        raise RegistryAnswer(ref.registry, f"{ref} has a manifest of schema 1, of before 2017, which no file can hold.")
    parts = _parts(ref, image, document)
    _check_room(ref, parts, folder, path, say)
    with contextlib.ExitStack() as stack:
        try:
            blobs = [Blob(folder, part.digest, part.size_bytes, _patient(say)) for part in parts]
            for blob in blobs:
                stack.callback(blob.close)
            _fetch(ref, credential, blobs, lambda blob: _shown(blob, show) if blob is not blobs[0] else None, sleep)
        except FolderTrouble as trouble:
            raise NotWritten(folder, str(trouble)) from trouble
        say(f"writing {path}")
        _write(path, ref, image, document, blobs)
        for blob in blobs:
            blob.close(keep=False)
    return image.digest


def _parts(ref: ImageRef, image: Manifest, document: Document) -> tuple[Layer, ...]:
    """Return the configuration, first, and the layers, each once."""
    size = document.tree["config"].get("size")
    if image.config_digest is None or not isinstance(size, int):
        raise RegistryAnswer(ref.registry, "a manifest with a configuration that has no size.")
    return tuple(dict.fromkeys((Layer(image.config_digest, size), *image.layers)))


def _check_room(ref: ImageRef, parts: Sequence[Layer], folder: Path, path: Path, say: Callable[[str], None]) -> None:
    """Raise DiskFull before a byte is fetched if the blobs, or the file beside them, have no room."""
    whole = sum(part.size_bytes for part in parts)
    here = sum(min(here_bytes(folder, part.digest), part.size_bytes) for part in parts)
    blobs, file = (disk_space.file_system_of(one, as_root=False) for one in (folder, path.parent))
    is_one = blobs is not None and file is not None and blobs.device == file.device
    for where, room, need in (
        (folder, blobs, whole - here + whole * is_one),
        (path.parent, file, whole),
    ):
        if room is not None and room.free_bytes < need:
            needs = f"{ref} needs {disk_space.gb(need)} there; {disk_space.gb(room.free_bytes)} are free"
            raise DiskFull(str(where), needs)
    kept = f", of which {disk_space.gb(here)} are here already" if here else ""
    say(f"{ref}: {disk_space.gb(whole)}{kept}; Ctrl-C keeps what has arrived.")


def _shown(layer: Blob, show: ShowPull) -> None:
    status = "Download complete" if layer.is_whole else "Downloading"
    show(PullEvent(layer.digest.partition(":")[2][:12], status, layer.have_bytes, layer.size_bytes))


def _fetch(
    ref: ImageRef,
    credential: Credential | None,
    blobs: Sequence[Blob],
    arrived: Callable[[Blob], object],
    sleep: Callable[[float], None],
) -> None:
    """Complete all blobs, over several connections. Raise the first error once all connections have ended."""
    waiting, lock = deque(blobs), threading.Lock()

    def work() -> None:
        with Registry(ref.registry, credential, sleep=sleep) as registry, contextlib.suppress(IndexError):
            while True:
                fill(waiting.popleft(), registry)

    def fill(blob: Blob, registry: Registry) -> None:
        def grown() -> None:
            with lock:  # one screen
                arrived(blob)

        blob.fill(lambda start: registry.open(ref.repository, blob.digest, start), sleep, grown)
        grown()

    with ThreadPoolExecutor(min(CONNECTIONS, len(blobs))) as pool:
        jobs = [pool.submit(work) for _ in range(min(CONNECTIONS, len(blobs)))]
        try:
            for job in as_completed(jobs):
                job.result()
        except BaseException:
            waiting.clear()
            for blob in blobs:
                blob.close()  # its connection ends with the next bytes
            raise


def _write(path: Path, ref: ImageRef, image: Manifest, document: Document, blobs: Sequence[Blob]) -> None:
    name = str(ref) if ref.tag else ref.name
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
        "RepoTags": [name] if ref.tag else None,
        "Layers": [_member(layer.digest) for layer in image.layers],
    }
    draft = path.with_name(f".{path.name}.ngcdl-part")
    try:
        with draft.open("wb") as file, tarfile.open(fileobj=file, mode="w") as tar:
            _add(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
            _add(tar, "index.json", json.dumps(index).encode())
            _add(tar, "manifest.json", json.dumps([for_older]).encode())
            _add(tar, _member(document.digest), document.body)
            for blob in blobs:
                for descriptor, *_ in blob.arriving(0):  # all of it is here; its name may be gone
                    with Path(f"/proc/self/fd/{descriptor}").open("rb") as content:
                        tar.addfile(_entry(_member(blob.digest), blob.size_bytes), content)
        draft.replace(path)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFull(str(path.parent), f"{path} could not be written") from error
        raise NotWritten(path, error.strerror or str(error)) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _member(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    tar.addfile(_entry(name, len(content)), io.BytesIO(content))


def _entry(name: str, size_bytes: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size_bytes, 0o644
    return entry


def _patient(say: Callable[[str], None]) -> Callable[[Exception, float], None]:
    return lambda error, seconds: say(f"{error} Waiting {seconds:.0f} s.")
