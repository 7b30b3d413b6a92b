"""What Docker's config.json and similar files contain: the registry's key, who else can read it, and the context.

The key itself stays within `Once`, which the look at the registry shares.
"""

from __future__ import annotations

import contextlib
import threading

from ngcdl.doctor.hands import Hands
from ngcdl.doctor.sight import Keys
from ngcdl.errors import NgcdlError
from ngcdl.registry import credentials, docker_config
from ngcdl.registry.key import Credential

# A healthy helper takes a few hundredths of a second; a slow one must not delay doctor's other findings.
HELPER_SECONDS = 3.0


Found = tuple[Credential | None, NgcdlError | None]


class Once:
    """The key, looked up once for all callers: a helper may ask the user to unlock its store."""

    def __init__(self, hands: Hands, host: str) -> None:
        self._hands, self._host = hands, host
        self._lock = threading.Lock()
        self._found: Found | None = None

    def __call__(self) -> Found:
        with self._lock:
            if self._found is None:
                environ = self._hands.environ
                self._found = credentials.find_or_none(self._host, environ, helper_seconds=HELPER_SECONDS)
            return self._found


def look(hands: Hands, find: Once) -> Keys:
    path = docker_config.path(hands.environ)
    key, error = find()
    source = key.source if key else None
    in_clear = source is not None and source in (
        str(path),
        f"{docker_config.home(hands.environ)}/.ngc/config of the ngc CLI",
    )
    return Keys(source, in_clear, error, credentials.exposure(hands.environ), path)


def context(hands: Hands) -> str | None:
    """Return the docker command's context if it points elsewhere than DOCKER_HOST or the default socket."""
    if hands.environ.get("DOCKER_HOST"):  # the variable takes precedence over every context
        return None
    name = hands.environ.get("DOCKER_CONTEXT")
    if not name:
        with contextlib.suppress(NgcdlError):
            found = docker_config.read(docker_config.path(hands.environ)).tree.get("currentContext")
            name = found if isinstance(found, str) else None
    return name if name and name != "default" else None
