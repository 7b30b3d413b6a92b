"""Which key belongs to a registry, and where it is stored: shared with Docker, so one login serves both.

Search order: NGC_API_KEY, NGC_CLI_API_KEY (for nvcr.io and the host that NGCDL_REGISTRY names), Docker's
config.json (credential helper, then its own entry), and for nvcr.io the ngc CLI's ~/.ngc/config, which is only read.
"""

from __future__ import annotations

import base64
import configparser
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from ngcdl import settings
from ngcdl.errors import BadKey, ConfigBroken, HelperFailed, HelperHung, HelperMissing, NgcdlError
from ngcdl.frozen import dataclass
from ngcdl.registry import docker_config
from ngcdl.registry.helper import HELPER_SECONDS, Helper
from ngcdl.registry.key import NGC_USERNAME, Credential, Secret, check_key
from ngcdl.settings import KEY_VARIABLES
from ngcdl.spec import NVCR


@dataclass(frozen=True)
class KeyPlace:
    """Where a key was stored. `in_clear`: whoever can read the file can read the key."""

    where: str
    in_clear: bool


@dataclass(frozen=True)
class Exposure:
    """Says in a sentence `who` else can read or change `file`. `is_ours`: the caller may change its mode."""

    file: Path
    who: str
    is_ours: bool

    def __str__(self) -> str:
        return f"{self.who}: chmod 600 {self.file}" if self.is_ours else self.who


def find(
    host: str, environ: Mapping[str, str] = os.environ, *, helper_seconds: float = HELPER_SECONDS
) -> Credential | None:
    """Find the credential for `host`, None if none is stored. Raise CredentialsError if a stored one is broken.

    A helper that is missing or fails is an error only if no other place has a key."""
    found, trouble = _look(host, environ, helper_seconds)
    if found is None and trouble:
        raise trouble
    return found


def find_or_none(
    host: str, environ: Mapping[str, str] = os.environ, *, helper_seconds: float = HELPER_SECONDS
) -> tuple[Credential | None, NgcdlError | None]:
    """Like `find`, but return the error: a public image needs no key, so a broken key deserves only a notice.

    Both are returned if a helper fails, but another place has a key."""
    try:
        return _look(host, environ, helper_seconds)
    except NgcdlError as error:
        return None, error


def _look(host: str, environ: Mapping[str, str], helper_seconds: float) -> tuple[Credential | None, NgcdlError | None]:
    """Return the credential, and the error of a helper."""
    if found := _from_environment(host, environ):
        return found, None
    config = docker_config.read(docker_config.path(environ))
    failure: NgcdlError | None = None
    try:
        found = _from_helper(config, host, environ, helper_seconds)
    except (HelperMissing, HelperFailed, HelperHung) as error:
        failure = error
    return found or _from_config(config, host) or (_from_ngc_cli(environ) if host == NVCR else None), failure


def key_variables(host: str, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Name the variables that are set and hold a key for `host`."""
    names = tuple(name for name in KEY_VARIABLES if environ.get(name, "").strip())
    if names and host != NVCR and host != settings.load(environ).registry_host:
        return ()
    return names


def sign_in(host: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the command that signs in to `host`: `ngcdl login` for NGC's key, else `docker login`."""
    if host == settings.load(environ).registry_host:
        return "ngcdl login"
    return f"ngcdl login {host}" if host == NVCR else f"docker login {host}"


def _from_environment(host: str, environ: Mapping[str, str]) -> Credential | None:
    for name in key_variables(host, environ):
        try:
            secret = check_key(environ[name])
        except BadKey as error:
            raise BadKey(error.why, name) from None
        return Credential(NGC_USERNAME, secret, f"the variable {name}", variable=name)
    return None


def _from_helper(
    config: docker_config.DockerConfig, host: str, environ: Mapping[str, str], seconds: float
) -> Credential | None:
    helper = _helper(config, host, environ, seconds)
    if helper is not None and (found := helper.get(docker_config.key_of(host))):
        return _credential(host, found, f"{helper.program}, which {config.path} names")
    return None


def _from_config(config: docker_config.DockerConfig, host: str) -> Credential | None:
    found = config.entry(host)
    return _credential(host, found, str(config.path), config.path) if found else None


def _helper(config: docker_config.DockerConfig, host: str, environ: Mapping[str, str], seconds: float) -> Helper | None:
    suffix = config.helper_suffix(host)
    return Helper(suffix, config.path, environ, seconds) if suffix else None


def _credential(host: str, found: tuple[str, Secret], source: str, file: Path | None = None) -> Credential:
    username, secret = found
    # If a user types "$oauthtoken" in double quotes, the shell expands it to nothing, and `docker login` stores that.
    return Credential(NGC_USERNAME if host == NVCR else username, secret, source, file=file)


def _from_ngc_cli(environ: Mapping[str, str]) -> Credential | None:
    path = settings.home(environ) / ".ngc" / "config"
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except (configparser.Error, UnicodeDecodeError, OSError):
        raise ConfigBroken(path, "it is not in the ngc CLI's format") from None
    text = parser.get("CURRENT", "apikey", fallback="").strip()
    if not text or text == "no-apikey":  # what the ngc CLI stores for a guest
        return None
    try:
        return Credential(NGC_USERNAME, check_key(text), f"{path} of the ngc CLI", file=path)
    except BadKey as error:
        raise ConfigBroken(path, f"apikey is not a key: {error.why}") from None


def save(
    host: str, secret: Secret, environ: Mapping[str, str] = os.environ, *, helper_seconds: float = HELPER_SECONDS
) -> KeyPlace:
    """Store the key where `docker login` would: in the helper that config.json names, else in config.json itself.

    Only the entry of `host` changes. On any error the file is unchanged; a helper not named in config.json is not used.
    """
    file = docker_config.path(environ)
    with docker_config.locked(file) as real:
        config = docker_config.read(real)
        helper = _helper(config, host, environ, helper_seconds)
        if helper is None:
            plain = f"{NGC_USERNAME}:{secret.reveal()}".encode()
            docker_config.write(real, config.with_entry(host, {"auth": base64.b64encode(plain).decode()}))
            return KeyPlace(str(file), in_clear=True)
        tree = config.with_entry(host, {})  # as Docker does: an empty entry means that the helper has the key
        helper.store(docker_config.key_of(host), secret)
        if tree != config.tree:
            docker_config.write(real, tree)
        return KeyPlace(helper.program, in_clear=False)


def forget(host: str, environ: Mapping[str, str] = os.environ) -> tuple[tuple[str, ...], NgcdlError | None]:
    """Remove the key for `host` from helper and file; return the places that had the key, and the helper's error.

    If the helper fails, the file is still cleaned.
    """
    file = docker_config.path(environ)
    if not docker_config.read(file).tree:
        return (), None
    with docker_config.locked(file) as real:
        config = docker_config.read(real)
        places, failure = [], None
        helper, key = _helper(config, host, environ, HELPER_SECONDS), docker_config.key_of(host)
        try:
            if helper is not None and helper.get(key) and helper.erase(key):
                places.append(helper.program)
        except NgcdlError as error:
            failure = error
        tree = config.with_entry(host, None)
        gone = (config.tree.get("auths") or {}).keys() - tree["auths"].keys()
        if gone:
            held = any(config.tree["auths"][key] for key in gone)
            docker_config.write(real, tree)
            places += [str(file)] if held else []
    return tuple(places), failure


def exposure(environ: Mapping[str, str] = os.environ) -> Exposure | None:
    """Say who else can read or change config.json; None if nobody can, or there is no file."""
    file = docker_config.path(environ)
    try:
        state = file.stat()
    except OSError:
        return None
    if state.st_uid not in (0, os.geteuid()):
        return Exposure(
            file, f"{file} belongs to another user (uid {state.st_uid}), who can read and change it.", False
        )
    if stat.S_IMODE(state.st_mode) & 0o077:
        return Exposure(file, f"Others on this machine can read {file} (mode {stat.S_IMODE(state.st_mode):04o})", True)
    return None
