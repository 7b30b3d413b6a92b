"""Where things are: the registry's host and ngcdl's folders, from variables, then config files, then defaults."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ngcdl.errors import BadOption, BadReference
from ngcdl.frozen import dataclass
from ngcdl.spec import NVCR, REDACTED, ImageRef, redacted_words

KEY_VARIABLES = ("NGC_API_KEY", "NGC_CLI_API_KEY")
_MOST_BYTES = 1 << 20  # of a file of settings: somebody else's project may have a link to anything in its place
_LIKE_KEY = re.compile(r"nvapi-[\w-]+|[\w+/=-]{40,}")  # older keys are base64


@dataclass(frozen=True)
class Settings:
    """`registry` is a host, perhaps with a path prefix; the folders need not exist yet.

    `inside` is the folder in which programs in containers keep their caches; None: those caches are not kept."""

    registry: str
    runs: Path
    cache: Path
    share: Path
    inside: Path | None = None

    @property
    def registry_host(self) -> str:
        """The registry without its path prefix: what a key is for."""
        return self.registry.partition("/")[0]


def load(environ: Mapping[str, str] = os.environ) -> Settings:
    """Read NGCDL_REGISTRY and the XDG folders. Raise BadOption if a value is invalid, a config file can't be read, or a
    folder would be in the home folder of a user who has none.

    Config files, later ones win: /etc/ngcdl/config.toml, $XDG_CONFIG_HOME/ngcdl/config.toml. Their only key is
    `registry`.
    https://specifications.freedesktop.org/basedir-spec/latest/
    """

    def folder(variable: str, default: str) -> Path:
        value = environ.get(variable, "")
        return (Path(value) if value.startswith("/") else home(environ) / default) / "ngcdl"

    registry, source = NVCR, "the default"
    files = [Path("/etc/ngcdl/config.toml")]
    with contextlib.suppress(BadOption):  # without a home, the other variables may still name all folders
        files.append(folder("XDG_CONFIG_HOME", ".config") / "config.toml")
    for path in files:
        if text := _read(path).get("registry"):
            registry, source = text, f"{path}: registry"
    if text := environ.get("NGCDL_REGISTRY"):
        registry, source = text, "NGCDL_REGISTRY"
    cache = folder("XDG_CACHE_HOME", ".cache")
    return Settings(
        registry=host(registry, f"{source} = {registry}"),
        runs=folder("XDG_STATE_HOME", ".local/state") / "runs",
        cache=cache,
        share=folder("XDG_DATA_HOME", ".local/share"),
        inside=cache / "inside",
    )


def home(environ: Mapping[str, str]) -> Path:
    """Return $HOME, else the folder that this user has in /etc/passwd or the like. Raise BadOption if there is none."""
    if folder := environ.get("HOME"):
        return Path(folder)
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:  # as in a container that runs as a user whom its image does not know
        said = f"HOME is not set, and no home folder is known for the user {os.getuid()}."
        raise BadOption(said, "Name a folder to write to:\n    export HOME=DIR") from None


def docker_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of docker's own settings, in which its config.json and its contexts are."""
    folder = environ.get("DOCKER_CONFIG")
    return Path(folder) if folder else home(environ) / ".docker"


def expanded(text: str) -> Path:
    """Return the path that a shell takes `text` for: ~ and ~NAME are home folders, but the ~NAME of no user is as it
    is."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def host(text: str, typed: str) -> str:
    """Parse a registry's host, perhaps with a path prefix. Raise BadOption, which repeats what was `typed`, without
    secrets: a key may have been typed by mistake."""
    host = text.removeprefix("https://").removeprefix("http://").rstrip("/")
    first = host.partition("/")[0]
    if not ("." in first or ":" in first or first == "localhost"):
        if _LIKE_KEY.fullmatch(text):
            hint = "Type this, and paste it there:\n    ngcdl login"
            if typed == text:
                raise BadOption("That looks like a key: it is in your shell's history now.", hint)
            raise BadOption(f"{typed.replace(text, REDACTED)}: that looks like a key, not a host.", hint)
        raise _no_host(typed)
    try:
        ImageRef.parse("tensorflow:0", host)
    except BadReference as error:
        raise _no_host(typed) from error
    return host


def _no_host(typed: str) -> BadOption:
    return BadOption(f"{redacted_words((typed,))[0]}: must be a host, such as nvcr.io or 127.0.0.1:5443.")


def without_keys(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` without NGC's keys, for a program that has no use for them."""
    return {name: value for name, value in environ.items() if name not in KEY_VARIABLES}


def toml(path: Path) -> dict[str, Any]:
    """Read a file of settings, {} if there is none. Raise BadOption if it can't be read."""
    try:
        if path.exists() and not path.is_file():  # a pipe would block, and a device need not end
            raise OSError(errno.EINVAL, "it is not a regular file")
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {_MOST_BYTES >> 20} MiB")
        import tomllib  # most users have no such file

        return tomllib.loads(data.decode())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except ValueError as error:  # also UnicodeDecodeError
        raise BadOption(f"{path} is not TOML: {error}", "Fix it, or move it away.") from error
    except OSError as error:
        raise BadOption(f"{path} can't be read: {error.strerror}", "Make it readable, or move it away.") from error


def _read(path: Path) -> dict[str, str]:
    data = toml(path)
    unknown = set(data) - {"registry"}
    if unknown or not isinstance(data.get("registry", ""), str):
        raise BadOption(
            f'{path}: {", ".join(sorted(unknown)) or "registry"} is not valid; the only setting is registry = "HOST".'
        )
    return {key: str(value) for key, value in data.items()}
