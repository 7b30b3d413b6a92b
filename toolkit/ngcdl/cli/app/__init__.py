"""The commands and their options: what typer makes of argv. Heavy modules load where they are used."""

from ngcdl.cli.app import account, images, running, host, past  # noqa: F401, I001  # the order of --help
from ngcdl.cli.app.root import app

__all__ = ["app"]
