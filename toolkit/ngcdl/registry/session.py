"""Registry queries as a user expects them: anonymous first, with the key if that is refused, and within seconds.

requests is imported only for a query.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from ngcdl import waiting
from ngcdl.errors import LoginNeeded, NgcdlError, RegistryUnreachable
from ngcdl.registry.helper import HELPER_SECONDS

if TYPE_CHECKING:
    from ngcdl.registry.client import Registry
    from ngcdl.registry.key import Credential

T = TypeVar("T")


class Patience(NamedTuple):
    """The time limits: for one query in total, and for making each of its connections."""

    seconds: float
    connect_seconds: float


USUAL = Patience(10.0, 5.0)
HURRY = Patience(4.0, 2.0)  # there is an older answer to fall back on
_LEAST_SECONDS = 1.0  # for the second query, with the key
_GRACE_SECONDS = 0.5


@dataclass
class Keys:
    """The keys on this machine: each is looked up once, for all threads, because a helper may ask the user to unlock
    its store."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    helper_seconds: float = HELPER_SECONDS
    _found: dict[str, tuple[Credential | None, NgcdlError | None]] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def find(self, host: str) -> tuple[Credential | None, NgcdlError | None]:
        from ngcdl.registry import credentials

        with self._lock:
            if host not in self._found:
                self._found[host] = credentials.find_or_none(host, self.environ, helper_seconds=self.helper_seconds)
            return self._found[host]


@dataclass
class Session:
    """One thread's connections, one per repository: a key that one repository requires is not sent for another."""

    keys: Keys
    patience: Patience = USUAL
    _registries: dict[tuple[str, str], Registry] = field(default_factory=dict, repr=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for registry in self._registries.values():
            registry.close()

    @property
    def cost(self) -> tuple[int, int]:
        """The numbers of requests and of response bytes so far."""
        every = self._registries.values()
        return sum(one.asked_requests for one in every), sum(one.asked_bytes for one in every)

    def ask(self, host: str, repository: str, question: Callable[[Registry], T]) -> T:
        """Ask a registry `question`, and again with the key if one is required. Raise NgcdlError."""
        registry = self._registry(host, repository)
        began, patience = time.monotonic(), self.patience.seconds
        try:
            return _within(patience, registry, question)
        except LoginNeeded:
            spent = time.monotonic() - began
            credential, trouble = self.keys.find(host)
            if credential is None and trouble:
                raise trouble from None
            if credential is None:
                raise
        registry.sign_in(credential)
        return _within(max(patience - spent, _LEAST_SECONDS), registry, question)

    def _registry(self, host: str, repository: str) -> Registry:
        from ngcdl.registry.client import Registry

        if (host, repository) not in self._registries:
            timeout_seconds = (self.patience.connect_seconds, self.patience.seconds)
            self._registries[host, repository] = Registry(host, timeout_seconds=timeout_seconds)
        return self._registries[host, repository]


def _within(seconds: float, registry: Registry, question: Callable[[Registry], T]) -> T:
    """Ask in a thread, which is abandoned after the time limit: a DNS lookup that hangs can't be stopped."""
    registry.give(seconds)
    try:
        return waiting.within(lambda: question(registry), seconds + _GRACE_SECONDS)
    except TimeoutError:
        raise RegistryUnreachable(registry.host, f"no answer within {seconds:g} s") from None
