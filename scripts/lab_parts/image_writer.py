"""Write image layers and manifests straight into the registry's storage, without an engine.

Each layer is made once: the registry's storage in the cache keeps the bytes, and `layers.json` maps the hash of a
layer's recipe to its digests.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from lab_parts.registry import MANIFEST, MANIFEST_LIST, Storage
from lab_parts.where import Lab, LabError, read_json, write_whole

CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
MTIME = 1515974400  # of all files in a layer: 2018-01-15, midnight UTC
_layers_lock = threading.Lock()


@dataclass(frozen=True)
class Layer:
    digest: str  # of the compressed bytes, as in the registry
    diff_id: str  # digest of the tar
    bytes: int


def layer(lab: Lab, repository: str, key: str, pieces: Callable[[], Iterable[bytes]]) -> Layer:
    """Return the layer of this recipe, made from a tar's pieces and uploaded if the repository lacks it."""
    storage = Storage(lab)
    kept, name = lab.cache / "layers.json", f"{repository} {key}"
    known = read_json(kept).get(name)
    if known and storage.has(f"/v2/{repository}/blobs/{known['digest']}"):
        return Layer(**known)
    draft = lab.cache / f"layer-{key}-{threading.get_ident()}.draft"  # two threads may make the same layer
    tar_sum, gzip_sum, size = hashlib.sha256(), hashlib.sha256(), 0

    def packed() -> Iterator[bytes]:
        packer = zlib.compressobj(1, wbits=31)
        for piece in pieces():
            tar_sum.update(piece)
            yield packer.compress(piece)
        yield packer.flush()

    try:
        with draft.open("wb") as out:
            for piece in packed():
                gzip_sum.update(piece)
                size += out.write(piece)
        made = Layer(f"sha256:{gzip_sum.hexdigest()}", f"sha256:{tar_sum.hexdigest()}", size)
        with draft.open("rb") as body:
            upload(storage, repository, made.digest, body, size)
    finally:
        draft.unlink(missing_ok=True)
    with _layers_lock:
        write_whole(kept, json.dumps({**read_json(kept), name: asdict(made)}, indent=1))
    return made


def manifest(
    lab: Lab,
    repository: str,
    tag: str | None,
    layers: list[Layer],
    config: dict[str, object],
    architecture: str = "amd64",
) -> str:
    """Upload an image's config and manifest, with or without a tag; return the manifest's digest."""
    storage = Storage(lab)
    image = {
        "architecture": architecture,
        "os": "linux",
        "created": "2018-01-15T00:00:00Z",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [one.diff_id for one in layers]},
        "history": [{"created": "2018-01-15T00:00:00Z", "created_by": "scripts/lab"} for _ in layers],
    }
    blob = json.dumps(image).encode()
    digest = f"sha256:{hashlib.sha256(blob).hexdigest()}"
    upload(storage, repository, digest, blob, len(blob))
    text = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "size": len(blob), "digest": digest},
        "layers": [{"mediaType": LAYER, "size": one.bytes, "digest": one.digest} for one in layers],
    }
    return _put(storage, repository, tag, MANIFEST, text)


def manifest_index(lab: Lab, repository: str, tag: str, images: dict[str, str]) -> str:
    """Upload a manifest list; `images` maps each architecture to a digest. Return the list's own digest."""
    storage = Storage(lab)
    entries = []
    for architecture, digest in images.items():
        body = storage.ask("GET", f"/v2/{repository}/manifests/{digest}", headers={"Accept": MANIFEST}).body
        platform = {"architecture": architecture, "os": "linux"}
        entries.append({"mediaType": MANIFEST, "size": len(body), "digest": digest, "platform": platform})
    text: dict[str, object] = {"schemaVersion": 2, "mediaType": MANIFEST_LIST, "manifests": entries}
    return _put(storage, repository, tag, MANIFEST_LIST, text)


def upload(storage: Storage, repository: str, digest: str, body: bytes | IO[bytes], size: int) -> None:
    if storage.has(f"/v2/{repository}/blobs/{digest}"):
        return
    place = storage.ask("POST", f"/v2/{repository}/blobs/uploads/").headers["Location"]
    answer = storage.ask(
        "PUT",
        f"{place}&digest={digest}",
        body,
        {"Content-Length": str(size), "Content-Type": "application/octet-stream"},
    )
    if answer.status != 201:
        raise LabError(f"docker-registry refused a blob of {repository}: {answer.status} {answer.body!r}")


def tar_of_folder(folder: Path, exclude: Iterable[str], prefix: str = "") -> Iterable[bytes]:
    """Yield a reproducible tar (fixed order and times) of a folder's content; `prefix` is its path in the image."""
    command = ["tar", "-C", str(folder), "--numeric-owner", "--sort=name", f"--mtime=@{MTIME}"]
    command += [f"--exclude={pattern}" for pattern in exclude]
    command += ["--owner=0", f"--transform=s,^\\.,{prefix},SH"] if prefix else ["--no-xattrs"]
    command += ["-cf", "-", "."]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        while piece := process.stdout.read(1 << 20):
            yield piece
    if process.returncode:
        raise LabError(f"tar of {folder} failed ({process.returncode})")


def tar_of_files(
    files: dict[str, tuple[bytes, int]], links: dict[str, str] | None = None, folders: Iterable[str] = ()
) -> bytes:
    """Return a tar with these files (path: bytes, mode), symbolic links (path: target) and folders."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path in folders:
            entry = tarfile.TarInfo(path)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if path == "tmp" else 0o755
            tar.addfile(entry)
        for path, (data, mode) in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(data), mode
            tar.addfile(entry, io.BytesIO(data))
        for path, target in (links or {}).items():
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return out.getvalue()


def _put(storage: Storage, repository: str, tag: str | None, kind: str, text: dict[str, object]) -> str:
    body = json.dumps(text).encode()
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    answer = storage.ask("PUT", f"/v2/{repository}/manifests/{tag or digest}", body, {"Content-Type": kind})
    if answer.status != 201:
        raise LabError(f"docker-registry refused {repository}:{tag}: {answer.status} {answer.body!r}")
    return digest
