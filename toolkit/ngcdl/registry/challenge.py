"""How a registry asks who one is: its Www-Authenticate headers, read, and the address to get a token from.

Pure. nvcr.io's own shapes: `Bearer realm="https://nvcr.io/proxy_auth",scope="repository:nvidia/x:pull"`, without a
service; at /v2/ the scope is empty; after a token has expired the realm may move to another host, with
error="invalid_token". Grammar: https://www.rfc-editor.org/rfc/rfc7235#section-4.1
Tokens: https://distribution.github.io/distribution/spec/auth/token/
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from urllib.parse import quote

_HEADER_LIMIT = 16384
_WORD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Unquoted values go on to the next comma or blank: registries write addresses without quotes, against the grammar.
_VALUE = re.compile(r'\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*))', re.DOTALL)
_ACTIONS = frozenset({"pull", "push", "delete", "*"})
# Stricter than any URL parser, so that what is checked here and what is dialled later can't be two hosts.
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?"
    r"(?P<rest>[/?][!-\[\]-~]*)?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Challenge:
    """A Bearer challenge. `service`, `scope` and `error` are None where absent or empty."""

    realm: str
    service: str | None = None
    scope: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class Address:
    """An http or https address in parts: `host` in small letters, without port and brackets."""

    scheme: str
    host: str
    port: int | None

    @property
    def is_safe(self) -> bool:
        """May secrets go there? Encrypted, or to this machine itself."""
        return self.scheme == "https" or is_loopback(self.host)


def parse(headers: Iterable[str]) -> Challenge | None:
    """Give the first Bearer challenge with a realm, from one or many headers; None where there is none."""
    for scheme, parameters in challenges(headers):
        realm = parameters.get("realm")
        if scheme == "bearer" and realm:
            return Challenge(realm, parameters.get("service"), parameters.get("scope"), parameters.get("error"))
    return None


def challenges(headers: Iterable[str]) -> list[tuple[str, dict[str, str]]]:
    """Read every challenge as (scheme, parameters), names in small letters; empty values are left out."""
    found: list[tuple[str, dict[str, str]]] = []
    for header in headers:
        _read(header[:_HEADER_LIMIT], found)
    return found


def _read(header: str, found: list[tuple[str, dict[str, str]]]) -> None:
    position, unquoted_scope, started = 0, False, False
    while position < len(header):
        word = _WORD.match(header, position)
        if word is None:
            position += 1
            continue
        value = _VALUE.match(header, word.end())
        name = word[0].lower()
        if value is None:
            if unquoted_scope and name in _ACTIONS:
                found[-1][1]["scope"] += f",{word[0]}"
            else:
                found.append((name, {}))
                unquoted_scope, started = False, True
            position = word.end()
            continue
        text = re.sub(r"\\(.)", r"\1", value[1], flags=re.DOTALL) if value[1] is not None else value[2]
        if started and text.strip():
            found[-1][1].setdefault(name, text.strip())
        unquoted_scope = started and name == "scope" and bool(value[2])
        position = value.end()


def token_url(challenge: Challenge, scope: str | None = None) -> str:
    """Give the address that a token is fetched from; `scope` stands in where the challenge names none.

    A realm may carry a query of its own, with parts encoded already: both are left as they are.
    """
    url = challenge.realm.split("#", 1)[0]
    pairs = [("service", challenge.service)] if challenge.service else []
    pairs += [("scope", part) for part in (challenge.scope or scope or "").split()]
    for name, value in pairs:
        separator = "?" if "?" not in url else "" if url.endswith(("?", "&")) else "&"
        url += f"{separator}{name}={quote(value or '', safe=':/,*@')}"
    return url


def address(url: str) -> Address | None:
    """Read where an address leads; None for anything unusual: other schemes, a user name, blanks, backslashes."""
    match = _URL.fullmatch(url)
    if match is None or int(match["port"] or 443) > 65535:
        return None
    if match["host"].startswith("["):
        try:
            IPv6Address(match["host"].strip("[]"))
        except ValueError:
            return None
    port = int(match["port"]) if match["port"] else None
    return Address(match["scheme"].lower(), match["host"].strip("[]").lower(), port)


def is_loopback(host: str) -> bool:
    """Is it this machine? 127.0.0.0/8, ::1 and localhost, as Docker has it."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def base_url(host: str) -> str:
    """Give the address of a registry: https, and plain http only on this machine."""
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    if host.count(":") > 1 and not host.startswith("["):
        name = host
    return f"{'http' if is_loopback(name.strip('[]')) else 'https'}://{host}"
