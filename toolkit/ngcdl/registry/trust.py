"""Which CAs TLS trusts, for registry and data set alike: requests' bundle, the system's store, and NGCDL_CA_FILE."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import create_urllib3_context

from ngcdl.errors import BadOption


class _TrustingAdapter(HTTPAdapter):
    """Trust `ca_file` and, with `has_system`, the system's certificates, besides the bundle that requests loads."""

    def __init__(self, ca_file: str | None, *, has_system: bool) -> None:
        self._context, self._lacks_system = create_urllib3_context(), has_system
        if ca_file:
            self._context.load_verify_locations(ca_file)
        super().__init__()

    def send(self, *args: Any, **kwargs: Any) -> requests.Response:
        if self._lacks_system:  # loading takes 45 ms, which plain http does not need
            self._context.load_default_certs()
            self._lacks_system = False
        return super().send(*args, **kwargs)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, ssl_context=self._context, **kwargs)

    def proxy_manager_for(self, proxy: Any, **kwargs: Any) -> Any:
        return super().proxy_manager_for(proxy, ssl_context=self._context, **kwargs)


def session(environ: Mapping[str, str]) -> requests.Session:
    """Return a session that trusts these CAs. Raise BadOption if NGCDL_CA_FILE or a named bundle can't be read."""
    bundle = environ.get("REQUESTS_CA_BUNDLE") or environ.get("CURL_CA_BUNDLE")
    if bundle and not os.access(bundle, os.R_OK):
        raise BadOption(f"REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE: {bundle} can't be read.")
    ca_file = environ.get("NGCDL_CA_FILE")
    try:
        # A bundle that a variable names replaces the system's store.
        adapter = _TrustingAdapter(ca_file, has_system=not bundle)
    except (OSError, ValueError) as error:
        raise BadOption(f"NGCDL_CA_FILE={ca_file}: no certificates can be read from it.") from error
    made = requests.Session()
    made.verify = bundle or True
    made.mount("https://", adapter)
    return made
