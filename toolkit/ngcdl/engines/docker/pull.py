"""A pull that counts only if the engine then has the image under its digest.

The daemon's progress stream is read to its end, and an error in it is raised (the SDK's high-level pull drops it and
returns the stale image). The daemon keeps complete layers, so a retry continues from there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ngcdl.engines.docker.messages import is_transient, pull_meaning
from ngcdl.engines.values import PullEvent, ShowPull
from ngcdl.errors import DigestMismatch
from ngcdl.spec import ImageRef

# The daemon resumes an interrupted layer by itself, but gives up at once on 429, 5xx and a slow token server.
TRIES = 4
_DIGEST = re.compile(r"Digest: (sha256:[0-9a-f]{64})")


class PullFailed(Exception):
    """The stream's error text; not for users. `tried`: the engine has already used up its own retries."""

    def __init__(self, text: str, tried: bool = False) -> None:
        super().__init__(text)
        self.tried = tried


def pull(
    client: Any,
    image: ImageRef,
    auth: Mapping[str, str] | None,
    show: ShowPull,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Pull `image` with `client` (docker.APIClient) and return its digest. Raise RegistryError or EngineError.

    `auth` is {username, password}, or None for anonymous; it is never looked up here.
    """
    for attempt in range(1, TRIES + 1):
        try:
            digest = _once(client, image, auth, show)
            break
        except PullFailed as error:
            if attempt == TRIES or error.tried or not is_transient(str(error)):
                raise pull_meaning(str(error), image.registry) from error
            wait = 2.0**attempt
            show(PullEvent(None, f"{error}. Trying again in {wait:g} s ({attempt + 1} of {TRIES})"))
            sleep(wait)
    _check(client, image, digest)
    return digest


def _once(client: Any, image: ImageRef, auth: Mapping[str, str] | None, show: ShowPull) -> str:
    import docker.errors

    digest, tried = image.digest, False
    try:
        # An empty auth keeps the SDK from reading config.json and calling its helpers.
        stream: Iterable[Mapping[str, Any]] = client.pull(
            image.name, tag=image.digest or image.tag, stream=True, decode=True, auth_config=dict(auth or {})
        )
        for line in stream:
            if "error" in line or "errorDetail" in line:
                raise PullFailed(str(line.get("error") or line["errorDetail"].get("message", "")), tried)
            status = str(line.get("status", ""))
            tried = tried or status.startswith("Retrying in")
            found = _DIGEST.search(status)
            digest = found[1] if found else digest
            detail = line.get("progressDetail") or {}
            show(PullEvent(line.get("id"), status, detail.get("current"), detail.get("total")))
    except docker.errors.APIError as error:
        raise PullFailed(error.explanation or str(error)) from error
    if digest is None:
        raise PullFailed("the engine ended the pull without naming a digest")
    return digest


def _check(client: Any, image: ImageRef, digest: str) -> None:
    if image.digest and image.digest != digest:
        raise DigestMismatch(f"{image} arrived as {digest}")
    import docker.errors

    try:
        client.inspect_image(image.pinned(digest))
    except docker.errors.ImageNotFound as error:
        raise DigestMismatch(f"the engine has no {image.pinned(digest)} after the pull") from error
