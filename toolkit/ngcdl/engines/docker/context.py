"""Which engine DOCKER_HOST or docker's context names, and what of it ngcdl does not take.

The order is the docker command's: https://github.com/docker/cli/blob/v28.2.2/cli/command/cli.go (resolveContextName).
"""

from __future__ import annotations

import os
import re
import shlex
from urllib.parse import urlsplit

from ngcdl.errors import EngineAbsent, EngineElsewhere
from ngcdl.errors.engine import CONFIG

DEFAULT_SOCKET = "unix:///var/run/docker.sock"


def named_by() -> str:
    """Say what names the engine's address, where it is not the default one."""
    return next((name for name in ("DOCKER_HOST", "DOCKER_CONTEXT") if os.environ.get(name)), CONFIG)


def named() -> str:
    """Give the address that is named, else DEFAULT_SOCKET.

    Raises EngineAbsent for a context that is gone, as docker refuses it: the SDK takes the default socket then, behind
    which is another engine.
    """
    if host := os.environ.get("DOCKER_HOST"):
        return host
    from docker.context import ContextAPI
    from docker.context.config import get_current_context_name

    name = os.environ.get("DOCKER_CONTEXT") or get_current_context_name() or "default"
    why = "there is none of that name beside docker's config.json"
    try:
        context = ContextAPI.get_context(name)
        if context and context.Host:
            return str(context.Host)
    except Exception as error:  # the SDK has no narrower one for a file that is broken
        why = f"docker's file of it can't be read ({error})"
    raise EngineAbsent(f"the context {name}", why, is_default=False, named_by=named_by())


def over_ssh(address: str) -> EngineElsewhere:
    """Give the error for an ssh:// address, for which the SDK wants paramiko, with what to type in its place."""
    parts = urlsplit(address)
    host = shlex.quote("@".join(filter(None, (parts.username, parts.hostname or "HOST"))))
    port = re.search(r":(\d+)$", parts.netloc)
    here = f"$XDG_RUNTIME_DIR/docker-{parts.hostname or 'HOST'}.sock"
    there = shlex.quote(parts.path if len(parts.path) > 1 else DEFAULT_SOCKET.removeprefix("unix://"))
    own = "docker context use default" if named_by() == CONFIG else "unset DOCKER_HOST DOCKER_CONTEXT"
    return EngineElsewhere(
        "ngcdl speaks no ssh:// to it.",
        "Where it has the same folders, ssh can bring its socket here:\n"
        f"    ssh -nNT -L {here}:{there} {f'-p {port[1]} ' if port else ''}{host} &\n"
        f"    export DOCKER_HOST=unix://{here}\n"
        f"This machine's own:\n    {own}",
    )
