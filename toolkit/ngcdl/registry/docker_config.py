"""Docker's config.json, shared with `docker login`: read strictly, changed only in the entry of one registry.

`{"auths": {HOST: {"auth": base64("USER:SECRET")}}, "credHelpers": {HOST: SUFFIX}, "credsStore": SUFFIX, ...}`
https://docs.docker.com/reference/cli/docker/#docker-cli-configuration-file-configjson-properties
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ngcdl import settings, waiting, whole
from ngcdl.errors import ConfigBroken, ConfigNotWritable
from ngcdl.frozen import dataclass
from ngcdl.registry.key import TOKEN_USERNAME, Secret

LOCK_SECONDS = 30.0
_SIZE_LIMIT_BYTES = 8 << 20
HUB_HOSTS = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io"})
# authConfigKey in https://github.com/docker/cli/blob/master/cli/command/registry.go
_HUB_KEY = "https://index.docker.io/v1/"


def path(environ: Mapping[str, str]) -> Path:
    """Return $DOCKER_CONFIG/config.json, else ~/.docker/config.json."""
    return settings.docker_folder(environ) / "config.json"


@dataclass(frozen=True)
class DockerConfig:
    """The file's content when it was read; `tree` is its JSON, {} without a file."""

    path: Path
    tree: dict[str, Any]

    def helper_suffix(self, host: str) -> str | None:
        """Return the suffix of the helper for `host`: its credHelpers entry ("" means no helper), else credsStore."""
        helpers = self._section("credHelpers")
        key = matching(helpers, host)
        suffix = helpers[key[0]] if key else self.tree.get("credsStore")
        if suffix is not None and not isinstance(suffix, str):
            field = f"credHelpers[{key[0]!r}]" if key else "credsStore"
            raise ConfigBroken(self.path, f"{field} is not a string")
        return suffix or None

    def entry(self, host: str) -> tuple[str, Secret] | None:
        """Return the user name and secret in auths for `host`; for an identity token the user name is "<token>"."""
        auths = self._section("auths")
        for key in matching(auths, host):
            found = self._decode(key, auths[key])
            if found:
                return found
        return None

    def _decode(self, key: str, entry: object) -> tuple[str, Secret] | None:
        if entry is None:
            return None
        if not isinstance(entry, dict):
            raise ConfigBroken(self.path, f"auths[{key!r}] is not an object")
        for field in ("auth", "identitytoken", "username", "password"):
            if not isinstance(entry.get(field), str | None):
                raise ConfigBroken(self.path, f"auths[{key!r}].{field} is not a string")
        if entry.get("identitytoken"):
            return TOKEN_USERNAME, Secret(entry["identitytoken"])
        if entry.get("auth"):
            return self._decode_auth(key, entry["auth"])
        return (entry.get("username") or "", Secret(entry["password"])) if entry.get("password") else None

    def _decode_auth(self, key: str, text: str) -> tuple[str, Secret] | None:
        # No `from error` here: the error would hold the text, which is a secret.
        try:
            plain = base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True).decode()
        except (binascii.Error, ValueError):
            raise ConfigBroken(self.path, f"auths[{key!r}].auth is not base64 of USER:KEY") from None
        username, colon, secret = plain.partition(":")
        if not colon:
            raise ConfigBroken(self.path, f"auths[{key!r}].auth has no colon between user name and key")
        secret = secret.strip("\0")
        return (username, Secret(secret)) if secret else None

    def _section(self, name: str) -> dict[str, Any]:
        section = self.tree.get(name)
        if section is None:
            return {}
        if not isinstance(section, dict):
            raise ConfigBroken(self.path, f"{name} is not an object")
        return section

    def with_entry(self, host: str, entry: dict[str, str] | None) -> dict[str, Any]:
        """Return the tree with `entry` in place of every spelling of `host`; None removes them.

        A key for a part of the registry, such as nvcr.io/org of podman, skopeo and kubelet, stays."""
        kept = {key: value for key, value in self._section("auths").items() if not _is_spelling(key, host)}
        return {**self.tree, "auths": kept | ({key_of(host): entry} if entry is not None else {})}


def key_of(host: str) -> str:
    """Return the name that `docker login` gives `host` in the file and with helpers: for Docker Hub a legacy URL."""
    return _HUB_KEY if host in HUB_HOSTS else host


def matching(section: Mapping[str, Any], host: str) -> list[str]:
    """List the names in `section` that mean `host`: the current one first, then those of older Dockers, as URLs."""
    own = key_of(host)
    others = [key for key in section if key != own and key_of(_bare(key)) == own]
    return ([own] if own in section else []) + others


def _is_spelling(key: str, host: str) -> bool:
    found = re.fullmatch(r"([^/]+)/?|https?://([^/]+)(?:/|/v[12]/?)?", key)
    return found is not None and key_of(found[1] or found[2]) == key_of(host)


def _bare(key: str) -> str:
    host, _, rest = key.removeprefix("https://").removeprefix("http://").partition("/")
    # A browser sign-in to Docker Hub stores its tokens beside the login, as v1/access-token and v1/refresh-token:
    # https://github.com/docker/cli/blob/master/internal/oauth/manager/manager.go
    return key if rest.endswith("-token") else host


def read(file: Path) -> DockerConfig:
    """Read the file; a missing or empty one is {}. Raise ConfigBroken, naming line and byte, never the content."""
    try:
        with file.open("rb") as stream:
            raw = stream.read(_SIZE_LIMIT_BYTES + 1)
    except FileNotFoundError:
        return DockerConfig(file, {})
    except OSError as error:
        raise ConfigBroken(file, f"it can't be read: {error.strerror}") from error
    if not raw.strip():  # as Docker's own CLI does
        return DockerConfig(file, {})
    if len(raw) > _SIZE_LIMIT_BYTES:
        raise ConfigBroken(file, "it is larger than 8 MiB")
    return DockerConfig(file, _parse(file, raw))


def _parse(file: Path, raw: bytes) -> dict[str, Any]:
    # `from None`: the decoder's error holds the whole text, and so every key in the file.
    try:
        tree = json.loads(raw.decode())
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigBroken(file, f"it is not UTF-8 at byte {error.start} (line {line})") from None
    except json.JSONDecodeError as error:
        byte = len(error.doc[: error.pos].encode())
        raise ConfigBroken(file, f"it is not JSON at byte {byte} (line {error.lineno})") from None
    except (ValueError, RecursionError):
        raise ConfigBroken(file, "its JSON is nested too deeply, or has too long a number") from None
    if not isinstance(tree, dict):
        raise ConfigBroken(file, "it is JSON, but not an object")
    return tree


@contextlib.contextmanager
def locked(file: Path) -> Iterator[Path]:
    """Hold the lock beside the real file and yield its path (a symlink is followed). Create the folder, 0700.

    Docker itself takes no lock; this lock keeps ngcdl's processes from losing each other's entries.
    """
    real = Path(os.path.realpath(file))
    with contextlib.ExitStack() as stack:
        try:
            real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with waiting.where_locks_are():
                stack.enter_context(waiting.locked_within(Path(f"{real}.lock"), LOCK_SECONDS, 0o600))
        except TimeoutError as error:
            raise ConfigNotWritable(file, f"another program has held its lock for {LOCK_SECONDS:g} s") from error
        except OSError as error:
            raise ConfigNotWritable(file, error.strerror or "it can't be locked") from error
        yield real


def write(file: Path, tree: Mapping[str, Any]) -> None:
    """Replace `file` atomically by `tree`, keeping mode and owner, 0600 if new. The caller holds the lock."""
    try:
        text = json.dumps(tree, indent="\t", allow_nan=False) + "\n"
    except ValueError:
        raise ConfigBroken(file, "it holds a number that JSON can't represent") from None
    try:
        for leftover in file.parent.glob(f"{whole.DRAFT}*"):
            leftover.unlink()
        _replace(file, text.encode())
    except OSError as error:
        raise ConfigNotWritable(file, error.strerror or "it can't be written") from error


def _replace(file: Path, content: bytes) -> None:
    before = file.stat() if file.exists() else None
    with whole.written(file) as stream:
        os.fchmod(stream.fileno(), 0o600)  # regardless of the umask
        stream.write(content)
        stream.flush()
        if before is not None:
            if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
                with contextlib.suppress(PermissionError):  # as Docker does: keep the owner if allowed
                    os.fchown(stream.fileno(), before.st_uid, before.st_gid)
            os.fchmod(stream.fileno(), stat.S_IMODE(before.st_mode))
    whole.sync_folder(file.parent)
