"""The keys that detach from a container's terminal: those in docker's config.json, else Ctrl-P Ctrl-Q.

https://docs.docker.com/reference/cli/docker/container/attach/#detach-keys
"""

from __future__ import annotations

DEFAULT = "ctrl-p,ctrl-q"
_CONTROLS = "@abcdefghijklmnopqrstuvwxyz[\\]^_"  # ctrl-@ sends the byte 0, ctrl-a 1, ...


def named() -> str:
    """Return the keys in the form in which the daemon takes them; its own default is the same."""
    from docker.utils.config import load_general_config

    config = load_general_config()
    found = config.get("detachKeys") if isinstance(config, dict) else None
    return found if found and isinstance(found, str) else DEFAULT


def typed(keys: str) -> bytes:
    """Return the bytes that a keyboard sends for `keys`; b"" if the daemon rejects `keys`.

    How the daemon parses them: https://github.com/moby/term/blob/v0.5.2/ascii.go
    """
    sent = [_sent(key) for key in keys.split(",")]
    return b"".join(sent) if all(sent) else b""


def _sent(key: str) -> bytes:
    control = key.removeprefix("ctrl-")
    if len(control) == 1 and control != key:
        return bytes([_CONTROLS.index(control)]) if control in _CONTROLS else b""
    return b"\x7f" if key == "DEL" else key.encode() if len(key.encode()) == 1 else b""
