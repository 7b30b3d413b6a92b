"""How much space the default image of a training needs, as far as earlier queries have cached that."""

from __future__ import annotations

from ngcdl import hostfacts
from ngcdl.choice import default_image
from ngcdl.doctor.hands import Hands
from ngcdl.judging import imagefacts
from ngcdl.settings import Settings


def look(hands: Hands, known: Settings) -> int | None:
    """Return the image's bytes, compressed plus unpacked; None if its size was never queried."""
    ref = default_image(known.registry, hands.environ)
    facts = imagefacts.look_up(ref, known.cache, hostfacts.architecture(), offline=True).facts
    if facts.compressed_bytes is None or facts.unpacked_bytes is None:
        return None
    return facts.compressed_bytes + facts.unpacked_bytes
