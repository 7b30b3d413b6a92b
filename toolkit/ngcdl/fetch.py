"""One image from its registry onto the engine, with the caller's key; the registry's own word where it fails."""

from __future__ import annotations

from collections.abc import Callable

from ngcdl.engines.base import Engine, Show
from ngcdl.errors import (
    DigestMismatch,
    DiskFull,
    EngineRefused,
    KeyRejected,
    KeyWithoutRights,
    LoginNeeded,
    RegistryError,
    UnknownRepository,
    UnknownTag,
    WrongPlatform,
)
from ngcdl.spec import ImageRef

# What no pull can mend. Anything else, such as a registry that only the engine reaches, is left to the pull.
_FINAL = (KeyRejected, KeyWithoutRights, LoginNeeded, UnknownRepository, UnknownTag, WrongPlatform)


def look(ref: ImageRef) -> None:
    """Ask the registry for a few KB about `ref`: raises now what a pull would end with after a long download."""
    from ngcdl.registry import client, credentials

    credential, trouble = credentials.find_or_none(ref.registry)
    error = client.explain(ref, credential)
    if isinstance(error, _FINAL):
        raise trouble or error


def image(engine: Engine, ref: ImageRef, show: Show, say: Callable[[str], None]) -> str:
    """Pull `ref` and give its digest. Raises RegistryError or EngineError; an old image of that name is never given."""
    from ngcdl.registry import credentials

    credential, trouble = credentials.find_or_none(ref.registry)
    if trouble:
        say(f"{trouble.message} Trying without a key.")
    who = f"with the key of {credential.source}" if credential else "without a key"
    say(f"Pulling {ref} {who}")
    auth = credential.docker_auth() if credential else None
    try:
        return engine.pull(ref, show, auth)
    except (DigestMismatch, DiskFull):
        raise
    except (EngineRefused, RegistryError) as error:
        # Docker says 404 for "no right" and 500 for "wrong key": the registry itself tells them apart.
        from ngcdl.registry import client

        better = client.explain(ref, credential)
        if trouble and better:
            raise trouble from error
        if better or "unauthorized" not in error.message:
            raise better or error from error
    # The registry sees nothing wrong: the engine's token expired in mid pull. What is whole was kept.
    say("The token expired in mid pull. Trying again with a new one.")
    return engine.pull(ref, show, auth)
