"""One image from its registry onto the engine, with the caller's key; the registry's own word where it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ngcdl import settings
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

if TYPE_CHECKING:
    from ngcdl.registry.key import Credential

# What no pull can mend. Anything else, such as a registry that only the engine reaches, is left to the pull.
FINAL = (KeyRejected, KeyWithoutRights, LoginNeeded, UnknownRepository, UnknownTag, WrongPlatform)


def image(engine: Engine, ref: ImageRef, show: Show, say: Callable[[str], None]) -> str:
    """Pull `ref` and give its digest. Raises RegistryError or EngineError; an old image of that name is never given."""
    from ngcdl.feed import Feed
    from ngcdl.registry import credentials

    credential, trouble = credentials.find_or_none(ref.registry)
    if trouble:
        say(f"{trouble.message} Trying without a key.")
    who = f"with the key of {credential.source}" if credential else "without a key"
    say(f"Pulling {ref} {who}")
    try:
        with Feed(engine, ref, credential, settings.load().cache / "blobs", show, say) as feed:
            feed.bring()
            digest = _by_engine(engine, ref, credential, show, say)
            feed.tidy()
            return digest
    except FINAL as error:
        if trouble:
            raise trouble from error
        raise


def _by_engine(
    engine: Engine, ref: ImageRef, credential: Credential | None, show: Show, say: Callable[[str], None]
) -> str:
    """Let the engine pull, and say what the registry says where it can't."""
    auth = credential.docker_auth() if credential else None
    try:
        return engine.pull(ref, show, auth)
    except (DigestMismatch, DiskFull):
        raise
    except (EngineRefused, RegistryError) as error:
        # Docker says 404 for "no right" and 500 for "wrong key": the registry itself tells them apart.
        from ngcdl.registry import refused

        better = refused.explain(ref, credential)
        if better or "unauthorized" not in error.message:
            raise better or error from error
    # The registry sees nothing wrong: the engine's token expired in mid pull. What is whole was kept.
    say("The token expired in mid pull. Trying again with a new one.")
    return engine.pull(ref, show, auth)
