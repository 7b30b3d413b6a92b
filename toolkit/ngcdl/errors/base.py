"""The base of all errors: a message, a hint and an exit code."""

from __future__ import annotations

from typing import ClassVar


class NgcdlError(Exception):
    """What happened, and what to do about it. `hint` may have several lines; each command is on its own, indented."""

    exit_code: ClassVar[int] = 125

    def __init__(self, message: str, hint: str = "") -> None:
        message = message.rstrip()
        message += "" if message.endswith((".", "!", "?")) else "."  # other programs' words seldom end like a sentence
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def prose(self) -> list[str]:
        return [line.strip() for line in self.hint.splitlines() if line.strip() and not is_to_type(line)]

    @property
    def commands(self) -> list[str]:
        return [line.strip() for line in self.hint.splitlines() if is_to_type(line)]


def is_to_type(line: str) -> bool:
    """Whether a line of a hint, or of another text for people, is a command to type."""
    return line.startswith("    ")


def signal_exit_code(number: int) -> int:
    """Return the exit code of a program that a signal ended: 128 + its number, as in a shell."""
    return 128 + number
