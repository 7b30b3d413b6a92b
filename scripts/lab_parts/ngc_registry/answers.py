"""How a request can end other than with the answer it asked for."""

from __future__ import annotations

DENIED = '{"errors":[{"code":"DENIED","message":"Access Denied"}]}'


class Refused(Exception):
    """An answer instead of the one asked for."""

    def __init__(self, status: int, body: str, headers: dict[str, str] | None = None) -> None:
        self.status, self.body, self.headers = status, body, headers or {}


class Gone(Exception):
    """The connection was cut on purpose, or by the client."""


class Reset(Gone):
    """The connection is to be cut by RST, before any answer."""
