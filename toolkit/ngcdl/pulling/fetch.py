"""Pulls one image from its registry to the engine, with the caller's key; on failure the registry explains why."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ngcdl import settings
from ngcdl.engines.base import Engine
from ngcdl.engines.values import ShowPull
from ngcdl.errors import (
    DigestMismatch,
    DiskFull,
    EngineRefused,
    KeyRejected,
    KeyWithoutRights,
    LoginNeeded,
    NgcdlError,
    RateLimited,
    RealmRefused,
    RegistryAnswer,
    RegistryError,
    RegistryUnreachable,
    UnknownRepository,
    UnknownTag,
    UsageError,
    WrongPlatform,
)
from ngcdl.spec import ImageRef

if TYPE_CHECKING:
    from ngcdl.registry.key import Credential

# What no pull can fix. Anything else, such as a registry that only the engine can reach, is left to the pull.
FINAL = (KeyRejected, KeyWithoutRights, LoginNeeded, RealmRefused, UnknownRepository, UnknownTag, WrongPlatform)
# The registry was not heard from here: that says nothing about the image, and the engine may have another route.
_UNHEARD = (RegistryUnreachable, RegistryAnswer, RateLimited, UsageError)


def image(engine: Engine, ref: ImageRef, show: ShowPull, say: Callable[[str], None]) -> str:
    """Pull `ref` and return its digest, never that of an old image of that name. Raise RegistryError or EngineError.

    A public image needs no key, so a key that is broken or refused ends nothing if the image can be had without one.
    """
    from ngcdl.registry import credentials

    credential, trouble = credentials.find_or_none(ref.registry)
    if credential:
        try:
            return _pulled(engine, ref, credential, show, say)
        except KeyRejected as error:
            trouble = error
    if trouble:
        say(f"{trouble.message} Trying without a key.")
    try:
        return _pulled(engine, ref, None, show, say)
    except (LoginNeeded, UnknownRepository) as error:
        if trouble:
            raise trouble from error
        raise


def _pulled(
    engine: Engine, ref: ImageRef, credential: Credential | None, show: ShowPull, say: Callable[[str], None]
) -> str:
    from ngcdl.pulling.feed import Feed

    who = f"with the key of {credential.source}" if credential else "without a key"
    say(f"Pulling {ref} {who}")
    with Feed(engine, ref, credential, settings.load().cache / "blobs", show, say) as feed:
        feed.bring()
        digest = _by_engine(engine, ref, credential, show, say)
        feed.tidy()
        return digest


def _by_engine(
    engine: Engine, ref: ImageRef, credential: Credential | None, show: ShowPull, say: Callable[[str], None]
) -> str:
    """Let the engine pull; if it fails, let the registry explain why."""
    auth = credential.docker_auth() if credential else None
    try:
        return engine.pull(ref, show, auth)
    except (DigestMismatch, DiskFull):
        raise
    except (EngineRefused, RegistryError) as error:
        better = explain(ref, credential)
        if better and not isinstance(better, _UNHEARD):
            raise better from error
        if "unauthorized" not in error.message:
            raise
    # The registry sees nothing wrong, or was not heard: the engine's token expired during the pull. Complete layers
    # were kept.
    say("The token may have expired during the pull. Trying again with a new one.")
    return engine.pull(ref, show, auth)


def explain(ref: ImageRef, credential: Credential | None = None) -> NgcdlError | None:
    """Ask the registry why an ImageRef is unavailable, None if it is available, for whatever processors.

    Docker says 404 for "no right" and 500 for "wrong key", with texts that differ by version.
    """
    from ngcdl.registry.client import Registry

    try:
        with Registry(ref.registry, credential) as registry:
            registry.document(ref)
    except NgcdlError as error:
        return error
    return None
