"""Which of the digests that an engine lists for an image belongs to the name in question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from ngcdl.engines.docker.engine import DockerEngine
from ngcdl.engines.values import Held
from ngcdl.spec import ImageRef


@dataclass
class Shelf:
    """A daemon with one image, which it lists as `listed`."""

    listed: str
    base_url: str = "http+docker://localhost"

    def inspect_image(self, name: str) -> dict[str, Any]:
        return {"Id": "sha256:1d", "RepoDigests": [f"other/name@sha256:{'1' * 64}", f"{self.listed}@{DIGEST}"]}


DIGEST = f"sha256:{'d' * 64}"


@pytest.mark.parametrize(("name", "listed", "found"), [
    ("nvcr.io/nvidia/pytorch", "nvcr.io/nvidia/pytorch", DIGEST),
    ("docker.io/pytorch/pytorch", "pytorch/pytorch", DIGEST),
    ("index.docker.io/pytorch/pytorch", "pytorch/pytorch", DIGEST),
    ("docker.io/ubuntu", "ubuntu", DIGEST),
    ("docker.io/library/ubuntu", "ubuntu", DIGEST),
    ("docker.io/ubuntu", "docker.io/library/ubuntu", DIGEST),  # Podman
    ("nvcr.io/pytorch/pytorch", "pytorch/pytorch", None),
    ("docker.io.example/ubuntu", "ubuntu", None),
])  # fmt: skip
def test_an_image_is_known_by_its_registry_s_digest_however_the_engine_lists_it(
    name: str, listed: str, found: str | None
) -> None:
    assert DockerEngine(Shelf(listed)).has(ImageRef.parse(f"{name}:1")) == Held("sha256:1d", found)
