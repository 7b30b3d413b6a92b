"""An image by name, in the grammar of Docker references, and the names that a local image of an engine may have."""

from __future__ import annotations

import re
from dataclasses import field, replace
from typing import Self

from ngcdl.errors import BadReference
from ngcdl.frozen import dataclass

NVCR = "nvcr.io"

# The grammar of https://github.com/distribution/reference (reference.go, regexp.go).
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_HOST_PART = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN = re.compile(rf"(?:{_HOST_PART}(?:\.{_HOST_PART})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}")
_SHA256 = re.compile(r"sha256:[0-9a-f]{64}")
_HEX64 = re.compile(r"[0-9a-f]{64}")
_ID = re.compile(rf"sha256:[0-9a-f]+|{_HEX64.pattern}")  # as `docker build -q` prints it
_SHORT_ID = re.compile(r"[0-9a-f]{12,63}")  # may be a name as well


def _is_domain(component: str) -> bool:
    return "." in component or ":" in component or component == "localhost" or component.lower() != component


@dataclass(frozen=True)
class ImageRef:
    """One image by name. With neither `tag` nor `digest`, its release is not chosen yet; `repository` excludes the
    registry.

    `id`: the engine's own id of an image; if set, it alone identifies the image, and no registry is asked for it.
    `short`: the name as it was typed, None if it named its registry."""

    registry: str
    repository: str
    tag: str | None = None
    digest: str | None = None
    id: str | None = None
    short: str | None = field(default=None, compare=False, repr=False)

    @classmethod
    def parse(cls, text: str, registry: str = NVCR, *, needs_tag: bool = True) -> Self:
        """Parse `tensorflow:18.01-py2`, `nvidia/tensorflow:...` or a full name; short ones belong to `registry`.

        `registry` may end in a path, for mirrors that keep nvcr.io under a prefix: `mirror.example/nvcr`.
        Without `needs_tag` a name may lack tag and digest. Raise BadReference with the reason.
        """
        name_it = f"To give an image here a name:\n    docker tag {text} NAME:TAG\n    ngcdl run NAME:TAG"
        if _ID.fullmatch(text):
            raise BadReference(f"{text}: that is an image's id, and ngcdl takes a name.", name_it)
        rest, digest = cls._split_digest(text)
        rest, tag = cls._split_tag(text, rest)
        domain, path = cls._split_domain(text, rest, registry)
        is_whole = rest == f"{domain}/{path}"
        if len(domain) + 1 + len(path) > 255:
            raise BadReference(f"{text[:60]}...: a name has at most 255 characters.")
        if needs_tag and tag is None and digest is None:
            if is_whole and domain != NVCR:
                raise BadReference(
                    f"{text}: which tag?", f"docker takes latest:\n    ngcdl run {text}:latest\n    ngcdl images {text}"
                )
            raise BadReference(
                f"{text}: which release? NGC has no 'latest'.",
                "Its tags, if NGC has it, and the newest that runs here:\n"
                f"    ngcdl images {text}\n    ngcdl resolve {text}"
                + (f"\n{name_it}" if _SHORT_ID.fullmatch(text) else ""),
            )
        return cls(domain, path, tag, digest, short=None if is_whole else text)

    @staticmethod
    def _split_digest(text: str) -> tuple[str, str | None]:
        if text != text.strip() or not text:
            raise BadReference(f"{text!r} is not an image name: it is empty or has blanks around it.")
        if "://" in text:
            raise BadReference(f"{text}: an image name has no scheme.", typed=text, meant=text.split("://", 1)[1])
        rest, at, digest = text.partition("@")
        if not at:
            return rest, None
        if not _DIGEST.fullmatch(digest):
            raise BadReference(f"{text}: after @ comes a digest, sha256: and 64 hexadecimal digits.")
        if digest.startswith("sha256:") and not _SHA256.fullmatch(digest):
            raise BadReference(f"{text}: a sha256 digest has 64 lower-case hexadecimal digits.")
        return rest, digest

    @staticmethod
    def _split_tag(text: str, rest: str) -> tuple[str, str | None]:
        slash = rest.rfind("/")
        colon = rest.find(":", slash + 1)
        if colon < 0:
            return rest, None
        name, tag = rest[:colon], rest[colon + 1 :]
        if not _TAG.fullmatch(tag):
            raise BadReference(f"{text}: {tag!r} is not a tag: letters, digits, _ . -, at most 128, not . or - first.")
        return name, tag

    @staticmethod
    def _split_domain(text: str, rest: str, registry: str) -> tuple[str, str]:
        first, slash, remainder = rest.partition("/")
        if slash and _is_domain(first):
            domain, path = first, remainder
        else:
            domain, _, prefix = registry.partition("/")
            path = rest if slash else f"nvidia/{rest}"
            path = f"{prefix}/{path}" if prefix else path
        if not _DOMAIN.fullmatch(domain):
            raise BadReference(f"{text}: {domain!r} is not a registry host.")
        if path != path.lower():
            meant = rest.lower() + text[len(rest) :]
            raise BadReference(f"{text}: the repository must be lower case.", typed=text, meant=meant)
        if _HEX64.fullmatch(path):
            raise BadReference(f"{text}: 64 hexadecimal digits are an image id, not a name.")
        if not _PATH.fullmatch(path):
            raise BadReference(f"{text}: {path!r} is not a repository: words of a-z 0-9, joined by . _ - and /.")
        return domain, path

    @property
    def name(self) -> str:
        """The registry and the repository, without tag and digest: what `docker` calls the name."""
        return f"{self.registry}/{self.repository}"

    def own_names(self) -> tuple[ImageRef, ...]:
        """Return the full names that a local image of an engine has if it was built under this short name: Docker puts
        Docker Hub's host before it, Podman also localhost, and a missing tag becomes `latest`. () if the name is not
        short.

        https://github.com/distribution/reference/blob/main/normalize.go
        https://github.com/containers/podman/blob/main/docs/source/markdown/podman-build.1.md.in
        """
        if self.short is None:
            return ()
        hosts = ("docker.io" if "/" in self.short else "docker.io/library", "localhost")
        named = [ImageRef.parse(f"{host}/{self.short}", needs_tag=False) for host in hosts]
        return tuple(one if one.tag or one.digest else replace(one, tag="latest") for one in named)

    @property
    def typable(self) -> str:
        """The name that a person types for this image: the short one if the engine's own image is meant, else the full
        name."""
        return self.short if self.id and self.short else str(self)

    @property
    def is_engines_own(self) -> bool:
        """Whether the image has no digest and a name of own_names(), as one that was built here has. A registry's that
        was loaded from a file has no digest either."""
        return self.id is not None and self.registry in ("docker.io", "localhost")

    @property
    def framework(self) -> str:
        """The last word of the repository: tensorflow, pytorch, ..."""
        return self.repository.rsplit("/", 1)[-1]

    def pinned(self, digest: str) -> str:
        """Return this image's name with `digest` alone, the form in which it is launched."""
        return f"{self.name}@{digest}"

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.name}{tag}{digest}"
