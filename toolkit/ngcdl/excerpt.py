"""The part of a server's or program's answer that may be shown: one short line, no control bytes, markup or keys."""

from __future__ import annotations

import re

_MARKUP = re.compile(r"<(script|style)\b.*?(</\1\s*>|$)|<!--.*?-->|<[^<>]*>", re.IGNORECASE | re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffd]+")
_KEY = re.compile(r"nvapi-[\w.~+/=-]+|\b(?:Basic|Bearer)\s+[\w.~+/=-]+")


def excerpt(body: bytes | str, hide: str = "", limit: int = 200) -> str:
    """Return the first `limit` readable characters; `hide` and whatever looks like a key become ***."""
    text = body[:8192].decode("utf-8", "replace") if isinstance(body, bytes) else body[:8192]
    if hide:
        text = text.replace(hide, "***")
    text = _KEY.sub("***", _CONTROL.sub(" ", _MARKUP.sub(" ", text)))
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3].rstrip() + "..."
