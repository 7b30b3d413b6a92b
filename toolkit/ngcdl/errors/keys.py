"""Keys on this machine."""

from __future__ import annotations

from shlex import quote

from ngcdl.errors.base import NgcdlError


class CredentialsError(NgcdlError):
    """Something about the keys kept on this machine."""


class BadKey(CredentialsError):
    exit_code = 2

    def __init__(self, why: str) -> None:
        super().__init__(
            f"That is not an API key: {why}.",
            "Copy it once more from https://org.ngc.nvidia.com/setup/api-keys and type:\n    ngcdl login",
        )
        self.why = why


class ConfigBroken(CredentialsError):
    def __init__(self, path: object, why: str) -> None:
        super().__init__(
            f"{path}: {why}. It was left as it is.",
            "Mend the file, or move it away and sign in again:\n"
            f"    mv {quote(str(path))} {quote(f'{path}.broken')} && ngcdl login",
        )


class ConfigNotWritable(CredentialsError):
    def __init__(self, path: object, why: str) -> None:
        super().__init__(
            f"The key can't be kept in {path}: {why}.",
            "Make it writable, name another folder in DOCKER_CONFIG, or give the key by NGC_API_KEY for each command.",
        )


class KeyNotForEnroot(CredentialsError):
    def __init__(self, path: object) -> None:
        super().__init__(
            f"{path} can't hold this key: its user or its password has blanks, quotes or other letters than ASCII's.",
            "Let the nodes pull with Docker or Podman:\n    ngcdl run ... --engine slurm --container podman",
        )


class HelperMissing(CredentialsError):
    def __init__(self, path: object, helper: str) -> None:
        super().__init__(
            f"{path} wants keys to be kept by {helper}, which is not installed.",
            f"Install {helper}, or remove the credsStore/credHelpers entry from {path} and type:\n    ngcdl login",
        )


class HelperFailed(CredentialsError):
    def __init__(self, helper: str, what: str) -> None:
        super().__init__(
            f"{helper} failed: {what}",
            f"Unlock or set up the store behind {helper} and try again. Nothing was written elsewhere.",
        )


class HelperHung(CredentialsError):
    def __init__(self, helper: str, seconds: float) -> None:
        super().__init__(
            f"{helper} gave no answer within {seconds:g} s and was stopped.",
            "It may be waiting for a password on another screen. Unlock its store and try again.",
        )
