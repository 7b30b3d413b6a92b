"""What Docker's config.json and similar files contain: the registry's key, who else can read it, and the context.

The key itself stays within its finder, which the look at the registry shares.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

from ngcdl.doctor.hands import Hands
from ngcdl.doctor.sight import Keys
from ngcdl.errors import NgcdlError
from ngcdl.registry import credentials, docker_config, session
from ngcdl.registry.key import Credential

# A healthy helper takes a few hundredths of a second; a slow one must not delay doctor's other findings.
HELPER_SECONDS = 3.0


Find = Callable[[], tuple[Credential | None, NgcdlError | None]]


def finder(hands: Hands, host: str) -> Find:
    """Return a function that returns the registry's key; it is looked up at the first call only."""
    return partial(session.Keys(hands.environ, HELPER_SECONDS).find, host)


def look(hands: Hands, find: Find) -> Keys:
    key, error = find()
    in_clear = key is not None and key.file is not None
    return Keys(key.source if key else None, in_clear, error, credentials.exposure(hands.environ))


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
