"""Pulls one image from its registry to the engine, with the caller's key; on failure the registry explains why."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ngcdl import settings, waiting
from ngcdl.engines.base import Engine
from ngcdl.engines.values import PullEvent, ShowPull
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

# An engine that verifies a layer of several GB may show nothing for some seconds.
SILENT_SECONDS = 30.0
# Errors that end every pull. After any other, as from a registry that only the engine can reach, the engine may try.
FINAL = (KeyRejected, KeyWithoutRights, LoginNeeded, RealmRefused, UnknownRepository, UnknownTag, WrongPlatform)
# Errors of asking from this host: they say nothing about the image, and the engine may have another route.
_UNHEARD = (RegistryUnreachable, RegistryAnswer, RateLimited, UsageError)


def image(engine: Engine, ref: ImageRef, show: ShowPull, say: Callable[[str], None]) -> str:
    """Pull `ref` and return its digest, never that of an old image of that name. Raise RegistryError or EngineError."""
    return _with_or_without_key(ref, lambda credential: _pulled(engine, ref, credential, show, say), say)


def image_file(ref: ImageRef, architecture: str, path: Path, show: ShowPull, say: Callable[[str], None]) -> str:
    """Fetch `ref` for Linux on `architecture` (amd64, arm64) into a file for `docker load`, and return its digest.

    Raise RegistryError, DiskFull or NotWritten; nothing is then at `path`."""
    from ngcdl.pulling import image_file as it

    folder = settings.load().cache / "blobs"

    def saved(credential: Credential | None) -> str:
        return it.Saving(ref, path, credential, folder, show, say).save(("linux", architecture))

    return _with_or_without_key(ref, saved, say)


def _with_or_without_key(ref: ImageRef, fetch: Callable[[Credential | None], str], say: Callable[[str], None]) -> str:
    """Fetch `ref` with the caller's key, if there is one.

    A public image needs no key, so a key that is broken, refused or without rights is no error if the image can be
    fetched without a key.
    """
    from ngcdl.registry import credentials, docker_config

    credential, trouble = credentials.find_or_none(ref.registry)
    if credential:
        if trouble:  # a helper's
            say(f"{trouble.message} Taking the key of {credential.source} instead.")
        if credential.file == docker_config.path(os.environ) and (exposed := credentials.exposure()):
            say(str(exposed))
        try:
            return fetch(credential)
        except (KeyRejected, KeyWithoutRights) as error:
            trouble = error
    if trouble:
        say(f"{trouble.message} Trying without a key.")
    try:
        return fetch(None)
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


class Silence:
    """How long a pull has shown nothing: the engine itself ends no pull whose bytes have stopped."""

    def __init__(self, show: ShowPull, clock: Callable[[], float] = time.monotonic) -> None:
        self._show, self._clock = show, clock
        self._heard = clock()

    def show(self, event: PullEvent) -> None:
        self._heard = self._clock()
        self._show(event)

    def told(self) -> str | None:
        """Say what is waited for; None if something was shown within SILENT_SECONDS."""
        seconds = self._clock() - self._heard
        return f"the engine's pull, which has shown nothing for {seconds:.0f} s" if seconds >= SILENT_SECONDS else None


def _by_engine(
    engine: Engine, ref: ImageRef, credential: Credential | None, show: ShowPull, say: Callable[[str], None]
) -> str:
    """Let the engine pull; if it fails, let the registry explain why."""
    auth = credential.docker_auth() if credential else None

    def pulled() -> str:
        silence = Silence(show)
        with waiting.telling(say, silence.told, SILENT_SECONDS):
            return engine.pull(ref, silence.show, auth)

    try:
        return pulled()
    except (DigestMismatch, DiskFull):
        raise
    except (EngineRefused, RegistryError) as error:
        better = explain(ref, credential)
        is_told = isinstance(better, RateLimited) and isinstance(error, RateLimited)  # with the wait that it asks for
        if better and (is_told or not isinstance(better, _UNHEARD)):
            raise better from error
        if "unauthorized" not in error.message:
            raise
    # The registry finds nothing wrong or does not answer, so the engine's token has probably expired during the pull.
    # The engine has kept the layers that were complete.
    say("The token may have expired during the pull. Trying again with a new one.")
    return pulled()


def explain(ref: ImageRef, credential: Credential | None) -> NgcdlError | None:
    """Ask the registry why `ref` is unavailable, and return that; None if it is available, for whatever architecture.

    Docker itself reports a missing right as 404 and a wrong key as 500, with texts that differ by version.
    """
    from ngcdl.registry.client import Registry

    try:
        with Registry(ref.registry, credential) as registry:
            registry.document(ref)
    except NgcdlError as error:
        return error
    return None
