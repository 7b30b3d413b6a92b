"""nvcr.io, or a mirror of it."""

from __future__ import annotations

from collections.abc import Sequence

from ngcdl.errors.base import NgcdlError


def _is_ngc(sign_in: str) -> bool:
    """Is what signs in a key of NGC's? Other registries are `docker login`'s."""
    return sign_in.startswith("ngcdl")


_CA = """A mirror, or a company's proxy that opens TLS, has a CA of its own. Name its file:
    export NGCDL_CA_FILE=/path/to/ca.crt
Or copy it to /usr/local/share/ca-certificates, for all programs (for Docker from its next start on):
    sudo update-ca-certificates"""
# It is read at each pull: https://docs.docker.com/engine/security/certificates/
_CA_OF_DOCKER = """Docker does not trust its certificate. Where the engine runs, give it the CA of the mirror, or of the
company's proxy that opens TLS:
    sudo install -D -m 644 /path/to/ca.crt /etc/docker/certs.d/{host}/ca.crt
The certificate itself has to be valid today and to name the host, or its address, as a subjectAltName."""


class RegistryError(NgcdlError):
    """The registry said no, or nothing."""


class RegistryUnreachable(RegistryError):
    def __init__(self, host: str, why: str, *, is_untrusted: bool = False, by_engine: bool = False) -> None:
        """`is_untrusted`: its certificate is not trusted here, or `by_engine`, which has files of its own."""
        hint = (
            f"Check the network, then:\n    curl -sI https://{host}/v2/\n"
            "Behind a proxy, set HTTPS_PROXY here and for the Docker daemon. A mirror is named by NGCDL_REGISTRY."
        )
        if is_untrusted:
            hint = _CA_OF_DOCKER.format(host=host) if by_engine else _CA
        super().__init__(f"{host} can't be reached: {why}.", hint)


class RegistryAnswer(RegistryError):
    def __init__(self, host: str, what: str) -> None:
        super().__init__(
            f"{host} did not answer as a registry does: {what}",
            "A proxy or a login page may stand in between, or the registry has trouble: try again in a few minutes.",
        )


class RateLimited(RegistryError):
    def __init__(self, host: str, seconds: float | None) -> None:
        wait = f" It asks to wait {seconds:g} s." if seconds is not None else ""
        super().__init__(f"{host} limits the number of requests.{wait}", "Try again later.")


class NotAsked(RegistryError):
    def __init__(self, host: str, what: str) -> None:
        super().__init__(
            f"{host} was not asked about {what}, and nothing is known of it here.",
            "Its answer is kept once it was asked, with the network there:\n"
            f"    ngcdl {'check' if ':' in what or '@' in what else 'images'} {what}",
        )


class KeyRejected(RegistryError):
    def __init__(self, host: str, source: str = "", sign_in: str = "ngcdl login") -> None:
        # a variable goes before everything that is kept: a new login would meet the same key again
        variable = source.removeprefix("the variable ")
        again = f"unset {variable} && {sign_in}" if variable.isupper() else sign_in
        new = "Make a new one at https://org.ngc.nvidia.com/setup/api-keys (service: NGC Catalog)"
        super().__init__(
            f"{host} refused the key{f' of {source}' if source else ''} (401): it is wrong, expired or revoked.",
            f"{new if _is_ngc(sign_in) else 'Sign in anew'}:\n    {again}",
        )


class KeyWithoutRights(RegistryError):
    def __init__(self, host: str, repository: str, status: int = 403, sign_in: str = "ngcdl login") -> None:
        needs = (
            "The key needs the service 'NGC Catalog', and some images need their terms accepted or an organisation's\n"
            f"subscription first: https://catalog.ngc.nvidia.com/search?query={repository.rsplit('/', 1)[-1]}\n"
        )
        super().__init__(
            f"{host} knows the key, but it has no right to {repository} ({status}).",
            f"{needs if _is_ngc(sign_in) else ''}A misspelt name gets the same answer.",
        )


class LoginNeeded(RegistryError):
    def __init__(self, host: str, repository: str, sign_in: str = "ngcdl login") -> None:
        names = ": https://catalog.ngc.nvidia.com/containers" if _is_ngc(sign_in) else "."
        super().__init__(
            f"{host} gives {repository} only to those who are signed in.",
            f"    {sign_in}\nA misspelt name gets the same answer{names}",
        )


class UnknownTag(RegistryError):
    def __init__(self, reference: str, nearest: Sequence[str]) -> None:
        name = reference.partition("@")[0]
        name = name.rpartition(":")[0] if ":" in name.rpartition("/")[2] else name
        if nearest:
            hint = "The nearest ones:\n" + "\n".join(f"    {name}:{tag}" for tag in nearest)
        else:
            which = "no image of that digest" if "@" in reference else "no tag like it"
            hint = f"The registry lists {which}. What it has:\n    ngcdl images {name}"
        super().__init__(f"{reference} does not exist.", hint)
        self.nearest = tuple(nearest)


class UnknownRepository(RegistryError):
    def __init__(self, host: str, repository: str, sign_in: str = "ngcdl login") -> None:
        names = " at https://catalog.ngc.nvidia.com/containers" if _is_ngc(sign_in) else ""
        super().__init__(
            f"{host} has no {repository}, or shows it only to other keys.",
            f"Check the spelling{names}; for a gated image sign in first:\n    {sign_in}",
        )


class WrongPlatform(RegistryError):
    def __init__(self, reference: str, wanted: str, offered: Sequence[str]) -> None:
        have = ", ".join(offered) if offered else "others"
        super().__init__(
            f"{reference} is not made for {wanted} (it is for {have}).",
            "Take another tag, or a machine with that processor.",
        )


class BlobMissing(RegistryError):
    def __init__(self, host: str, digest: str) -> None:
        super().__init__(
            f"{host} names the blob {digest} in an image, but does not have it (404).",
            "The image is damaged there, or it is just being replaced: try again later, or take another tag.",
        )


class DigestMismatch(RegistryError):
    def __init__(self, what: str) -> None:
        super().__init__(
            f"What arrived is not what its digest promises: {what}",
            "Nothing was launched. Pull once more; if it happens again, a proxy or a mirror changes the bytes.",
        )
