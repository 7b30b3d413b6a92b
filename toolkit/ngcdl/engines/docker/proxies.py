"""The proxies that Docker's config.json sets for containers, as the variables that the docker command turns them into.

No record contains them, as a proxy's address may contain a password: each request reads them again.
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
    """Return the variables, each in upper and lower case: those for the engine in use, else the default ones."""
    from docker.utils.config import load_general_config

    asked = _table(_table(load_general_config()).get("proxies"))
    found = _table(asked.get(context.named(), asked.get("default")))
    named = {name: str(found[key]) for key, name in _VARIABLES.items() if found.get(key)}
    return named | {name.lower(): value for name, value in named.items()}


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
