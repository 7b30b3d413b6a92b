"""How a registry asks for a sign-in: its Www-Authenticate headers parsed, and the URL to get a token from.

Pure functions. nvcr.io sends `Bearer realm="https://nvcr.io/proxy_auth",scope="repository:nvidia/x:pull"`, without a
service. At /v2/ its scope is empty. If a token has expired, nvcr.io may name a realm on another host, with
error="invalid_token". Grammar: https://www.rfc-editor.org/rfc/rfc7235#section-4.1
Tokens: https://distribution.github.io/distribution/spec/auth/token/
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address
from urllib.parse import quote

from ngcdl.frozen import dataclass

_HEADER_LIMIT = 16384
_WORD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Unquoted values extend to the next comma or blank: registries leave URLs unquoted, against the grammar.
_VALUE = re.compile(r'\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*))', re.DOTALL)
_ACTIONS = frozenset({"pull", "push", "delete", "*"})
# Stricter than any URL parser, so that the host checked here and the host contacted later can't differ.
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?"
    r"(?P<rest>[/?][!-\[\]-~]*)?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Challenge:
    """A Bearer or a Basic challenge. `service` and `scope` are None if absent or empty."""

    realm: str  # the URL of the token server; "" with Basic
    service: str | None = None
    scope: str | None = None

    @property
    def is_basic(self) -> bool:
        """Whether the registry wants the key itself with each request, as Nexus and registry:2 with htpasswd do."""
        return not self.realm


@dataclass(frozen=True)
class Address:
    """The parts of an http or https URL: `host` is lower-case, without port and brackets."""

    scheme: str
    host: str
    port: int | None

    @property
    def is_safe(self) -> bool:
        """Whether secrets may be sent to this address: only encrypted, or to this machine itself."""
        return self.scheme == "https" or is_loopback(self.host)

    @property
    def netloc(self) -> str:
        """The host, and the port unless it is the scheme's usual one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = 443 if self.scheme == "https" else 80
        return host if self.port in (None, usual) else f"{host}:{self.port}"


def parse(header: str) -> Challenge | None:
    """Return the first Bearer challenge with a realm, else a Basic one, else None.

    `header` may hold several headers, which requests joins with commas.
    """
    found = challenges(header)
    for scheme, parameters in found:
        realm = parameters.get("realm")
        if scheme == "bearer" and realm:
            return Challenge(realm, parameters.get("service"), parameters.get("scope"))
    return Challenge("") if any(scheme == "basic" for scheme, _ in found) else None


def challenges(header: str) -> list[tuple[str, dict[str, str]]]:
    """Read every challenge as (scheme, parameters), with lower-case names and without empty values."""
    header = header[:_HEADER_LIMIT]
    found: list[tuple[str, dict[str, str]]] = []
    position, unquoted_scope = 0, False
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
                unquoted_scope = False
            position = word.end()
            continue
        text = re.sub(r"\\(.)", r"\1", value[1], flags=re.DOTALL) if value[1] is not None else value[2]
        if found and text.strip():
            found[-1][1].setdefault(name, text.strip())
        unquoted_scope = bool(found) and name == "scope" and bool(value[2])
        position = value.end()
    return found


def token_url(challenge: Challenge, scope: str | None = None) -> str:
    """Return the URL to fetch a token from; `scope` is used if the challenge names none.

    A realm may carry its own query, already encoded: it is left unchanged.
    """
    url = challenge.realm.split("#", 1)[0]
    pairs = [("service", challenge.service)] if challenge.service else []
    pairs += [("scope", part) for part in (challenge.scope or scope or "").split()]
    for name, value in pairs:
        separator = "?" if "?" not in url else "" if url.endswith(("?", "&")) else "&"
        url += f"{separator}{name}={quote(value or '', safe=':/,*@')}"
    return url


def address(url: str) -> Address | None:
    """Parse a URL; return None for anything unusual: other schemes, a user name, blanks, backslashes."""
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
    """Return whether `host` is this machine: 127.0.0.0/8, ::1 or localhost, as for Docker."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_inside(host: str) -> bool:
    """Return whether `host` has no meaning on the internet: localhost, or a loopback, private or link-local address."""
    try:
        return not ip_address(host).is_global
    except ValueError:
        return is_loopback(host)


def base_url(host: str) -> str:
    """Return a registry's base URL: https, or plain http on this machine only."""
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    return f"{'http' if is_loopback(name.strip('[]')) else 'https'}://{host}"
