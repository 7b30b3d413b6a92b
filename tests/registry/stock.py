"""Shared by the credentials' tests: keys and how they would leak, a config.json, and scripts of helpers."""

from __future__ import annotations

import base64
import traceback

from ngcdl.errors import CredentialsError

NVCR = "nvcr.io"
KEY = "nvapi-CANARY-1234567890"
OTHER = {"auths": {"other.example": {"auth": "b3RoZXI6cHc="}}, "HttpHeaders": {"X": "ä"}, "psFormat": "table"}


def auth(username: str = "$oauthtoken", secret: str = KEY) -> str:
    return base64.b64encode(f"{username}:{secret}".encode()).decode()


def text_of(error: BaseException) -> str:
    hint = error.hint if isinstance(error, CredentialsError) else ""
    return f"{error} {error!r} {hint} {''.join(traceback.format_exception(error))}"


def leaks(text: str) -> bool:
    """Return whether the key is in `text`, in clear or at any of the three alignments of base64."""
    aligned = [base64.b64encode(b"x" * n + b"CANARY-12345678")[4:16].decode() for n in range(3)]
    return any(part in text for part in ["CANARY", *aligned])


OURS = {NVCR: {"auth": auth()}}

GOOD_HELPER = f'read -r host; printf \'{{"ServerURL":"%s","Username":"u","Secret":"{KEY}-%s"}}\' $host $host'
NOT_FOUND = "echo 'credentials not found in native keychain'; exit 1"
HELPERS = {
    "good": GOOD_HELPER,
    "none": NOT_FOUND,
    "stderr": "echo 'credentials not found in native keychain' >&2; exit 1",
    "locked": "echo 'error: pass not initialized: nvapi-CANARY-1234567890' >&2; exit 1",
    "garbage": f"echo garbage {KEY}",
    "object": "echo '{}'",
    "list": "echo '[]'",
    "number": 'echo \'{"Username": 1, "Secret": 2}\'',
    "blank": 'echo \'{"ServerURL": "", "Username": "", "Secret": ""}\'',
    "hangs": "sleep 60",
    "forks": "sleep 60 & echo started",
    "endless": "yes",
    "deaf": "exec <&-; echo 'credentials not found in native keychain'; exit 1",
    "leaky": f'echo \'{{"Secret": "{KEY}", "broken\'; exit 1',
}
