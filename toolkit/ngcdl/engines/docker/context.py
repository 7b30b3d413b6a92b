"""Which engine DOCKER_HOST or docker's context names, and which addresses ngcdl does not support.

Precedence as in the docker command: https://github.com/docker/cli/blob/v28.2.2/cli/command/cli.go (resolveContextName).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ngcdl import settings
from ngcdl.errors import EngineAbsent, EngineElsewhere, EngineNotAsked
from ngcdl.errors.engine import CONFIG
from ngcdl.frozen import dataclass

DEFAULT_SOCKET = "unix:///var/run/docker.sock"
_CA = ["ca.pem"]
_OWN = ["cert.pem", "key.pem"]


def named_by() -> str:
    """Return what sets the engine's address, if it is not the default one: a variable or config.json."""
    return next((name for name in ("DOCKER_HOST", "DOCKER_CONTEXT") if os.environ.get(name)), CONFIG)


def named() -> str:
    """Return the configured address, else DEFAULT_SOCKET. Raise EngineAbsent if the context no longer exists, as docker
    does: the default socket would be another engine's."""
    name = _context()
    found = _endpoint(name).get("Host") if name else os.environ.get("DOCKER_HOST")
    return str(found or DEFAULT_SOCKET)


def _context() -> str | None:
    """Return the name of the context in use; None if it is the default one, or DOCKER_HOST is set."""
    from docker.context.config import get_current_context_name

    name = os.environ.get("DOCKER_CONTEXT") or get_current_context_name()
    return name if name and name != "default" and not os.environ.get("DOCKER_HOST") else None


def _endpoint(name: str) -> dict[str, Any]:
    """Return what docker's file of that context says about its engine. Raise EngineAbsent."""
    why = "no context of that name exists in docker's folder"
    try:
        found = json.loads((_kept(name, "meta") / "meta.json").read_bytes())["Endpoints"]["docker"]
        return {**found}
    except FileNotFoundError:
        pass
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        why = f"docker's file for it can't be read ({error!r})"
    raise EngineAbsent(f"the context {name}", why, is_default=False, named_by=named_by())


def _kept(name: str, kind: str) -> Path:
    """Return the folder of a context's files. The SDK finds it only beside a config.json, which docker does without."""
    return settings.docker_folder(os.environ) / "contexts" / kind / hashlib.sha256(name.encode()).hexdigest()


@dataclass(frozen=True)
class Tls:
    """The files that the engine is asked with: `folder` has ca.pem, and cert.pem and key.pem if `has_own`."""

    folder: Path
    has_own: bool
    verifies: bool = True


def tls() -> Tls | None:
    """Return the files for TLS; None if it is turned off. A context has its own, whatever the variables say.

    Without a certificate of this user's docker shows none.
    https://github.com/docker/cli/blob/v28.2.2/cli/context/docker/load.go (tlsConfig)
    https://github.com/docker/cli/blob/v28.2.2/cli/flags/options.go (SetDefaultOptions)
    https://docs.docker.com/engine/security/protect-access/#secure-by-default
    """
    if name := _context():
        folder, verifies = _kept(name, "tls") / "docker", not _endpoint(name).get("SkipTLSVerify")
        has_own = not _lacking(folder, _OWN)
        return None if _lacking(folder, _CA) or not (has_own or verifies) else Tls(folder, has_own, verifies)
    if not os.environ.get("DOCKER_TLS_VERIFY"):
        return None
    path = os.environ.get("DOCKER_CERT_PATH")
    folder = Path(path) if path else settings.docker_folder(os.environ)
    return Tls(folder, has_own=_lacking(folder, _OWN) != _OWN)


def _lacking(folder: Path, names: Sequence[str]) -> list[str]:
    return [name for name in names if not os.path.isfile(folder / name)]  # noqa: PTH113  # it raises nothing


def without_tls_files() -> EngineNotAsked | None:
    """Return the error for TLS that a variable turns on without its files; None if it is off, or all are there."""
    if not (found := tls()):
        return None
    lacks = _lacking(found.folder, [*_CA, *(_OWN if found.has_own else ())])
    return EngineNotAsked(str(found.folder), lacks) if lacks else None


def over_ssh(address: str) -> EngineElsewhere:
    """Return the error for an ssh:// address, for which the SDK needs paramiko, with the commands to use instead."""
    parts = urlsplit(address)
    host = shlex.quote("@".join(filter(None, (parts.username, parts.hostname or "HOST"))))
    port = re.search(r":(\d+)$", parts.netloc)
    here = f"$XDG_RUNTIME_DIR/docker-{parts.hostname or 'HOST'}.sock"
    there = shlex.quote(parts.path if len(parts.path) > 1 else DEFAULT_SOCKET.removeprefix("unix://"))
    own = "docker context use default" if named_by() == CONFIG else "unset DOCKER_HOST DOCKER_CONTEXT"
    return EngineElsewhere(
        "ngcdl does not support ssh:// addresses.",
        "If it has the same folders, ssh can forward its socket to this machine:\n"
        f"    ssh -nNT -L {here}:{there} {f'-p {port[1]} ' if port else ''}{host} &\n"
        f"    export DOCKER_HOST=unix://{here}\n"
        f"To use this machine's own engine:\n    {own}",
    )
