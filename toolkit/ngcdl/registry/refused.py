"""Why an image is unavailable: the registry's own answer, as Docker's is not enough."""

from __future__ import annotations

from ngcdl.errors import NgcdlError
from ngcdl.registry.client import Registry
from ngcdl.registry.key import Credential
from ngcdl.spec import ImageRef


def explain(ref: ImageRef, credential: Credential | None = None) -> NgcdlError | None:
    """Ask the registry why an ImageRef is unavailable, None if it is available, for whatever processors.

    Docker wraps these answers as 404 and 500, with texts that differ by version.
    """
    try:
        with Registry(ref.registry, credential) as registry:
            registry.document(ref)
    except NgcdlError as error:
        return error
    return None
