"""What was typed makes no sense."""

from __future__ import annotations

from ngcdl.errors.base import NgcdlError


class UsageError(NgcdlError):
    exit_code = 2


class BadReference(UsageError):
    """Not a valid image name."""

    def __init__(self, message: str, hint: str = "", *, typed: str = "", meant: str = "") -> None:
        """`meant` is the name that was probably meant by `typed`."""
        super().__init__(message, hint or (f"Did you mean {meant}?" if meant else ""))
        self.typed = typed
        self.meant = meant


class BadGpuRequest(UsageError):
    """Not a way to ask for GPUs."""


class BadOption(UsageError):
    """The value of an option, variable or setting makes no sense."""


class NoKey(UsageError):
    def __init__(self, *, is_asked: bool = False) -> None:
        """`is_asked`: it was asked for at a terminal."""
        super().__init__(
            f"No API key was given{'' if is_asked else ', and there is no terminal to ask for one'}.",
            "Make a key at https://org.ngc.nvidia.com/setup/api-keys, then one of:\n"
            "    ngcdl login --password-stdin < FILE\n"
            "    NGC_API_KEY=... ngcdl login",
        )
