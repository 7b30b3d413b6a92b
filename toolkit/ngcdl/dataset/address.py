"""Where the archive may come from, and one request to such a place: over https, or over loopback in a test."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from ngcdl.dataset.official import Archive
from ngcdl.dataset.pace import Patience
from ngcdl.errors import BadOption

if TYPE_CHECKING:
    import requests

URLS = "NGCDL_CIFAR10_URLS"
_REDIRECTS = 5


class Failure(Exception):
    """Why an address gave nothing. `answered`: there is a network, and something at its end."""

    def __init__(
        self,
        why: str,
        *,
        answered: bool = True,
        again: bool = False,
        wait: float | None = None,
        is_untrusted: bool = False,
    ) -> None:
        super().__init__(why)
        self.why = why
        self.answered = answered
        self.again = again  # it may pass by itself
        self.wait = wait  # seconds that the server asks for
        self.is_untrusted = is_untrusted  # its certificate, here


def addresses(archive: Archive, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Give the user's mirrors in their order, and the official host last."""
    mirrors = environ.get(URLS, "").split()
    for url in mirrors:
        if not _allowed(url):
            raise BadOption(
                f"{URLS}: {host(url)} is not an https address.", f"    {URLS}='https://HOST/{archive.name}'"
            )
    return tuple(dict.fromkeys([*mirrors, archive.url]))


def host(url: str) -> str:
    """Name an address in a message: without a password, a path or a query."""
    try:
        parts = urlsplit(url)
        return f"{parts.hostname or '?'}" + (f":{parts.port}" if parts.port else "")
    except ValueError:
        return "?"


def _loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _allowed(url: str, before: str | None = None) -> bool:
    """Say whether to go there; plain http only on this machine, and never from https."""
    try:
        parts = urlsplit(url)
        name = parts.hostname
    except ValueError:
        return False
    if not name:
        return False
    if parts.scheme == "https":
        return True
    return parts.scheme == "http" and _loopback(name) and (before is None or urlsplit(before).scheme == "http")


@contextlib.contextmanager
def answer(
    url: str, headers: Mapping[str, str], patience: Patience, environ: Mapping[str, str] = os.environ
) -> Iterator[requests.Response]:
    """Ask, follow redirects within the rules, and hand over the answer with its body still to be read."""
    from ngcdl.registry import trust

    with trust.session(environ) as session:
        for _ in range(_REDIRECTS + 1):
            response = _get(session, url, headers, patience)
            location = response.headers.get("Location")
            if response.status_code not in (301, 302, 303, 307, 308) or location is None:
                with response:
                    yield response
                return
            response.close()
            target = urljoin(url, location)
            if not _allowed(target, before=url):
                raise Failure(f"it redirects to {host(target)} without https")
            url = target
    raise Failure(f"it redirects more than {_REDIRECTS} times")


def _get(session: requests.Session, url: str, headers: Mapping[str, str], patience: Patience) -> requests.Response:
    import requests

    if not requests.utils.get_environ_proxies(url) and not _resolves(host(url), patience.connect_seconds):
        raise Failure("its name can't be resolved", answered=False)
    timeout = (patience.connect_seconds, patience.stall_seconds)
    try:
        return session.get(
            url, headers=dict(headers), auth=_own(url), stream=True, timeout=timeout, allow_redirects=False
        )
    except requests.exceptions.SSLError as error:
        below = _innermost(error)
        if isinstance(below, ssl.SSLCertVerificationError):
            raise Failure(f"its certificate is not trusted ({below.verify_message})", is_untrusted=True) from error
        raise Failure(f"TLS failed: {_words(error)}") from error
    except requests.exceptions.ProxyError as error:
        # A proxy that wants a password is a setting to mend; one that leads nowhere is no network.
        raise Failure(f"the proxy does not lead there: {_words(error)}", answered="407" in str(error)) from error
    except requests.exceptions.ConnectTimeout as error:
        raise Failure(f"no connection within {patience.connect_seconds:g} s", answered=False) from error
    except requests.exceptions.ReadTimeout as error:
        raise Failure(f"no answer within {patience.stall_seconds:g} s") from error
    except requests.exceptions.ConnectionError as error:
        connected = "NewConnectionError" not in repr(error) and "NameResolutionError" not in repr(error)
        raise Failure(_words(error), answered=connected, again=True) from error
    except (requests.exceptions.RequestException, ValueError) as error:  # ValueError: it redirects to no address
        raise Failure(_words(error)) from error


def _own(url: str) -> requests.auth.AuthBase:
    """Sign in with what the address itself holds, if anything: requests would take what ~/.netrc has for any host."""
    import requests

    from ngcdl.registry.wire import OwnAuth

    user, password = requests.utils.get_auth_from_url(url)
    return requests.auth.HTTPBasicAuth(user, password) if user or password else OwnAuth(None)


def _resolves(name: str, seconds: float) -> bool:
    """Look a name up with a limit: a resolver whose server is gone takes 10 s and more."""
    found: list[bool] = []

    def look() -> None:
        with contextlib.suppress(OSError, UnicodeError):
            found.append(bool(socket.getaddrinfo(urlsplit(f"//{name}").hostname, None)))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(seconds)
    return bool(found)


def _words(error: BaseException) -> str:
    """Give the operating system's words out of the layers around them."""
    below = _innermost(error)
    return (below.strerror if isinstance(below, OSError) else None) or str(below) or type(below).__name__


def _innermost(error: BaseException) -> BaseException:
    """Walk down the layers; urllib3 never raises some of them, so that these have what is below as an argument."""
    seen = error
    while (below := seen.__cause__ or seen.__context__ or next(iter(seen.args), None)) is not None:
        if not isinstance(below, BaseException):
            break
        seen = below
    return seen
