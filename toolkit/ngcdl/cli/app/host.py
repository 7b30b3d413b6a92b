"""The commands about this host: its GPUs, and the whole chain."""

from __future__ import annotations

from typing import Annotated

import typer

from ngcdl.cli.app.root import HOST, app
from ngcdl.cli.options import Json, JsonWatched


@app.command(rich_help_panel=HOST)
def gpu(
    json: JsonWatched = False,
    watch: Annotated[float | None, typer.Option(metavar="SECONDS", help="Repeat the reading every SECONDS.")] = None,
) -> None:
    """Show what the NVIDIA driver reports about each GPU."""
    from ngcdl.cli.gpu import gpu

    gpu(json, watch)


@app.command(
    rich_help_panel=HOST,
    epilog="Exit codes: 0 all links are ok, or have only warnings; 1 a link is broken.\n\n"
    "\b\nExamples:\n  ngcdl doctor\n  ngcdl doctor --bundle report.tar.gz",
)
def doctor(
    fix: Annotated[bool, typer.Option("--fix", help="Offer each remedy, and run it if you say yes.")] = False,
    json: Json = False,
    bundle: Annotated[
        str | None, typer.Option("--bundle", metavar="FILE", help="Also write a redacted .tar.gz for a bug report.")
    ] = None,
) -> int:
    """Check the chain from driver to data set, and name the remedies."""
    from ngcdl.cli.doctor import doctor

    return doctor(fix, json, bundle)
