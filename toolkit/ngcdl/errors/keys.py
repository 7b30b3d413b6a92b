"""A key on this machine can't be read, kept or used."""

from __future__ import annotations

from shlex import quote

from ngcdl.errors.base import NgcdlError


class CredentialsError(NgcdlError):
    """A key on this machine can't be read, kept or used."""


class BadKey(CredentialsError):
    exit_code = 2

    def __init__(self, why: str, variable: str | None = None) -> None:
        """`variable`: the one that has it."""
        self.why, self.variable = f"{variable} is set, but {why}" if variable else why, variable
        super().__init__(
            f"That is not an API key: {self.why}.",
            "Copy it again from https://org.ngc.nvidia.com/setup/api-keys and type:\n    ngcdl login",
        )


class ConfigBroken(CredentialsError):
    def __init__(self, path: object, why: str) -> None:
        super().__init__(
            f"{path}: {why}. It was left as it is.",
            "Repair the file, or move it aside and sign in again:\n"
            f"    mv {quote(str(path))} {quote(f'{path}.broken')} && ngcdl login",
        )


class ConfigNotWritable(CredentialsError):
    def __init__(self, path: object, why: str, hint: str = "") -> None:
        """`hint`: advice for a file other than docker's config.json."""
        super().__init__(
            f"The key can't be kept in {path}: {why}.",
            hint
            or "Make it writable, name another folder in DOCKER_CONFIG, or pass the key in NGC_API_KEY to each "
            "command.",
        )


class KeyNotRemoved(CredentialsError):
    def __init__(self, path: object, why: str, host: str) -> None:
        super().__init__(
            f"The key for {host} can't be removed from {path}: {why}.",
            f"Make it readable and writable, and remove the key then:\n    ngcdl logout {host}",
        )


class KeyNotForEnroot(CredentialsError):
    def __init__(self, path: object) -> None:
        super().__init__(
            f"{path} can't hold this key: its user or password contains blanks, quotes or non-ASCII characters.",
            "Let the nodes pull with Docker or Podman:\n    ngcdl run ... --engine slurm --container podman",
        )


class HelperMissing(CredentialsError):
    def __init__(self, path: object, helper: str) -> None:
        super().__init__(
            f"{path} has {helper} keep the keys, but it is not installed.",
            f"Install {helper}, or remove the credsStore/credHelpers entry from {path} and type:\n    ngcdl login",
        )


class HelperFailed(CredentialsError):
    def __init__(self, helper: str, what: str, *, is_store: bool = False) -> None:
        """`is_store`: the helper was asked to store a key."""
        kept = " Nothing was written elsewhere." if is_store else ""
        super().__init__(f"{helper} failed: {what}", f"Unlock or set up the store behind {helper} and try again.{kept}")


class HelperHung(CredentialsError):
    def __init__(self, helper: str, seconds: float) -> None:
        super().__init__(
            f"{helper} gave no answer within {seconds:g} s and was stopped.",
            "It may be waiting for a password on another screen. Unlock its store and try again.",
        )
