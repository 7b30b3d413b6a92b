"""The proxies that Docker's config.json has for containers, as the variables that the docker command makes of them.

They are in no record, as a proxy's address may have a password: each request gets them anew.
https://docs.docker.com/engine/cli/proxy/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ngcdl.engines.docker import context

_VARIABLES = {
    "httpProxy": "HTTP_PROXY",
    "httpsProxy": "HTTPS_PROXY",
    "ftpProxy": "FTP_PROXY",
    "noProxy": "NO_PROXY",
    "allProxy": "ALL_PROXY",
}


def variables() -> dict[str, str]:
    """Give them in both spellings: those of the engine that is named, else the default ones."""
    from docker.utils.config import load_general_config

    asked = _table(_table(load_general_config()).get("proxies"))
    found = _table(asked.get(context.named(), asked.get("default")))
    named = {name: str(found[key]) for key, name in _VARIABLES.items() if found.get(key)}
    return named | {name.lower(): value for name, value in named.items()}


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
