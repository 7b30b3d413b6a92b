"""enroot's file of credentials, with which pyxis pulls: written only on request, readable only by its owner.

The file is a netrc, and NGC needs an entry for nvcr.io and one for its token server:
https://github.com/NVIDIA/enroot/blob/master/doc/cmd/import.md
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from ngcdl import waiting, whole
from ngcdl.errors import ConfigNotWritable, KeyNotForEnroot, KeyNotRemoved
from ngcdl.registry.docker_config import LOCK_SECONDS
from ngcdl.registry.key import TOKEN_USERNAME, Credential
from ngcdl.settings import home
from ngcdl.spec import NVCR

TOKENS = "authn.nvidia.com"
_WORD = r'(?:"(?:\\.|[^"\\])*"|\S+)'
# An entry's words may be on separate lines, with comments in between, as enroot's curl reads them:
# https://github.com/curl/curl/blob/master/lib/netrc.c
_MORE = rf"(?:(?:\s+#.*$)*\s+(?:login|password|account)\s+{_WORD})*"
_FOLDER = "ENROOT_CONFIG_PATH"
_HINT = f"Make it writable, or name another folder in {_FOLDER}."


def path(environ: Mapping[str, str]) -> Path:
    config = environ.get("XDG_CONFIG_HOME") or home(environ) / ".config"
    return Path(environ.get(_FOLDER) or Path(config) / "enroot") / ".credentials"


def keep(host: str, credential: Credential, environ: Mapping[str, str] = os.environ) -> Path:
    """Write the key for `host`, replacing an older key, and return the file. Other hosts' keys stay.

    Raise ConfigNotWritable, and KeyNotForEnroot for a key that needs quotes, which not all netrc parsers know."""
    file, hosts = path(environ), _hosts(host)
    words = (credential.username, credential.secret.reveal())
    if credential.username == TOKEN_USERNAME or not all(re.fullmatch(r"[!$-&(-~][!$-&(-~#]*", word) for word in words):
        raise KeyNotForEnroot(file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _alone(file):
            before = file.read_text(encoding="utf-8", errors="surrogateescape") if file.exists() else ""
            text = _without((*hosts, host), before)  # ngcdl used to write the port, too
            text += "\n" if text and not text.endswith("\n") else ""
            for one in hosts:
                text += f"machine {one} login {credential.username} password {credential.secret.reveal()}\n"
            with whole.written(file.resolve()) as beside:  # a symlink, for example to a folder of dotfiles, is kept
                beside.write(text.encode(errors="surrogateescape"))
    except (OSError, UnicodeError) as error:
        raise ConfigNotWritable(file, getattr(error, "strerror", None) or str(error), _HINT) from error
    return file


def forget(host: str, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Remove the key for `host` and return the file, None if the file has no such key. Raise KeyNotRemoved."""
    file = path(environ)
    if not os.path.lexists(file):
        return None
    try:
        with _alone(file):
            before = file.read_text(encoding="utf-8", errors="surrogateescape")
            after = _without((*_hosts(host), host), before)
            if after == before:
                return None
            with whole.written(file.resolve()) as beside:
                beside.write(after.encode(errors="surrogateescape"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KeyNotRemoved(file, error.strerror or str(error), host) from error
    return file


def _alone(file: Path) -> AbstractContextManager[None]:
    """Keep ngcdl's processes from losing each other's entries. The block is entered without the lock if the file system
    has none, or if another ngcdl holds it for LOCK_SECONDS."""
    return waiting.if_possible(lambda: waiting.locked_within(Path(f"{file}.lock"), LOCK_SECONDS, 0o600))


def _hosts(host: str) -> tuple[str, ...]:
    """Return the hosts that the key for `host` is for. enroot and its curl look for an entry without the port:
    https://github.com/NVIDIA/enroot/blob/master/src/docker.sh"""
    return (host, TOKENS) if host == NVCR else (re.sub(r":\d+$", "", host),)


def _without(hosts: Sequence[str], text: str) -> str:
    """Return `text` without the entries of `hosts`, and without the lines that hold nothing else."""
    entry = rf"(?>machine\s+(?:{'|'.join(map(re.escape, hosts))})(?!\S){_MORE})"
    found = re.compile(rf"(?P<comment>^[ \t]*#.*$)|^[ \t]*{entry}[ \t]*(?:\n|\Z)|(?<!\S){entry}", re.MULTILINE)
    return found.sub(lambda match: match["comment"] or "", text)
