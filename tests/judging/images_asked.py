"""Images on a local registry, and a user whose keys and clock a test controls."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from ngc_server import KEY, NgcServer

from ngcdl.spec import ImageRef

ENVIRON = ("CUDA_VERSION=9.0.176", "CUDA_DRIVER_VERSION=384.81", "NVIDIA_TENSORFLOW_VERSION=18.01")
OLD = "nvidia/tensorflow:18.01-py2"
NEW = "nvidia/tensorflow:25.02-tf2-py3"


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.seconds = 1_700_000_000.0

    def __call__(self) -> float:
        return self.seconds


def ref(ngc: NgcServer, name: str = OLD) -> ImageRef:
    return ImageRef.parse(f"{ngc.host}/{name}")


def sign_in(home: Path, host: str, key: str = KEY) -> None:
    pair = base64.b64encode(f"$oauthtoken:{key}".encode()).decode()
    (home / ".docker/config.json").write_text(json.dumps({"auths": {host: {"auth": pair}}}))


def files_in(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if path.is_file())
