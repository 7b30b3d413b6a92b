"""What requests, urllib3 and the system raise on a bad line, in one sentence."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import requests
import urllib3

from ngcdl.errors import RegistryUnreachable

FOREIGN = (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError)


def translated(
    host: str, error: BaseException, timeout_seconds: tuple[float, float]
) -> tuple[RegistryUnreachable, bool]:
    """Say why in words, and whether another try may help."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            why = f"its certificate is not trusted ({cause.verify_message})"
            return RegistryUnreachable(host, why, is_untrusted=True), False
        if isinstance(cause, ssl.SSLError):
            return RegistryUnreachable(host, f"TLS failed ({cause.reason or 'no reason given'})"), False
        if isinstance(cause, requests.exceptions.ProxyError | urllib3.exceptions.ProxyError):
            return RegistryUnreachable(host, "the proxy in between refused"), False
        if isinstance(cause, requests.exceptions.InvalidSchema | requests.exceptions.InvalidProxyURL):
            return RegistryUnreachable(host, "the proxy that HTTPS_PROXY or ALL_PROXY names can't be used"), False
        # urllib3 derives "no connection at all" from "no connection in time"; the reason is told below.
        late = isinstance(cause, requests.ConnectTimeout | urllib3.exceptions.ConnectTimeoutError)
        if late and not isinstance(cause, urllib3.exceptions.NewConnectionError):
            return RegistryUnreachable(host, f"no connection within {timeout_seconds[0]:g} s"), True
        if isinstance(cause, requests.ReadTimeout | urllib3.exceptions.ReadTimeoutError | TimeoutError):
            # The whole of a user's patience is spent by now, so this is not tried again.
            return RegistryUnreachable(host, f"no answer within {timeout_seconds[1]:g} s"), False
    for cause in _causes(error):
        if isinstance(cause, socket.gaierror):
            return RegistryUnreachable(host, "its name has no address"), True
        if isinstance(cause, OSError) and cause.errno and cause.strerror:
            return RegistryUnreachable(host, os.strerror(cause.errno).lower()), cause.errno != errno.EACCES
    if isinstance(error, ValueError):  # requests' InvalidURL is one
        return RegistryUnreachable(host, "that is no address"), False
    return RegistryUnreachable(host, "the connection was cut"), True


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Walk down what requests and urllib3 wrapped, in the several ways they do."""
    pending: list[Any] = [error]
    seen: set[int] = set()
    while pending:
        cause = pending.pop(0)
        if not isinstance(cause, BaseException) or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        pending += [getattr(cause, "reason", None), *cause.args, cause.__cause__, cause.__context__]
