"""nvcr.io's access rules as users have observed them: challenge, token, key and refusal.

  * `/v2/...` without a valid token: 401, `Bearer
    realm="http://127.0.0.1:PORT/proxy_auth",scope="repository:NAME:pull"`, never a `service`; at `/v2/`
    itself the scope is empty. Basic sent directly to /v2/ gets 401, too. POST to the realm gets 405.
  * `/proxy_auth`: anonymous or Basic `$oauthtoken:KEY`; the answer is JSON labelled text/plain. An unknown or revoked
    key gets 401, and so does an anonymous request for a repository that needs a key.
  * A key without the permission, a gated repository, and a repository that does not exist: 403 DENIED for the manifest
    and for the tag list.
  * Only the push account may write, anywhere.
Tokens are opaque, kept in memory and lost when this program ends.

ACCOUNTS.json: {"keys": {KEY: "valid" | "revoked" | "no-rights"}, "push": {"user": ..., "password": ...}}
"""

from __future__ import annotations

import base64
import json
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from answers import DENIED, Refused

NEEDS_KEY = {"nvidia/tensorflow", "nvidia/pytorch", "nvidia/gated"}
GATED = {"nvidia/gated"}
UNAUTHORIZED = '{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}'
NO_TOKEN = "authentication required\n"  # the body of the realm's own 401: docker prints it after "unauthorized: "
TEXT = {"Content-Type": "text/plain; charset=utf-8"}


@dataclass(frozen=True)
class Token:
    account: str  # anonymous, valid, no-rights or push
    scope: str
    expires: float


@dataclass
class Tokens:
    """The tokens that were issued, and the accounts that may get one."""

    accounts: dict[str, Any]
    given: dict[str, Token] = field(default_factory=dict)

    def give(self, authorization: str, scope: str, lifetime_seconds: float, moved: bool) -> str:
        """Issue a token; return the realm's JSON. `moved`: asked at the realm of `realm_moves`. Raise Refused."""
        account = self._account(authorization)
        name = scope.split(":")[1] if scope.count(":") >= 2 else ""
        is_refused = account in (None, "revoked")
        if is_refused or (account == "anonymous" and (moved or name in NEEDS_KEY)):
            raise Refused(401, NO_TOKEN, TEXT)
        text = secrets.token_urlsafe(48)
        self.given[text] = Token(str(account), scope, time.monotonic() + lifetime_seconds)
        return json.dumps({"token": text, "expires_in": lifetime_seconds})

    def _account(self, authorization: str) -> str | None:
        """Return the account that a request's key belongs to; None for an unknown key."""
        kind, _, value = authorization.partition(" ")
        if kind.lower() != "basic":
            return "anonymous"
        try:
            user, _, password = base64.b64decode(value).decode().partition(":")
        except ValueError:
            return None
        push = self.accounts["push"]
        if (user, password) == (push["user"], push["password"]):
            return "push"
        return self.accounts["keys"].get(password) if user == "$oauthtoken" else None

    def of(self, authorization: str) -> Token | None:
        """Return the token that came with a request, if it is still valid."""
        token = self.given.get(authorization.partition(" ")[2]) if is_bearer(authorization) else None
        return token if token and token.expires >= time.monotonic() else None


def is_bearer(authorization: str) -> bool:
    return authorization.partition(" ")[0].lower() == "bearer"


def challenge(address: str, name: str, is_writing: bool, has_moved: bool) -> Refused:
    """Return the 401 that names the realm for this repository, or for `/v2/` itself (empty name)."""
    if has_moved:
        told = f'Bearer realm="{address}/token",service="registry",error="invalid_token"'
    else:
        scope = f"repository:{name}:{'pull,push' if is_writing else 'pull'}" if name else ""
        told = f'Bearer realm="{address}/proxy_auth",scope="{scope}"'
    return Refused(401, UNAUTHORIZED, {"Www-Authenticate": told})


def check(token: Token, name: str, is_writing: bool) -> None:
    """Allow this token's access to the repository, or raise Refused as nvcr.io would."""
    if not name or token.account == "push":
        return
    if is_writing or (name in NEEDS_KEY and token.account != "valid") or name in GATED:
        raise Refused(403, DENIED)
