"""Where a registry's tokens come from, how long they last, and who may be shown the key."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ngcdl.errors import KeyRejected, KeyWithoutRights, LoginNeeded, RegistryAnswer
from ngcdl.registry import challenge
from ngcdl.registry.challenge import Address, Challenge
from ngcdl.registry.credentials import sign_in
from ngcdl.registry.docker_config import HUB_HOSTS
from ngcdl.registry.key import TOKEN_USERNAME, Credential, Secret
from ngcdl.registry.wire import Answer, Question, Wire

# NGC's realm has moved from the one to the other: https://github.com/NVIDIA/nvidia-container-toolkit/issues/1945
NVIDIA_REALM_HOSTS = frozenset({"nvcr.io", "authn.nvidia.com"})
HUB_REALM_HOSTS = frozenset({"auth.docker.io"})  # https://docs.docker.com/docker-hub/usage/pulls/
# What a token without expires_in is good for: https://distribution.github.io/distribution/spec/auth/token/
_DEFAULT_SECONDS = 60.0
_MARGIN_SECONDS = 5.0
_TOKEN = re.compile(r"[!-~]+")


@dataclass
class Tokens:
    """The tokens of one registry by repository. Anonymous where there is no credential."""

    host: str
    credential: Credential | None
    wire: Wire
    clock: Callable[[], float]
    _held: dict[str, tuple[Secret, float]] = field(default_factory=dict, repr=False)

    def held(self, repository: str) -> Secret | None:
        """Give the token for `repository` that is still good."""
        token, until = self._held.get(repository, (None, 0.0))
        return token if self.clock() < until else None

    def drop(self, repository: str) -> None:
        """Forget a token that the registry no longer takes."""
        self._held.pop(repository, None)

    def fetch(self, asked: Challenge, repository: str) -> Secret:
        """Get a token as `asked`. Raises KeyRejected, KeyWithoutRights, LoginNeeded or RegistryAnswer."""
        answer = self.wire.ask(self._question(asked, repository))
        if answer.status != 200:
            self._refuse(answer, repository)
        token, seconds = self._read(answer)
        self._held[repository] = token, self.clock() + max(seconds - _MARGIN_SECONDS, seconds / 2)
        return token

    def _question(self, asked: Challenge, repository: str) -> Question:
        realm = challenge.address(asked.realm)
        scope = f"repository:{repository}:pull"
        if realm is None or not realm.is_safe or (realm.scheme == "http" and not self._is_here(realm)):
            raise RegistryAnswer(self.host, "it sends sign-ins to an address without encryption, or to none.")
        if self.credential is None:
            return Question(challenge.token_url(asked, scope), follow=False)
        if not self._may_see_key(realm):
            raise RegistryAnswer(self.host, f"it sends sign-ins to {realm.host}, which is not given the key.")
        if self.credential.username == TOKEN_USERNAME:
            return self._refresh(asked, scope)
        pair = f"{self.credential.username}:{self.credential.secret.reveal()}".encode()
        basic = Secret(f"Basic {base64.b64encode(pair).decode()}")
        return Question(challenge.token_url(asked, scope), authorization=basic, follow=False)

    def _refresh(self, asked: Challenge, scope: str) -> Question:
        # Identity tokens go the OAuth2 way: https://distribution.github.io/distribution/spec/auth/oauth/
        assert self.credential is not None
        form = (
            ("grant_type", Secret("refresh_token")),
            ("client_id", Secret("ngcdl")),
            ("service", Secret(asked.service or "")),
            ("scope", Secret(asked.scope or scope)),
            ("refresh_token", self.credential.secret),
        )
        return Question(asked.realm.split("#", 1)[0], form=form, follow=False)

    def _own(self) -> Address | None:
        return challenge.address(challenge.base_url(self.host))

    def _is_here(self, realm: Address) -> bool:
        """Are registry and realm both on this machine? Only there is plain http taken."""
        own = self._own()
        return own is not None and challenge.is_loopback(own.host) and challenge.is_loopback(realm.host)

    def _may_see_key(self, realm: Address) -> bool:
        own = self._own()
        if self._is_here(realm) or (own is not None and realm.host == own.host):
            return realm.is_safe
        hosts = HUB_REALM_HOSTS if self.host in HUB_HOSTS else NVIDIA_REALM_HOSTS
        return realm.scheme == "https" and realm.port in (None, 443) and realm.host in hosts

    def _refuse(self, answer: Answer, repository: str) -> None:
        refresh = self.credential is not None and self.credential.username == TOKEN_USERNAME
        if answer.status == 401 or (answer.status == 400 and refresh):  # OAuth2's invalid_grant is a 400
            raise (
                KeyRejected(self.host, self.credential.source, sign_in(self.host))
                if self.credential
                else LoginNeeded(self.host, repository, sign_in(self.host))
            )
        if answer.status in (402, 403):
            if self.credential is None:
                raise LoginNeeded(self.host, repository, sign_in(self.host))
            raise KeyWithoutRights(self.host, repository, answer.status, sign_in(self.host))
        raise RegistryAnswer(self.host, f"asked for a token, it said {answer.told}")

    def _read(self, answer: Answer) -> tuple[Secret, float]:
        # The content type has been text/..., so it is not looked at: https://github.com/NERSC/shifter/pull/238
        try:
            tree: Any = json.loads(answer.body)
        except (ValueError, RecursionError):
            # Only a web page's beginning is shown: anything else may be a token, cut short.
            told = answer.told if answer.body.lstrip()[:1] == b"<" else "its token is not JSON."
            raise RegistryAnswer(self.host, told) from None
        token = (tree.get("token") or tree.get("access_token")) if isinstance(tree, dict) else None
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise RegistryAnswer(self.host, "asked for a token, it gave none.")
        seconds = tree.get("expires_in")
        good = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < 1e9
        return Secret(f"Bearer {token}"), float(seconds) if good else _DEFAULT_SECONDS
