"""`ngcdl pull`."""

from __future__ import annotations

from ngcdl import console, engines, fetch, settings
from ngcdl.cli.screen import Screen
from ngcdl.spec import ImageRef


def pull(name: str) -> None:
    """Pull the image and print its reference by digest. Raises RegistryError or EngineError."""
    image = ImageRef.parse(name, settings.load().registry)
    engine = engines.connect("docker")
    with Screen() as screen:
        digest = fetch.image(engine, image, screen.pull, screen.say)
    console.result(image.pinned(digest))
