"""Translates what requests, urllib3 and the operating system raise on a bad connection, to one sentence each."""

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

# What no CA's file mends (X509_V_ERR_*): a certificate that is not yet or no longer valid, or is not for this name or
# address: https://docs.openssl.org/3.0/man3/X509_STORE_CTX_get_error/
_BY_DATE, _BY_NAME = (9, 10), (62, 64)

FOREIGN = (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError)


def translated(
    host: str, error: BaseException, timeout_seconds: tuple[float, float]
) -> tuple[RegistryUnreachable, bool]:
    """Return the error in words, and whether a retry may help."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            why, lacks_ca = refused(cause)
            by_clock = cause.verify_code in _BY_DATE
            unreachable = RegistryUnreachable(
                host, why, is_untrusted=lacks_ca, is_invalid=not lacks_ca, by_clock=by_clock
            )
            return unreachable, False
        if isinstance(cause, ssl.SSLError):
            return RegistryUnreachable(host, f"TLS failed ({cause.reason or 'no reason given'})"), False
        if isinstance(cause, requests.exceptions.ProxyError | urllib3.exceptions.ProxyError):
            return RegistryUnreachable(host, "the proxy refused"), False
        if isinstance(cause, requests.exceptions.InvalidSchema | requests.exceptions.InvalidProxyURL):
            return RegistryUnreachable(host, "the proxy that HTTPS_PROXY or ALL_PROXY names can't be used"), False
        # In urllib3 NewConnectionError is a ConnectTimeoutError, too; the second loop finds the reason for it.
        late = isinstance(cause, requests.ConnectTimeout | urllib3.exceptions.ConnectTimeoutError)
        if late and not isinstance(cause, urllib3.exceptions.NewConnectionError):
            return RegistryUnreachable(host, f"no connection within {timeout_seconds[0]:g} s"), True
        if isinstance(cause, requests.ReadTimeout | urllib3.exceptions.ReadTimeoutError | TimeoutError):
            # The user has already waited for the whole time limit, so this is not retried.
            return RegistryUnreachable(host, f"no answer within {timeout_seconds[1]:g} s"), False
    for cause in _causes(error):
        if isinstance(cause, socket.gaierror):
            return RegistryUnreachable(host, "its name does not resolve"), True
        if isinstance(cause, OSError) and cause.errno and cause.strerror:
            return RegistryUnreachable(host, os.strerror(cause.errno).lower()), cause.errno != errno.EACCES
    if isinstance(error, ValueError):  # requests' InvalidURL is one
        return RegistryUnreachable(host, unusable(f"https://{host}")), False
    return RegistryUnreachable(host, "the connection was cut"), True


def refused(error: ssl.SSLCertVerificationError) -> tuple[str, bool]:
    """Say why a certificate is refused, and whether the file of a CA may mend that."""
    if error.verify_code in _BY_DATE:
        return f"by this machine's clock, its certificate is not valid now ({error.verify_message})", False
    if error.verify_code in _BY_NAME:
        return f"its certificate is not for that address ({error.verify_message.rstrip('.')})", False
    return f"its certificate is not trusted ({error.verify_message})", True


def has_proxy(url: str) -> bool:
    """Whether a request for `url` goes through a proxy; NO_PROXY alone names none."""
    return bool(requests.utils.select_proxy(url, requests.utils.get_environ_proxies(url)))


def unusable(url: str) -> str:
    """Say that `url` or its proxy is no address. The original error is not shown: it may quote part of a password."""
    if not has_proxy(url):
        return "that is not a valid address"
    names = (name for word in ("https_proxy", "all_proxy") for name in (word, word.upper()) if os.environ.get(name))
    return f"{next(names, 'the proxy')} is not a valid address (in a password, # is %23, / is %2F and ? is %3F)"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all that it wraps, in any of the ways that requests and urllib3 use."""
    pending: list[Any] = [error]
    seen: set[int] = set()
    while pending:
        cause = pending.pop(0)
        if not isinstance(cause, BaseException) or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        pending += [getattr(cause, "reason", None), *cause.args, cause.__cause__, cause.__context__]
