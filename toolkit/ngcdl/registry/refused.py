"""Why an image is unavailable: the registry's own answer, as Docker's is not enough."""

from __future__ import annotations

from ngcdl.errors import NgcdlError
from ngcdl.registry.client import LINUX_AMD64, Registry
from ngcdl.registry.key import Credential
from ngcdl.spec import ImageRef


def explain(
    ref: ImageRef, credential: Credential | None = None, platform: tuple[str, str] = LINUX_AMD64
) -> NgcdlError | None:
    """Ask the registry why an ImageRef is unavailable, None if it is available.

    Docker wraps these answers as 404 and 500, with texts that differ by version.
    """
    try:
        with Registry(ref.registry, credential) as registry:
            registry.manifest(ref, platform)
    except NgcdlError as error:
        return error
    return None
