"""What all of them are."""

from __future__ import annotations

from typing import ClassVar


class NgcdlError(Exception):
    """What happened, and what to do about it. `hint` may hold several lines; commands stand on their own line."""

    exit_code: ClassVar[int] = 125

    def __init__(self, message: str, hint: str = "") -> None:
        message = message.rstrip()
        message += "" if message.endswith((".", "!", "?")) else "."  # foreign words in it seldom end as a sentence
        super().__init__(message)
        self.message = message
        self.hint = hint


def signal_exit_code(number: int) -> int:
    """Give the exit code of a program that a signal ended: 128 + its number, as a shell does."""
    return 128 + number
