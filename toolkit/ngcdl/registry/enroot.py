"""The key where enroot looks for it: pyxis' nodes pull with it. Written on request alone, readable by its owner alone.

https://github.com/NVIDIA/enroot/blob/master/doc/cmd/import.md: a netrc file, and for NGC both hosts are required.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ngcdl.errors import ConfigNotWritable
from ngcdl.registry.key import Credential
from ngcdl.spec import NVCR

TOKENS = "authn.nvidia.com"


def path(environ: Mapping[str, str]) -> Path:
    config = environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or Path("~").expanduser()) / ".config"
    return Path(environ.get("ENROOT_CONFIG_PATH") or Path(config) / "enroot") / ".credentials"


def keep(host: str, credential: Credential, environ: Mapping[str, str] = os.environ) -> Path:
    """Write the key for `host` in the place of an older one, and give the file. What others it has stays.

    Raises ConfigNotWritable."""
    file, hosts = path(environ), (host, TOKENS) if host == NVCR else (host,)
    ours = re.compile(rf"\s*machine\s+(?:{'|'.join(map(re.escape, hosts))})\s")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lines = file.read_text().splitlines() if file.exists() else []
        lines = [line for line in lines if not ours.match(f"{line} ")]
        lines += [f"machine {one} login {credential.username} password {credential.secret.reveal()}" for one in hosts]
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as beside:  # 0600 from the beginning
            beside.write("\n".join(lines) + "\n")
        Path(beside.name).replace(file)
    except (OSError, UnicodeError) as error:
        raise ConfigNotWritable(file, getattr(error, "strerror", None) or str(error)) from error
    return file
