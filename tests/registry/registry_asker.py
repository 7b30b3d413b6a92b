"""Shared by the registry's tests: a good and a bad key, references, and everything that an error shows."""

from __future__ import annotations

import traceback

from ngc_server import KEY, NgcServer

from ngcdl.errors import NgcdlError
from ngcdl.registry.key import Credential, Secret
from ngcdl.spec import ImageRef

GOOD = Credential("$oauthtoken", Secret(KEY), "a test")
BAD = Credential("$oauthtoken", Secret("nvapi-CANARY-wrong"), "a test")


def ref(ngc: NgcServer, name: str = "nvidia/tensorflow:18.01-py2") -> ImageRef:
    return ImageRef.parse(f"{ngc.host}/{name}")


def shown(error: BaseException) -> str:
    """Return everything that a user or a log may see of an error."""
    hint = error.hint if isinstance(error, NgcdlError) else ""
    return f"{error} {error!r} {hint} {''.join(traceback.format_exception(error))}"
