"""The base of all errors: a message, a hint and an exit code."""

from __future__ import annotations

from collections.abc import Callable
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

    def __reduce__(self) -> tuple[Callable[..., NgcdlError], tuple[type[NgcdlError], object], dict[str, object]]:
        """Pickle it as it is: a subclass need not take a message and a hint."""
        return _again, (type(self), self.args), vars(self)

    @property
    def prose(self) -> list[str]:
        return [line.strip() for line in self.hint.splitlines() if line.strip() and not is_to_type(line)]

    @property
    def commands(self) -> list[str]:
        return [line.strip() for line in self.hint.splitlines() if is_to_type(line)]


def _again(kind: type[NgcdlError], args: tuple[object, ...]) -> NgcdlError:
    return kind.__new__(kind, *args)


def is_to_type(line: str) -> bool:
    """Whether a line of a hint, or of another text for people, is a command to type."""
    return line.startswith("    ")


def signal_exit_code(number: int) -> int:
    """Return the exit code of a program that a signal ended: 128 + its number, as in a shell."""
    return 128 + number
