"""What was typed can't be meant."""

from __future__ import annotations

from ngcdl.errors.base import NgcdlError


class UsageError(NgcdlError):
    exit_code = 2


class BadReference(UsageError):
    """Not an image name."""


class BadGpuRequest(UsageError):
    """Not a way to ask for GPUs."""


class BadOption(UsageError):
    """An option, variable or setting whose value can't be meant."""


class NoKey(UsageError):
    def __init__(self) -> None:
        super().__init__(
            "No API key was given, and there is no terminal to ask for one.",
            "Make a key at https://org.ngc.nvidia.com/setup/api-keys, then one of:\n"
            "    ngcdl login --password-stdin < FILE\n"
            "    NGC_API_KEY=... ngcdl login",
        )
