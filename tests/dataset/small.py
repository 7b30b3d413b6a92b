"""A CIFAR-10 of 60 images, packed like the official archive."""

from __future__ import annotations

import gzip
import hashlib
import io
import random
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

from ngcdl.dataset import Archive, Member
from ngcdl.dataset.official import RECORD_BYTES

RECORDS = 10
FOLDER = "cifar-10-batches-bin"
NAMES = [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]


def batch(seed: int, records: int = RECORDS) -> bytes:
    chance = random.Random(seed)
    return b"".join(bytes([chance.randrange(10)]) + chance.randbytes(RECORD_BYTES - 1) for _ in range(records))


FILES = {name: batch(seed) for seed, name in enumerate(NAMES)} | {
    "batches.meta.txt": b"airplane\nautomobile\n",
    "readme.html": b"<html>\n",
}
MEMBERS = tuple(
    Member(name, len(content), hashlib.md5(content).hexdigest()) if name in NAMES else Member(name)
    for name, content in FILES.items()
)
TRAINING_SHA256 = hashlib.sha256(b"".join(FILES[name] for name in NAMES[:5])).hexdigest()


@dataclass
class Entry:
    """One member of a tar, honest or not."""

    name: str
    content: bytes = b""
    type: bytes = tarfile.REGTYPE
    link: str = ""
    mode: int = 0o644
    headers: dict[str, str] = field(default_factory=dict)


def honest() -> list[Entry]:
    """What the official archive contains, in order."""
    files = [Entry(f"{FOLDER}/{name}", content) for name, content in FILES.items()]
    return [Entry(FOLDER, type=tarfile.DIRTYPE, mode=0o755), *files]


def pack(entries: list[Entry]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            info = tarfile.TarInfo(entry.name)
            info.type, info.linkname, info.mode, info.size = entry.type, entry.link, entry.mode, len(entry.content)
            info.pax_headers = entry.headers
            tar.addfile(info, io.BytesIO(entry.content))
    return gzip.compress(raw.getvalue(), mtime=0)


def archive_of(packed: bytes, url: str = "http://127.0.0.1:9/cifar-10-binary.tar.gz") -> Archive:
    return Archive(url=url, bytes=len(packed), sha256=hashlib.sha256(packed).hexdigest(), members=MEMBERS)


PACKED = pack(honest())


def unpacked(into: Path) -> Path:
    """Write the binary form to `into`/cifar-10-batches-bin, omitting both texts."""
    folder = into / FOLDER
    folder.mkdir(parents=True)
    for name in NAMES:
        (folder / name).write_bytes(FILES[name])
    return folder
