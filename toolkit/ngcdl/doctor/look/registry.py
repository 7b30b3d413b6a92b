"""Does the registry answer, does it accept the key, and what time does it report?"""

from __future__ import annotations

import email.utils

from ngcdl.doctor.hands import Hands
from ngcdl.doctor.look.keys import Find
from ngcdl.doctor.sight import Registry
from ngcdl.errors import NgcdlError

# The limits for connecting and for an answer: shorter than elsewhere, because a slow registry is a finding.
_SECONDS = (2.0, 3.0)


def look(hands: Hands, host: str, find: Find) -> Registry:
    from ngcdl.registry import challenge
    from ngcdl.registry.wire import Request, Wire

    wire = Wire(_SECONDS, _no_wait, hands.environ)
    try:
        answer = wire.ask(Request(challenge.base_url(host) + "/v2/"))
    except NgcdlError as error:
        return Registry(error=error)
    finally:
        wire.close()
    return _verified(host, find, _skew(answer.headers.get("Date"), hands.now()))


def _verified(host: str, find: Find, skew_seconds: float | None) -> Registry:
    from ngcdl.errors import KeyRejected
    from ngcdl.registry.client import Registry as Client

    key, _ = find()
    try:
        with Client(host, timeout_seconds=_SECONDS, sleep=_no_wait) as client:
            if key is None:
                client.ping()
                return Registry(skew_seconds=skew_seconds)
            takes = client.verify(key)
    except KeyRejected as error:
        return Registry(takes_key=False, key_error=error, skew_seconds=skew_seconds)
    except NgcdlError as error:
        return Registry(error=error, skew_seconds=skew_seconds)
    return Registry(takes_key=takes or None, skew_seconds=skew_seconds)


def _no_wait(_: float) -> None:
    """Retry at once: the user is waiting."""


def _skew(date: str | None, now: float) -> float | None:
    """Return by how many seconds this clock is ahead of the header Date: https://www.rfc-editor.org/rfc/rfc9110#field.date"""
    try:
        return now - email.utils.parsedate_to_datetime(date or "").timestamp()
    except (ValueError, OverflowError, TypeError):
        return None
