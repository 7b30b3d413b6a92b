"""HTML escaped by construction: a plain string is text, and only what `tag` made is markup."""

from __future__ import annotations

import html
import re

# Characters that neither XML nor HTML can contain; some would control a terminal that shows the file.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff]")
_VOID = frozenset({"meta"})
_SHAPES = frozenset({"path", "rect"})  # SVG elements, closed at once: an open one would contain all that follows


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


def text(value: str) -> Markup:
    """Escape `value`, so that a parser reads it back as text; replace what HTML can't contain."""
    shown = _CONTROL.sub("\ufffd", value.encode("utf-8", "replace").decode("utf-8"))
    return Markup(html.escape(shown, quote=True))


def joined(*children: str | None) -> Markup:
    """Concatenate `children`; skip None."""
    return Markup("".join(one if isinstance(one, Markup) else text(one) for one in children if one is not None))


def tag(name: str, /, *children: str | None, **attributes: str | None) -> Markup:
    """Make an element. `class_` is class, `aria_label` is aria-label; an attribute of None is left out."""
    known = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    start = " ".join([name, *(f'{key}="{text(value)}"' for key, value in known.items())])
    if name in _VOID or name in _SHAPES:
        return Markup(f"<{start}/>" if name in _SHAPES else f"<{start}>")
    return Markup(f"<{start}>{joined(*children)}</{name}>")
