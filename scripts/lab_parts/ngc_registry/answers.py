"""How a request can end other than with the requested answer."""

from __future__ import annotations

DENIED = '{"errors":[{"code":"DENIED","message":"Access Denied"}]}'


class Refused(Exception):
    """Answer with this instead of what was requested."""

    def __init__(self, status: int, body: str, headers: dict[str, str] | None = None) -> None:
        self.status, self.body, self.headers = status, body, headers or {}


class Gone(Exception):
    """The connection was closed, on purpose or by the client."""


class Reset(Gone):
    """The connection is to be closed with RST, before any answer."""
