"""Which engine DOCKER_HOST or docker's context names, and which addresses ngcdl does not support.

Precedence as in the docker command: https://github.com/docker/cli/blob/v28.2.2/cli/command/cli.go (resolveContextName).
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit

from ngcdl import settings
from ngcdl.errors import EngineAbsent, EngineElsewhere, EngineNotAsked
from ngcdl.errors.engine import CONFIG

DEFAULT_SOCKET = "unix:///var/run/docker.sock"


def named_by() -> str:
    """Return what sets the engine's address, if it is not the default one: a variable or config.json."""
    return next((name for name in ("DOCKER_HOST", "DOCKER_CONTEXT") if os.environ.get(name)), CONFIG)


def named() -> str:
    """Return the configured address, else DEFAULT_SOCKET.

    Raise EngineAbsent if the context no longer exists, as docker does: the SDK would fall back to the default socket,
    which is another engine's.
    """
    if host := os.environ.get("DOCKER_HOST"):
        return host
    from docker.context import ContextAPI
    from docker.context.config import get_current_context_name

    name = os.environ.get("DOCKER_CONTEXT") or get_current_context_name() or "default"
    why = "no context of that name exists beside docker's config.json"
    try:
        context = ContextAPI.get_context(name)
        if context and context.Host:
            return str(context.Host)
    except Exception as error:  # the SDK has no narrower class for a broken file
        why = f"docker's file for it can't be read ({error})"
    raise EngineAbsent(f"the context {name}", why, is_default=False, named_by=named_by())


def without_tls_files() -> EngineNotAsked | None:
    """Return the error for TLS that is turned on without its files; None if it is not, or all are there."""
    if not (folder := tls_folder()):
        return None
    own = () if ca_alone() else ("cert.pem", "key.pem")
    lacks = [name for name in ("ca.pem", *own) if not os.path.isfile(folder / name)]  # noqa: PTH113  # it raises nothing
    return EngineNotAsked(str(folder), lacks) if lacks else None


def ca_alone() -> Path | None:
    """Return the CA's file if TLS is turned on, by a variable or a context's own files, and this user has no
    certificate: docker then shows none.

    https://github.com/docker/cli/blob/v28.2.2/cli/flags/options.go (SetDefaultOptions)
    https://github.com/docker/cli/blob/v28.2.2/cli/context/docker/load.go (tlsConfig)
    """
    folder = _of_context() or tls_folder()
    has_own = folder and any(os.path.exists(folder / name) for name in ("cert.pem", "key.pem"))  # noqa: PTH110  # nor this
    return folder / "ca.pem" if folder and not has_own else None


def _of_context() -> Path | None:
    """Return where the context in use, if it is not the default one, has a CA to verify its engine with."""
    if os.environ.get("DOCKER_HOST"):
        return None
    from docker.context import ContextAPI
    from docker.context.config import get_tls_dir

    context = ContextAPI.get_context(os.environ.get("DOCKER_CONTEXT"))
    if not context or context.endpoints.get("docker", {}).get("SkipTLSVerify"):
        return None
    folder = Path(get_tls_dir(context.Name, "docker"))
    return folder if os.path.isfile(folder / "ca.pem") else None  # noqa: PTH113  # it raises nothing


def tls_folder() -> Path | None:
    """Return where the files for TLS are looked for; None if no variable turns it on.

    https://docs.docker.com/engine/security/protect-access/#secure-by-default
    """
    if not os.environ.get("DOCKER_TLS_VERIFY"):
        return None
    path = os.environ.get("DOCKER_CERT_PATH")
    return Path(path) if path else settings.home(os.environ) / ".docker"


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
