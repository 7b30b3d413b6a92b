"""What a ConfigMap brings into the pods: the script that runs there, and the trainer as one compressed archive.

A ConfigMap has no folders and holds 1 MiB (https://kubernetes.io/docs/concepts/configuration/configmap/); the trainer
has folders and, packed, takes less than a quarter of that.
"""

from __future__ import annotations

import base64
import gzip
import io
import tarfile
from pathlib import Path

from ngcdl import tars
from ngcdl.errors import TrainerTooLarge

SCRIPT, KEY = "pod.sh", "trainer.tar.gz"
LIMIT_BYTES = 1 << 20


def script() -> str:
    return (Path(__file__).parent / SCRIPT).read_text(encoding="utf-8")


def packed(folder: str) -> str:
    """Pack the sources in a folder, in base64: the same files yield the same text, whoever packs them and when.

    Raise TrainerTooLarge."""
    root, made = Path(folder), io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in _sources(root):
            tars.add(archive, str(Path(root.name) / path.relative_to(root)), path.read_bytes())
    content = gzip.compress(made.getvalue(), mtime=0)
    if len(content) + len(script().encode()) > LIMIT_BYTES:  # as the API server counts, without the base64
        largest = max(_sources(root), key=lambda path: path.stat().st_size)
        raise TrainerTooLarge(root, str(largest))
    return base64.b64encode(content).decode("ascii")


def _sources(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.suffix in (".py", ".c", ".h"))
