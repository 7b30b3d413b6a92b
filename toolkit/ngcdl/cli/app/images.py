"""The commands about images: judge, list, fetch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ngcdl.cli import options
from ngcdl.cli.app.root import IMAGES, app
from ngcdl.cli.app.sections import Sectioned
from ngcdl.cli.options import CardTyped, HostTyped, ImageName, Json
from ngcdl.errors import BadOption, NgcdlError

_USAGE: Any = typer.BadParameter.__mro__[1]  # UsageError, of the click inside typer


class _Judging(Sectioned):
    """A command whose exit code 2 is a verdict. If there is no verdict, also after a usage error, it exits with 125."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # typer's own click
        try:
            return super().parse_args(ctx, args)
        except _USAGE as error:
            error.exit_code = NgcdlError.exit_code
            raise

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        try:
            return super().invoke(ctx)
        except NgcdlError as error:
            raise NgcdlError(error.message, error.hint) from error


@app.command(
    rich_help_panel=IMAGES,
    epilog="\b\nExamples:\n  ngcdl pull pytorch:25.03-py3\n"
    "  ngcdl pull pytorch:25.03-py3 --to p.tar     # there: docker load -i p.tar",
)
def pull(
    image: ImageName,
    force: Annotated[bool, typer.Option("--force", help="Pull it even if it is judged unable to run here.")] = False,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            metavar="FILE",
            help="Write a file for another machine's docker load; needs no Docker, and judges nothing.",
        ),
    ] = None,
    arch: Annotated[
        str | None,
        options.option(
            "--arch", metavar="amd64|arm64", help="With --to: for that architecture; default: this machine's."
        ),
    ] = None,
) -> None:
    """Fetch an image; an interrupted pull resumes where it stopped."""
    from ngcdl.cli import pull as it

    if to and force:
        raise BadOption("--force: --to judges no image, and so refuses none.", "Leave it out.")
    if to:
        it.pull_to(image, to, arch)
    elif arch:
        raise BadOption("--arch: only with --to.", f"    ngcdl pull {image} --to FILE --arch {arch}")
    else:
        it.pull(image, force)


@app.command(
    rich_help_panel=IMAGES,
    cls=_Judging,
    epilog="Exit codes: 0 it runs, 1 it runs with a caution, 2 it can't; 125 nothing is known about it, or a "
    "usage error.\n\n"
    "\b\nExamples:\n  ngcdl check pytorch:25.03-py3\n"
    "  ngcdl check tensorflow:24.05-tf2-py3 --host driver=470.57.02,gpu=T4",
)
def check(image: ImageName, host: HostTyped = None, gpu: CardTyped = None, json: Json = False) -> int:
    """Say whether an image runs here, and the newest tag that does."""
    from ngcdl.cli.images import check

    return check(image, host, tuple(gpu or ()), json)


@app.command(rich_help_panel=IMAGES, epilog="\b\nExamples:\n  ngcdl images\n  ngcdl images pytorch --all")
def images(
    name: Annotated[
        str | None,
        options.image(metavar="NAME", help="tensorflow, pytorch, nvidia/cuda, ...; default: all frameworks."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("-a", "--all", help="List all, not only the newest ten; with --json, too.")
    ] = False,
    host: HostTyped = None,
    gpu: CardTyped = None,
    json: Json = False,
) -> None:
    """List a registry's tags: what they contain, and which run here."""
    from ngcdl.cli.images import images

    images(name, everything, host, tuple(gpu or ()), json)


@app.command(
    rich_help_panel=IMAGES,
    epilog='\b\nExample:\n  image=$(ngcdl resolve pytorch) &&\n      docker run --rm --gpus all "$image" nvidia-smi',
)
def resolve(
    name: Annotated[
        str,
        options.image(
            metavar="NAME",
            help="tensorflow, pytorch, or an image of the variant you want, such as tensorflow:24.05-tf2-py3.",
        ),
    ],
    host: HostTyped = None,
    gpu: CardTyped = None,
    json: Json = False,
) -> None:
    """Print the newest reference that runs here, by digest."""
    from ngcdl.cli.images import resolve

    resolve(name, host, tuple(gpu or ()), json)
