"""`ngcdl pull`: fetches an image, for the engine or into a file."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path

from ngcdl import console, engines, settings
from ngcdl.cli import images
from ngcdl.errors import BadOption, NoneRuns, UnknownTag, WrongPlatform
from ngcdl.preflight import meant
from ngcdl.spec import USUAL

_ARCHITECTURES = ("amd64", "arm64")


def pull(name: str, force: bool = False) -> None:
    """Pull the image and print its reference by digest; of the engine's own image, which nobody serves, print its name.
    Raise ImageUnfit, RegistryError or EngineError."""
    from ngcdl import hostfacts
    from ngcdl.cli.screen import Screen
    from ngcdl.judging import judge
    from ngcdl.pulling import fetch

    config = settings.load()
    typed, keeper = images.own(name, config.registry)
    engine = keeper or engines.connect(USUAL)
    if typed.id:
        console.say(f"{meant.own_in_words(typed)}, so there is nothing to pull")
        console.result(typed.typable)
        return
    with Screen() as screen:
        host = hostfacts.gather(engine)
        image = images.closed(typed, host, screen.say)
        found = judge.facts_of(image, host, config, engine, anew=True)
        if isinstance(found, UnknownTag) and meant.is_open(typed):
            with contextlib.suppress(*[NoneRuns] if force else []):  # the nearest tags are then named, to be forced
                image = images.served(image, host, config, engine, screen.say).image
                found = judge.facts_of(image, host, config, engine, anew=True)
        for line in judge.cautions(image, host, config, found, "pull", force=force):
            screen.say(line)
        digest = fetch.image(engine, image, screen.pull, screen.say)
    console.result(image.pinned(digest))


def pull_to(name: str, path: Path, architecture: str | None) -> None:
    """Fetch the image into a file, and print its reference by digest. Raise BadOption, RegistryError, DiskFull or
    NotWritten."""
    from ngcdl import hostfacts
    from ngcdl.cli.screen import Screen
    from ngcdl.cli.typed_container import current_folder
    from ngcdl.pulling import fetch, image_file

    image = meant.named(name, settings.load().registry)
    if not (image.tag or image.digest):
        raise BadOption(
            f"--to: {name} leaves open which image; the newest that runs here may not run where the file goes.",
            images.TELL.format(name=name),
        )
    if architecture not in (None, *_ARCHITECTURES):
        raise BadOption(f"--arch {architecture}: must be {' or '.join(_ARCHITECTURES)}.")
    wanted = architecture or hostfacts.architecture()
    file = path if path.is_absolute() else current_folder() / path
    with Screen() as screen:
        try:
            digest = fetch.image_file(image, wanted, file, screen.pull, screen.say)
        except WrongPlatform as error:
            other = next(one for one in _ARCHITECTURES if one != wanted)
            error.hint += f"\nFor a machine with such a processor:\n    ngcdl pull {image} --to {path} --arch {other}"
            raise
    console.say(
        f"Copy {path} to the other machine, and type there:\n    docker load -i {shlex.quote(path.name)}\n"
        f"    ngcdl run {image_file.loaded_name(image)}"
    )
    console.result(image.pinned(digest))
