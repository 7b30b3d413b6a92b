"""The application itself; each file beside this one declares some of its commands."""

from __future__ import annotations

from typing import Annotated

import typer

from ngcdl.cli.app.sections import Application, Front

# The headings of --help.
RUN, HOST, IMAGES, RUNS, MORE = "Run", "This machine", "Images", "What was run", "More"

app = Application(
    name="ngcdl",
    cls=Front,
    help="Train in NVIDIA's containers with one line; see whether the GPU is used, and what it buys you.",
    no_args_is_help=True,
    rich_markup_mode=None,  # rich would double the time of --help
    pretty_exceptions_enable=False,  # typer's tracebacks show locals, and locals can hold keys
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="ngcdl COMMAND --help has a command's options.\n\n"
    "Exit codes: the command's own; 125 ngcdl or the engine failed; 126 and 127 as for docker run; 2 usage; "
    "128 + n after signal n. check, compare, suite and doctor have their own.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from ngcdl import __version__

        typer.echo(f"ngcdl {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...
