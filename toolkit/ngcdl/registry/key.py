"""A key as ngcdl holds it: readable by nobody who did not ask, checked before it is sent anywhere."""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from ngcdl.errors import BadKey

# NGC's user name is this literal text for every kind of key: https://docs.nvidia.com/ngc/latest/ngc-catalog-user-guide.html
NGC_USERNAME = "$oauthtoken"
# Docker's mark for "the secret is an identity token": https://docs.docker.com/reference/cli/docker/login/#credential-helper-protocol
TOKEN_USERNAME = "<token>"
KEY_LIMIT_BYTES = 4096


class Secret:
    """A text that shows as *** wherever it is printed, logged or recorded."""

    __slots__ = ("__text",)

    def __init__(self, text: str) -> None:
        self.__text = text

    def reveal(self) -> str:
        """Give the text itself, for a header, a helper's stdin or a file, and nothing else."""
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
    """Who to be at a registry. `source` says in words for people where it was found."""

    username: str
    secret: Secret
    source: str

    def docker_auth(self) -> dict[str, str]:
        """Give what the Docker SDK takes as `auth_config`. It holds the secret in clear: send it, never show it."""
        if self.username == TOKEN_USERNAME:
            return {"identitytoken": self.secret.reveal()}
        return {"username": self.username, "password": self.secret.reveal()}


def check_key(text: str) -> Secret:
    """Take the line ending and blanks around a key away. Raises BadKey, which never repeats the key."""
    key = text.strip()
    if not key:
        raise BadKey("it is empty")
    if len(key) > KEY_LIMIT_BYTES:
        raise BadKey(f"it is longer than {KEY_LIMIT_BYTES} characters")
    if len(key.split()) > 1:
        raise BadKey("there are blanks or line ends inside it")
    if not all("!" <= character <= "~" for character in key):
        raise BadKey("it holds characters that no key has (only visible ASCII)")
    return Secret(key)
