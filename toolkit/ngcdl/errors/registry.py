"""The registry, nvcr.io or a mirror of it, fails or refuses."""

from __future__ import annotations

from collections.abc import Sequence

from ngcdl.errors.base import NgcdlError


def _is_ngc(sign_in: str) -> bool:
    """Whether the command `sign_in` signs in with an NGC key; other registries use `docker login`."""
    return sign_in.startswith("ngcdl")


_CA = """A mirror, or a company's proxy that intercepts TLS, has its own CA. Name its file:
    export NGCDL_CA_FILE=/path/to/ca.crt
Or, for all programs (Docker after its next restart), copy it to /usr/local/share/ca-certificates:
    sudo update-ca-certificates"""
# Docker reads this file at each pull: https://docs.docker.com/engine/security/certificates/
_CA_OF_DOCKER = """Docker does not trust its certificate. On the engine's machine, install the CA of the mirror, or \
of the company's proxy that intercepts TLS:
    sudo install -D -m 644 /path/to/ca.crt /etc/docker/certs.d/{host}/ca.crt
The certificate itself must be valid today and name the host, or its address, as a subjectAltName."""
_INVALID = """No CA's file mends that: the certificate must be valid today and name the host, or its address, as a \
subjectAltName. Compare it with the address, and with this clock:
    curl -kvsI https://{host}/v2/ 2>&1 | grep -Ei 'subject|date'
    date -u"""


class RegistryError(NgcdlError):
    """The registry refused, or did not answer."""

    def may_be_a_proxy_s(self, told: str) -> None:
        """Put first that the answer, `told` in words, is not in the form of a registry's."""
        self.hint = f"A proxy in between may have refused it, as no registry's words came with it: {told}\n{self.hint}"

    def not_here_either(self, name: str) -> None:
        """Put first that the engine has no image `name`, which the user may have to build: no key helps."""
        self.message = f"Docker has no image {name} here, and {self.message}"
        self.hint = f"If it is your own, build it:\n    docker build -t {name} .\nIf it is NVIDIA's:\n{self.hint}"


class RegistryUnreachable(RegistryError):
    def __init__(
        self,
        host: str,
        why: str,
        *,
        is_untrusted: bool = False,
        is_invalid: bool = False,
        by_clock: bool = False,
        by_engine: bool = False,
    ) -> None:
        """`is_untrusted`: the host's certificate is not trusted here, or if `by_engine`, by the engine, which has CA
        files of its own. `is_invalid`: the certificate is not for that host or, `by_clock`, not valid now."""
        is_hub = host == "docker.io"  # engines call the registry so; at that address is a web site
        hint = (
            f"Check the network, then:\n    curl -sI https://{'registry-1.docker.io' if is_hub else host}/v2/\n"
            "Behind a proxy, set HTTPS_PROXY here and for the Docker daemon."
            f"{'' if is_hub else ' NGCDL_REGISTRY names a mirror.'}"
        )
        if is_untrusted:
            hint = _CA_OF_DOCKER.format(host=host) if by_engine else _CA
        elif is_invalid:
            hint = _INVALID.format(host=host)
        super().__init__(f"{host} can't be reached: {why}.", hint)
        self.by_clock = by_clock


class RegistryAnswer(RegistryError):
    def __init__(self, host: str, what: str, seconds: float | None = None) -> None:
        """`seconds`: how long it asks to wait; None if it does not say."""
        super().__init__(
            f"{host} did not answer like a registry: {what}",
            "A proxy or a login page may be in between, or the registry has trouble: try again in a few minutes.",
        )
        self.seconds = seconds


class RealmRefused(RegistryError):
    def __init__(self, host: str, realm: str, why: str, repository: str | None = None) -> None:
        """`realm` is where the registry sends sign-ins. With `repository`, the hint says that Docker may go there."""
        if repository:
            hint = (
                "Docker goes wherever it is sent, and ngcdl runs any image that the engine has:\n"
                f"    docker pull {host}/{repository}:TAG"
            )
        else:
            hint = f"Whoever runs the registry sets its token realm. What it sends:\n    curl -si https://{host}/v2/"
        super().__init__(f"{host} sends sign-ins to {realm}, where ngcdl does not go: {why}.", hint)


class RateLimited(RegistryError):
    def __init__(self, host: str, seconds: float | None) -> None:
        """`seconds`: how long it asks to wait; None if it does not say."""
        wait = f" It asks to wait {seconds:.0f} s." if seconds is not None else ""
        super().__init__(f"{host} is limiting the rate of requests.{wait}", "Try again later.")
        self.seconds = seconds


class NotAsked(RegistryError):
    def __init__(self, host: str, what: str) -> None:
        super().__init__(
            f"{host} was not asked about {what}, and nothing about it is stored here.",
            "Ask it once while the network is up; its answer is kept:\n"
            f"    ngcdl {'check' if ':' in what or '@' in what else 'images'} {what}",
        )


class KeyRejected(RegistryError):
    def __init__(self, host: str, source: str = "", sign_in: str = "ngcdl login", variable: str | None = None) -> None:
        # A variable takes precedence over stored keys: after a new login it would be used again.
        again = f"unset {variable} && {sign_in}" if variable else sign_in
        new = "Make a new one at https://org.ngc.nvidia.com/setup/api-keys (service: NGC Catalog)"
        super().__init__(
            f"{host} refused the key{f' from {source}' if source else ''} (401): it is wrong, expired or revoked.",
            f"{new if _is_ngc(sign_in) else 'Sign in again'}:\n    {again}",
        )


class KeyWithoutRights(RegistryError):
    def __init__(self, host: str, repository: str, status: int = 403, sign_in: str = "ngcdl login") -> None:
        needs = (
            "The key needs the service 'NGC Catalog'; for some images, accept their terms or have an organisation's "
            f"subscription first: https://catalog.ngc.nvidia.com/search?query={repository.rsplit('/', 1)[-1]}\n"
        )
        super().__init__(
            f"{host} accepts the key, but it gives no access to {repository} ({status}).",
            f"{needs if _is_ngc(sign_in) else ''}A misspelt name gets the same answer.",
        )


class LoginNeeded(RegistryError):
    def __init__(self, host: str, repository: str, sign_in: str = "ngcdl login") -> None:
        names = ": https://catalog.ngc.nvidia.com/containers" if _is_ngc(sign_in) else "."
        super().__init__(
            f"{host} serves {repository} only to users who are signed in.",
            f"    {sign_in}\nA misspelt name gets the same answer{names}",
        )


class UnknownTag(RegistryError):
    def __init__(self, reference: str, nearest: Sequence[str]) -> None:
        name = reference.partition("@")[0]
        name = name.rpartition(":")[0] if ":" in name.rpartition("/")[2] else name
        if nearest:
            hint = "The nearest ones:\n" + "\n".join(f"    {name}:{tag}" for tag in nearest)
            hint += f"\nAll of them, and which of them run here:\n    ngcdl images {name}"
        else:
            which = "no image with that digest" if "@" in reference else "no tag like it"
            hint = f"The registry lists {which}. What it has:\n    ngcdl images {name}"
        super().__init__(f"{reference} does not exist.", hint)
        self.nearest, self.name = tuple(nearest), name

    def means_version(self, what: str, tags: Sequence[str]) -> None:
        """Say which `tags` have `what`, to a user who typed the version of a framework for a tag, as on Docker Hub."""
        self.hint = (
            f"NGC's tags are releases, by year and month. With {what}, for example:\n"
            + "\n".join(f"    {self.name}:{tag}" for tag in tags)
            + f"\nAll of them, and which of them run here:\n    ngcdl images {self.name} --all"
        )

    def leads_on(self, line: str) -> None:
        """Say what to type, `line` with the nearest tag, to a user who left the tag to ngcdl."""
        self.hint = (
            "ngcdl's catalogue has that release, but this registry lacks it. The nearest that it has:\n"
            f"{line}\nAll of them, and which of them run here:\n    ngcdl images {self.name}"
        )


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
            f"{reference} is not built for {wanted} (it is for {have}).",
            "Take another tag, or a machine with that processor.",
        )


class BlobMissing(RegistryError):
    def __init__(self, host: str, digest: str) -> None:
        super().__init__(
            f"{host} names the blob {digest} in an image, but does not have it (404).",
            "The image is damaged there, or is being replaced right now: try again later, or take another tag.",
        )


class DigestMismatch(RegistryError):
    def __init__(self, what: str) -> None:
        super().__init__(
            f"What arrived does not match its digest: {what}",
            "Nothing was launched. Pull again; if it fails again, a proxy or a mirror is altering the bytes.",
        )
