"""The commands and their options: what typer makes of argv. Heavy modules load where they are used."""

from ngcdl.cli.app import account, host, images, past, running  # noqa: F401  # each declares its commands
from ngcdl.cli.app.root import app

__all__ = ["app"]
