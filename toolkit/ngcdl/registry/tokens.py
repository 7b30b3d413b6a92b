"""Where a registry's tokens come from, how long they last, and which hosts may get the key."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ngcdl.errors import KeyRejected, KeyWithoutRights, LoginNeeded, RealmRefused, RegistryAnswer
from ngcdl.excerpt import excerpt
from ngcdl.registry import challenge
from ngcdl.registry.challenge import Address, Challenge
from ngcdl.registry.credentials import sign_in
from ngcdl.registry.docker_config import HUB_HOSTS
from ngcdl.registry.key import TOKEN_USERNAME, Credential, Secret
from ngcdl.registry.wire import Request, Response, Wire
from ngcdl.spec import NVCR

# The hosts with known realms. NGC's has moved from nvcr.io to authn.nvidia.com, and Docker Hub's is auth.docker.io:
# https://github.com/NVIDIA/nvidia-container-toolkit/issues/1945 https://docs.docker.com/docker-hub/usage/pulls/
_DOMAINS = {NVCR: ("nvcr.io", "nvidia.com"), **dict.fromkeys(HUB_HOSTS, ("docker.io", "docker.com"))}
# The lifetime of a token without expires_in: https://distribution.github.io/distribution/spec/auth/token/
_DEFAULT_SECONDS = 60.0
_MARGIN_SECONDS = 5.0
_TOKEN = re.compile(r"[!-~]+")


@dataclass
class Tokens:
    """One registry's tokens by repository, anonymous without a credential."""

    host: str
    credential: Credential | None
    wire: Wire
    clock: Callable[[], float]
    _held: dict[str, tuple[Secret, float]] = field(default_factory=dict, repr=False)

    def held(self, repository: str) -> Secret | None:
        """Return the token for `repository` if it is still valid."""
        token, until = self._held.get(repository, (None, 0.0))
        return token if self.clock() < until else None

    def drop(self, repository: str) -> None:
        """Forget a token that the registry no longer accepts."""
        self._held.pop(repository, None)

    def fetch(self, asked: Challenge, repository: str) -> Secret:
        """Get a token as `asked`. Raise KeyRejected, KeyWithoutRights, LoginNeeded, RealmRefused or RegistryAnswer.

        For a Basic challenge the token is the key itself, so callers pass only challenges of the registry's own host.
        """
        if asked.is_basic:
            if self.credential is None:
                raise LoginNeeded(self.host, repository, self._sign_in(asked))
            if self.credential.username == TOKEN_USERNAME:
                raise self.rejected(asked)
            self._held[repository] = self._basic(self.credential), math.inf
            return self._held[repository][0]
        answer = self.wire.ask(self._question(asked, repository))
        if answer.status != 200:
            self._refuse(answer, asked, repository)
        token, seconds = self._read(answer)
        self._held[repository] = token, self.clock() + max(seconds - _MARGIN_SECONDS, seconds / 2)
        return token

    def _question(self, asked: Challenge, repository: str) -> Request:
        realm = challenge.address(asked.realm)
        scope = f"repository:{repository}:pull"
        is_plain = realm is None or (realm.scheme == "http" and not self._is_here(realm))
        if self.credential is None:
            if is_plain:
                raise RegistryAnswer(self.host, "it sends sign-ins to an unencrypted address, or to none.")
            return Request(challenge.token_url(asked, scope), follow=False)
        if realm is None or is_plain:
            raise RealmRefused(self.host, excerpt(asked.realm, limit=100), "that is not an https address")
        if why := self._objection(realm):
            raise RealmRefused(self.host, realm.host, why, repository)
        if self.credential.username == TOKEN_USERNAME:
            return self._refresh(asked, scope)
        return Request(challenge.token_url(asked, scope), authorization=self._basic(self.credential), follow=False)

    @staticmethod
    def _basic(credential: Credential) -> Secret:
        pair = f"{credential.username}:{credential.secret.reveal()}".encode()
        return Secret(f"Basic {base64.b64encode(pair).decode()}")

    def _sign_in(self, asked: Challenge) -> str:
        return f"docker login {self.host}" if asked.is_basic else sign_in(self.host)

    def rejected(self, asked: Challenge) -> KeyRejected:
        """Return the error for a key that the registry, or its token server, does not accept."""
        source, variable = (self.credential.source, self.credential.variable) if self.credential else ("", None)
        return KeyRejected(self.host, source, self._sign_in(asked), variable)

    def _refresh(self, asked: Challenge, scope: str) -> Request:
        # Identity tokens use OAuth2: https://distribution.github.io/distribution/spec/auth/oauth/
        assert self.credential is not None
        form = (
            ("grant_type", Secret("refresh_token")),
            ("client_id", Secret("ngcdl")),
            ("service", Secret(asked.service or "")),
            ("scope", Secret(asked.scope or scope)),
            ("refresh_token", self.credential.secret),
        )
        return Request(asked.realm.split("#", 1)[0], form=form, follow=False)

    def _own(self) -> Address | None:
        return challenge.address(challenge.base_url(self.host))

    def _is_here(self, realm: Address) -> bool:
        """Return whether registry and realm are both on this machine: only there plain http is accepted."""
        own = self._own()
        return own is not None and challenge.is_loopback(own.host) and challenge.is_loopback(realm.host)

    def _objection(self, realm: Address) -> str | None:
        """Return why the key must not go to `realm`, None if it may.

        A registry gets its own key anyway, so it may safely name another internet host, as GitLab's registry does.
        Docker and crane accept such a realm, too; the rule for addresses inside a network is crane's:
        https://github.com/google/go-containerregistry/blob/main/pkg/v1/remote/transport/bearer.go
        """
        own = self._own()
        if self._is_here(realm) or (own is not None and realm.host == own.host):
            return None
        if domains := _DOMAINS.get(self.host):
            is_known = any(f".{realm.host}".endswith(f".{domain}") for domain in domains)
            is_usual = is_known and realm.port in (None, 443)
            return None if is_usual else f"its key goes only to hosts of {' and '.join(domains)}"
        return "that is an address inside a network" if challenge.is_inside(realm.host) else None

    def _refuse(self, answer: Response, asked: Challenge, repository: str) -> None:
        key = self.credential
        if key is None and answer.status in (401, 402, 403):
            raise LoginNeeded(self.host, repository, sign_in(self.host))
        # OAuth2's invalid_grant is a 400
        if key and (answer.status == 401 or (answer.status == 400 and key.username == TOKEN_USERNAME)):
            raise self.rejected(asked)
        if key and answer.status in (402, 403):
            raise KeyWithoutRights(self.host, repository, answer.status, sign_in(self.host))
        raise RegistryAnswer(self.host, f"asked for a token, it answered {answer.told}")

    def _read(self, answer: Response) -> tuple[Secret, float]:
        # The content type may be text/..., so it is ignored: https://github.com/NERSC/shifter/pull/238
        try:
            tree: Any = json.loads(answer.body)
        except (ValueError, RecursionError):
            # Show only the beginning of a web page: anything else may be a truncated token.
            told = answer.told if answer.body.lstrip()[:1] == b"<" else "its token is not JSON."
            raise RegistryAnswer(self.host, told) from None
        token = (tree.get("token") or tree.get("access_token")) if isinstance(tree, dict) else None
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise RegistryAnswer(self.host, "asked for a token, it returned none.")
        seconds = tree.get("expires_in")
        good = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < 1e9
        return Secret(f"Bearer {token}"), float(seconds) if good else _DEFAULT_SECONDS
