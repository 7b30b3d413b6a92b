"""The base of all errors: a message, a hint and an exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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


class Several(NgcdlError):
    """Several of the things that were named together are wrong: all are told at once, each by its own error."""

    def __init__(self, refusals: Sequence[NgcdlError], *, then: str = "") -> None:
        """`then`: what follows from them."""
        told = dict.fromkeys([*(error.message for error in refusals), then])
        super().__init__(" ".join(filter(None, told)), _together(error.hint for error in refusals))


def at_once(errors: Sequence[NgcdlError]) -> NgcdlError:
    """Return an error that tells all of `errors`: the only one as it is."""
    return errors[0] if len(errors) == 1 else Several(errors)


def _together(hints: Iterable[str]) -> str:
    """Return one hint: what is to be typed for the same reason stands together."""
    typed: dict[str, list[str]] = {"": []}  # first what has no reason: below others it would seem to have theirs
    for hint in hints:
        reason, is_told = "", True
        for line in hint.splitlines():
            if is_to_type(line):
                is_told = True
            else:
                reason, is_told = line if is_told else f"{reason}\n{line}", False
            lines = typed.setdefault(reason, []) if is_told else []
            lines += [line] if is_told and line not in lines else []
        typed.setdefault(reason, [])
    return "\n".join(line for reason, lines in typed.items() for line in (reason, *lines) if line)


def _again(kind: type[NgcdlError], args: tuple[object, ...]) -> NgcdlError:
    return kind.__new__(kind, *args)


def is_to_type(line: str) -> bool:
    """Whether a line of a hint, or of another text for people, is a command to type."""
    return line.startswith("    ")


def signal_exit_code(number: int) -> int:
    """Return the exit code of a program that a signal ended: 128 + its number, as in a shell."""
    return 128 + number
