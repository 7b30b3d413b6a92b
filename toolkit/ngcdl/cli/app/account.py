"""Signing in and out."""

from __future__ import annotations

from typing import Annotated

import typer

from ngcdl.cli import options
from ngcdl.cli.app.root import IMAGES, app


@app.command(rich_help_panel=IMAGES)
def login(
    password_stdin: Annotated[bool, typer.Option("--password-stdin", help="Read the key from stdin.")] = False,
    registry: Annotated[
        str | None,
        typer.Argument(
            metavar="REGISTRY", help="nvcr.io, or the mirror that NGCDL_REGISTRY names; default: the one in use."
        ),
    ] = None,
    kubernetes: Annotated[
        str | None,
        options.cluster(
            metavar="NAME", help="Copy the stored key (or that of --password-stdin) to this Kubernetes pull secret."
        ),
    ] = None,
    namespace: options.Namespace = None,
    enroot: Annotated[
        bool,
        options.cluster("--enroot", help="Copy the stored key (or that of --password-stdin) to where enroot reads it."),
    ] = False,
) -> None:
    """Sign in with an NGC API key, for images that need one.

    The key (https://org.ngc.nvidia.com/setup/api-keys) is asked for, or comes from --password-stdin,
    NGC_API_KEY or NGC_CLI_API_KEY. Once the registry has accepted it, it is kept where docker login keeps it.
    TensorFlow's and PyTorch's images need none."""
    from ngcdl.cli import login as it

    to = it.Copy(kubernetes, namespace, enroot)
    if to == it.Copy():
        it.login(registry, password_stdin)
    else:
        it.copy(to, registry, password_stdin)


@app.command(rich_help_panel=IMAGES)
def logout(
    registry: Annotated[
        str | None,
        typer.Argument(
            metavar="REGISTRY", help="The registry whose key is removed, any host; default: the one in use."
        ),
    ] = None,
) -> None:
    """Remove the stored key, and enroot's copy of it."""
    from ngcdl.cli.login import logout

    logout(registry)
