"""What a registry has: its tags, an image's manifest and config blob, and why something is unavailable.

It imports requests, so only the functions that use this module import it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self, TypeVar
from urllib.parse import urljoin

from ngcdl.errors import (
    BlobMissing,
    DigestMismatch,
    KeyRejected,
    KeyWithoutRights,
    LoginNeeded,
    RegistryAnswer,
    RegistryError,
    UnknownRepository,
    UnknownTag,
    WrongPlatform,
)
from ngcdl.registry import challenge, manifest
from ngcdl.registry.credentials import sign_in
from ngcdl.registry.docker_config import HUB_HOSTS
from ngcdl.registry.key import Credential
from ngcdl.registry.manifest import Document, Layer, Manifest
from ngcdl.registry.nearest import nearest
from ngcdl.registry.tokens import Tokens
from ngcdl.registry.wire import TIMEOUT_SECONDS, R, Request, Response, Stream, Wire, host_of
from ngcdl.spec import ImageRef

T = TypeVar("T")

# This repository has been public since the end of 2020, so a refusal is about the key and not about rights.
PUBLIC_REPOSITORY = "nvidia/tensorflow"
LINUX_AMD64 = ("linux", "amd64")
_VERSION = "Docker-Distribution-Api-Version"
_PAGE = 1000
_PAGES = 500
_TAGS_LIMIT_BYTES = 64 << 20  # of all pages: hundreds of thousands of tags
_INDEXES = 4  # one inside another
_HOSTS = {"docker.io": "registry-1.docker.io"}


class Registry:
    """One registry as seen by one user, anonymous without a credential. Use it in a `with`, or close it."""

    def __init__(
        self,
        host: str,
        credential: Credential | None = None,
        *,
        timeout_seconds: tuple[float, float] = TIMEOUT_SECONDS,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.host = host
        self._base = challenge.base_url(_HOSTS.get(host, host))
        self._wire = Wire(timeout_seconds, sleep)
        self._clock = clock
        self._tokens = Tokens(host, credential, self._wire, clock)
        self._heard: dict[str, challenge.Challenge] = {}  # the last challenge of each repository
        self._unanswered: dict[str, challenge.Challenge] = {}  # those that a new key can answer without another 401

    @property
    def asked_requests(self) -> int:
        """The number of requests sent so far, including those to the token server."""
        return self._wire.asked_requests

    @property
    def asked_bytes(self) -> int:
        """The number of bytes received so far, without headers and without the blobs that were opened."""
        return self._wire.asked_bytes

    def give(self, seconds: float) -> None:
        """Limit all requests from now on to `seconds` in total; after that they raise RegistryUnreachable."""
        self._wire.give(seconds)

    def sign_in(self, credential: Credential) -> None:
        """Continue with a key after an anonymous refusal, and reuse the challenges heard so far."""
        self._tokens = Tokens(self.host, credential, self._wire, self._clock)
        self._unanswered = dict(self._heard)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_about: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; harmless twice."""
        self._wire.close()

    def ping(self) -> bool:
        """Check that a registry answers; return whether it requires sign-ins. Raise RegistryError."""
        return self._challenge("/v2/") is not None

    def verify(self, credential: Credential) -> bool:
        """Check the key with the registry. Return False if it requires no sign-in, so that the key was not checked.

        Raise KeyRejected if the registry refuses it. A key without rights to one repository is still a good key.
        """
        # nvcr.io's challenge at /v2/ has an empty scope, for which anybody gets a token: so always name a scope.
        path = f"/v2/{PUBLIC_REPOSITORY}/tags/list?n=1"
        asked = self._challenge("/v2/") or self._challenge(path)
        if asked is None:
            return False
        tokens = Tokens(self.host, credential, self._wire, self._clock)
        with contextlib.suppress(KeyWithoutRights):
            token = tokens.fetch(asked, PUBLIC_REPOSITORY)
            if asked.is_basic and self._wire.ask(Request(self._base + path, authorization=token)).status == 401:
                raise tokens.rejected(asked)
        return True

    def _challenge(self, path: str) -> challenge.Challenge | None:
        answer = self._wire.ask(Request(self._base + path))
        if answer.status != 401:
            if answer.status != 200 and not manifest.error_codes(answer.body):
                raise RegistryAnswer(self.host, answer.told)
            if answer.status == 200 and _VERSION not in answer.headers:
                self._json(answer)
            return None
        return self._asked(answer)

    def tags(self, repository: str) -> list[str]:
        """List every tag in the registry's own order, [] if it has none. Raise RegistryError."""
        url = f"{self._within(repository)}/tags/list?n={_PAGE}"
        tags: list[str] = []
        most_bytes = self.asked_bytes + _TAGS_LIMIT_BYTES
        for _page in range(_PAGES):
            answer = self._get(url, repository)
            if self.asked_bytes > most_bytes:
                break
            if answer.status != 200:
                raise self._refusal(answer, repository)
            names = self._json(answer).get("tags") or []
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise RegistryAnswer(self.host, "its list of tags is not a list of strings.")
            tags += names
            following = self._next_page(answer, url)
            if following is None:
                return list(dict.fromkeys(tags))
            url = following
        raise RegistryAnswer(self.host, "its list of tags does not end.")

    def _next_page(self, answer: Response, url: str) -> str | None:
        # <...>; rel="next": https://distribution.github.io/distribution/spec/api/#listing-image-tags
        link, _, about = answer.headers.get("Link", "").partition(">")
        if not link.startswith("<") or "next" not in about:
            return None
        target = urljoin(url, link[1:])
        if not target.startswith(f"{self._base}/v2/"):
            raise RegistryAnswer(self.host, "its list of tags continues on another host.")
        return target

    def described(
        self,
        ref: ImageRef,
        platform: tuple[str, str],
        *,
        any_platform: bool = False,
        document: Document | None = None,
    ) -> tuple[Manifest, Document]:
        """Return the manifest of an ImageRef, for `platform` (os, architecture) if the image exists for several, and
        the document from which it was read. An index may name another index, and one image without its platform, which
        then is that of its configuration.

        With `any_platform`, fall back to another platform if the image lacks this one. `document` is document()'s
        result, if already fetched. Raise RegistryError: UnknownTag with the nearest tags, WrongPlatform, LoginNeeded,
        KeyWithoutRights, ...
        """
        found, wanted = document or self.document(ref), "/".join(platform)
        chosen, platforms = None, tuple[str, ...]()
        for _ in range(_INDEXES):
            if not found.is_index:
                image = self._shape(manifest.image, found.tree, found.kind, found.digest)
                return replace(image, platform=chosen, platforms=platforms), found
            offered = self._shape(manifest.offered, found.tree)
            would_do = (wanted, manifest.UNNAMED, *(("/".join(LINUX_AMD64), *offered) if any_platform else ()))
            name = next((name for name in would_do if name in offered), None)
            if name is None:
                raise WrongPlatform(str(ref), wanted, tuple(offered))
            if name != manifest.UNNAMED and not platforms:
                chosen, platforms = name, tuple(offered)
            found = self._document(ref, offered[name], offered[name])
        raise RegistryAnswer(self.host, f"{ref} is an index inside an index, more than {_INDEXES} times.")

    def document(self, ref: ImageRef) -> Document:
        """Return the index or manifest that an ImageRef's tag or digest names. Raise RegistryError."""
        return self._document(ref, ref.digest or ref.tag or "latest", ref.digest)

    def _document(self, ref: ImageRef, name: str, promised: str | None) -> Document:
        """Fetch one manifest by tag or digest; `promised` is what its bytes must hash to."""
        answer = self._get(f"{self._within(ref.repository)}/manifests/{name}", ref.repository, manifest.ACCEPT)
        if answer.status != 200:
            raise self._missing(answer, ref)
        tree = self._json(answer)
        kind = self._shape(manifest.media_type, tree, answer.headers.get("Content-Type", ""))
        told = answer.headers.get("Docker-Content-Digest")
        told = told if told and manifest.is_digest(told) else None  # the digest becomes a file name
        if kind in manifest.SCHEMA_1_TYPES:
            # The digest of schema 1 covers the text without signatures, which only the registry knows.
            return Document(kind, promised or told or manifest.digest(answer.body), tree, answer.body)
        expected = promised or told
        if expected is not None and not manifest.is_digest(expected):
            raise RegistryAnswer(self.host, f"the digest {expected[:80]} is in a form that can't be checked.")
        digest = manifest.digest(answer.body, expected or "sha256:")
        if expected is not None and digest != expected:
            raise DigestMismatch(f"the manifest of {ref} hashes to {digest}, not {expected}.")
        return Document(kind, digest, tree, answer.body)

    def config(self, ref: ImageRef, image: Manifest) -> dict[str, Any]:
        """Return an image's configuration: `config.Env`, `config.Labels`, `architecture`, ... Raise DigestMismatch."""
        if image.config_digest is None:
            return self._shape(manifest.parse, (image.inline_config or "{}").encode())
        url = f"{self._within(ref.repository)}/blobs/{image.config_digest}"
        answer = self._get(url, ref.repository)
        if answer.status != 200:
            raise self._refusal(answer, ref.repository)
        digest = manifest.digest(answer.body, image.config_digest)
        if digest != image.config_digest:
            raise DigestMismatch(f"the configuration of {ref} hashes to {digest}, not {image.config_digest}.")
        return self._json(answer)

    def config_blob(self, document: Document) -> Layer:
        """Return an image's configuration as a blob. Raise RegistryAnswer if it has no size, or a huge one."""
        return self._shape(manifest.configuration, document.tree)

    def open(self, repository: str, digest: str, start: int = 0) -> Stream:
        """Open a blob, from byte `start` on if the registry supports that (status 206). Raise RegistryError."""
        url = f"{self._within(repository)}/blobs/{digest}"
        answer = self._with_token(
            Request(url, start=start, limit_bytes=manifest.CONFIG_LIMIT_BYTES), repository, self._wire.open
        )
        if isinstance(answer, Stream):
            return answer
        if answer.status == 404 and _is_of_a_registry(answer):
            raise BlobMissing(self.host, digest)
        raise self._refusal(answer, repository)

    def _within(self, repository: str) -> str:
        """Return the base URL of `repository`. On Docker Hub a repository of one word is in library/."""
        is_library = self.host in HUB_HOSTS and "/" not in repository
        return f"{self._base}/v2/{'library/' if is_library else ''}{repository}"

    def _get(self, url: str, repository: str, accept: str = "*/*") -> Response:
        plain = Request(url, accept, limit_bytes=manifest.CONFIG_LIMIT_BYTES)
        return self._with_token(plain, repository, self._wire.ask)

    def _with_token(self, plain: Request, repository: str, ask: Callable[[Request], R]) -> R:
        """Send a request, with a token if the registry requires one. If the token does not suffice, return the 401."""
        token = self._tokens.held(repository)
        if token is None and repository in self._unanswered:
            token = self._tokens.fetch(self._unanswered.pop(repository), repository)
        answer = ask(replace(plain, authorization=token))
        if isinstance(answer, Response) and not self._is_own(answer):
            return answer
        if answer.status == 401 and token is not None:
            # The challenge to an expired token may name a realm that gives no anonymous tokens. The challenge to a
            # request without a token names a usable realm.
            # https://github.com/NVIDIA/nvidia-container-toolkit/issues/1945
            self._tokens.drop(repository)
            answer = ask(plain)
        if isinstance(answer, Stream) or answer.status != 401:
            return answer
        asked = self._heard[repository] = self._asked(answer)
        token = self._tokens.fetch(asked, repository)
        answer = ask(replace(plain, authorization=token))
        if asked.is_basic and isinstance(answer, Response) and answer.status == 401 and self._is_own(answer):
            raise self._tokens.rejected(asked)
        return answer

    def _is_own(self, answer: Response) -> bool:
        """Return whether the registry itself answered: a host that it redirects to knows nothing of keys and rights."""
        return answer.host == host_of(self._base)

    def _asked(self, answer: Response) -> challenge.Challenge:
        # Answering another host's challenge could hand it the key: https://nvd.nist.gov/vuln/detail/CVE-2020-15157
        if not self._is_own(answer):
            raise RegistryAnswer(answer.host, answer.told)
        asked = challenge.parse(answer.headers.get("Www-Authenticate", ""))
        if asked is None:
            raise RegistryAnswer(self.host, f"it requires a sign-in, but in no way that ngcdl knows. {answer.told}")
        return asked

    def _missing(self, answer: Response, ref: ImageRef) -> RegistryError:
        """Return why a manifest is unavailable. 403 may also mean an absent tag, which only the list of tags shows."""
        refusal = self._refusal(answer, ref.repository)
        if isinstance(refusal, RegistryAnswer) or "NAME_UNKNOWN" in manifest.error_codes(answer.body):
            return refusal
        if ref.tag is None or ref.digest is not None:
            return UnknownTag(str(ref), ()) if answer.status == 404 else refusal
        try:
            tags = self.tags(ref.repository)
        except (LoginNeeded, KeyWithoutRights, KeyRejected):
            return UnknownTag(str(ref), ()) if answer.status == 404 else refusal
        except UnknownRepository as error:
            return error
        if ref.tag not in tags:
            return UnknownTag(str(ref), nearest(ref.tag, tags))
        if answer.status == 404:
            return RegistryAnswer(self.host, f"it lists the tag {ref.tag}, but has no manifest for it.")
        return refusal

    def _refusal(self, answer: Response, repository: str) -> RegistryError:
        if answer.status in (401, 402, 403):
            if not self._is_own(answer):
                return RegistryAnswer(answer.host, answer.told)
            refusal: RegistryError = LoginNeeded(self.host, repository, sign_in(self.host))
            if self._tokens.credential is not None:
                refusal = KeyWithoutRights(self.host, repository, answer.status, sign_in(self.host))
            if not _is_of_a_registry(answer):
                refusal.may_be_a_proxy_s(answer.told)
            return refusal
        if answer.status == 404 and _is_of_a_registry(answer):
            return UnknownRepository(self.host, repository, sign_in(self.host))
        return RegistryAnswer(self.host if self._is_own(answer) else answer.host, answer.told)

    def _json(self, answer: Response) -> dict[str, Any]:
        try:
            return manifest.parse(answer.body)
        except ValueError as error:
            raise RegistryAnswer(self.host, answer.told) from error

    def _shape(self, read: Callable[..., T], *arguments: Any) -> T:
        try:
            return read(*arguments)
        except ValueError as error:
            raise RegistryAnswer(self.host, f"{error}.") from error


def _is_of_a_registry(answer: Response) -> bool:
    """Return whether a registry gave this answer, and no proxy or captive portal, whose 404 tells nothing of images.
    https://distribution.github.io/distribution/spec/api/#errors"""
    return _VERSION in answer.headers or bool(manifest.error_codes(answer.body))
