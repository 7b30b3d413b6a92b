"""A key as ngcdl holds it: hidden unless revealed explicitly, checked before it is sent anywhere."""

from __future__ import annotations

import hmac
from pathlib import Path

from ngcdl.errors import BadKey
from ngcdl.frozen import dataclass

# NGC's user name is this literal string for every kind of key:
# https://docs.nvidia.com/ngc/latest/ngc-catalog-user-guide.html
NGC_USERNAME = "$oauthtoken"
# Docker's mark for "the secret is an identity token":
# https://docs.docker.com/reference/cli/docker/login/#credential-helper-protocol
TOKEN_USERNAME = "<token>"
KEY_LIMIT_BYTES = 4096


class Secret:
    """A string that shows as *** wherever it is printed, logged or recorded."""

    __slots__ = ("__text",)

    def __init__(self, text: str) -> None:
        self.__text = text

    def reveal(self) -> str:
        """Return the text itself, for a header, a helper's stdin or a file, and nothing else."""
        return self.__text

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __format__(self, _spec: str) -> str:
        return "***"

    def __reduce__(self) -> str:
        raise TypeError("a Secret is not pickled")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._bytes(), other._bytes())

    def __hash__(self) -> int:
        return hash(self._bytes())

    def _bytes(self) -> bytes:
        return self.__text.encode(errors="surrogatepass")


@dataclass(frozen=True)
class Credential:
    """A user name and key for a registry. `source` tells people where it was found: in the environment's `variable`,
    unencrypted in `file`, or elsewhere."""

    username: str
    secret: Secret
    source: str
    variable: str | None = None
    file: Path | None = None

    def docker_auth(self) -> dict[str, str]:
        """Return the Docker SDK's `auth_config`. It holds the secret in clear text: send it, never show it."""
        if self.username == TOKEN_USERNAME:
            return {"identitytoken": self.secret.reveal()}
        return {"username": self.username, "password": self.secret.reveal()}


def check_key(text: str) -> Secret:
    """Strip blanks and line breaks around a key. Raise BadKey, which never repeats the key."""
    key = text.strip()
    if not key:
        raise BadKey("it is empty")
    if len(key) > KEY_LIMIT_BYTES:
        raise BadKey(f"it is longer than {KEY_LIMIT_BYTES} characters")
    if len(key.split()) > 1:
        raise BadKey("it contains blanks or line breaks")
    if not all("!" <= character <= "~" for character in key):
        raise BadKey("it contains characters that no key has (a key is visible ASCII)")
    return Secret(key)
