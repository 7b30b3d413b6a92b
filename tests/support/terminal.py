"""A terminal that keeps what is written to it."""

from __future__ import annotations

import io

import pytest


class Terminal(io.TextIOWrapper):
    def __init__(self) -> None:
        self.kept = io.BytesIO()
        super().__init__(self.kept, encoding="utf-8")

    def isatty(self) -> bool:
        return True

    def said(self) -> str:
        """Return what was written since the last call."""
        self.flush()
        found = self.kept.getvalue().decode()
        self.kept.truncate(0)
        self.kept.seek(0)
        return found


def on_terminal(monkeypatch: pytest.MonkeyPatch, columns: int = 80) -> Terminal:
    made = Terminal()
    monkeypatch.setattr("sys.stderr", made)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    return made
