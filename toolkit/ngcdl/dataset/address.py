"""Where the archive may come from, and one request to such an address: over https, or over loopback in a test."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from ngcdl import waiting
from ngcdl.dataset.official import Archive
from ngcdl.dataset.pace import Patience
from ngcdl.errors import BadOption

if TYPE_CHECKING:
    import requests

URLS = "NGCDL_CIFAR10_URLS"
_REDIRECTS = 5


@dataclass(eq=False)
class Failure(Exception):
    """Why an address sent nothing usable. `answered`: the network works, and something answered."""

    why: str
    _: KW_ONLY
    answered: bool = True
    again: bool = False  # a retry may succeed
    wait: float | None = None  # seconds that the server asks to wait
    is_untrusted: bool = False  # its certificate is not trusted here, and the file of a CA may mend that


def addresses(archive: Archive, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the user's mirrors in their order, then the official host."""
    mirrors = environ.get(URLS, "").split()
    for url in mirrors:
        if not _allowed(url):
            raise BadOption(
                f"{URLS}: {host(url)} is not an https address.", f"    {URLS}='https://HOST/{archive.name}'"
            )
    return tuple(dict.fromkeys([*mirrors, archive.url]))


def host(url: str) -> str:
    """Return the host and port of a URL for a message, without password, path or query."""
    try:
        parts = urlsplit(url)
        if "@" in f"{parts.path}?{parts.query}#{parts.fragment}":
            return "?"  # what seems to be the port may be the beginning of a password with /, ? or # in it
        name = parts.hostname or "?"
        return (f"[{name}]" if ":" in name else name) + (f":{parts.port}" if parts.port else "")
    except ValueError:
        return "?"


def _allowed(url: str, before: str | None = None) -> bool:
    """Return whether this address may be used: plain http only on this machine, and never after https."""
    try:
        parts = urlsplit(url)
        name, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if not name:
        return False
    if parts.scheme == "https":
        return True
    from ngcdl.registry.challenge import is_loopback

    return parts.scheme == "http" and is_loopback(name) and (before is None or urlsplit(before).scheme == "http")


@contextlib.contextmanager
def answer(
    url: str, headers: Mapping[str, str], patience: Patience, environ: Mapping[str, str] = os.environ
) -> Iterator[requests.Response]:
    """Send the request, follow permitted redirects, and yield the response with its body still unread."""
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
    import urllib3

    from ngcdl.registry.line_trouble import has_proxy, refused, unusable

    if not has_proxy(url) and not _resolves(urlsplit(url).hostname, patience.lookup_seconds):
        raise Failure("its name can't be resolved", answered=False)
    timeout = (patience.connect_seconds, patience.stall_seconds)
    try:
        return session.get(
            url, headers=dict(headers), auth=_own(url), stream=True, timeout=timeout, allow_redirects=False
        )
    except requests.exceptions.SSLError as error:
        below = _innermost(error)
        if isinstance(below, ssl.SSLCertVerificationError):
            why, lacks_ca = refused(below)
            raise Failure(why, is_untrusted=lacks_ca) from error
        raise Failure(f"TLS failed: {_words(error)}") from error
    except requests.exceptions.ProxyError as error:
        # A proxy that answers, as with 403 or 407, is a setting to fix; a proxy that does not means no network.
        answered = "Tunnel connection failed: " in str(error)
        raise Failure(f"the proxy does not lead there: {_words(error)}", answered=answered) from error
    except requests.exceptions.ConnectTimeout as error:
        raise Failure(f"no connection within {patience.connect_seconds:g} s", answered=False) from error
    except requests.exceptions.ReadTimeout as error:
        raise Failure(f"no answer within {patience.stall_seconds:g} s") from error
    except requests.exceptions.ConnectionError as error:
        connected = "NewConnectionError" not in repr(error) and "NameResolutionError" not in repr(error)
        raise Failure(_words(error), answered=connected, again=True) from error
    except (requests.exceptions.InvalidURL, urllib3.exceptions.LocationParseError) as error:
        raise Failure(unusable(url)) from error
    except requests.exceptions.RequestException as error:
        raise Failure(_words(error)) from error
    except ValueError as error:
        raise Failure("it redirects to something that is no address") from error


def _own(url: str) -> requests.auth.AuthBase:
    """Authenticate only with what the URL itself holds: by default requests adds what ~/.netrc has for the host."""
    import requests

    from ngcdl.registry.wire import OwnAuth

    user, password = requests.utils.get_auth_from_url(url)
    return requests.auth.HTTPBasicAuth(user, password) if user or password else OwnAuth(None)


def _resolves(name: str | None, seconds: float) -> bool:
    """Look up a name with a time limit: if no name server answers, the system's resolver takes 10 s or more."""
    try:
        return bool(waiting.within(lambda: socket.getaddrinfo(name, None), seconds))
    except (OSError, UnicodeError):  # a TimeoutError is an OSError, too
        return False


def _words(error: BaseException) -> str:
    """Return the message of the innermost error, which is usually the operating system's."""
    below = _innermost(error)
    return (below.strerror if isinstance(below, OSError) else None) or str(below) or type(below).__name__


def _innermost(error: BaseException) -> BaseException:
    """Return the error that all others wrap. urllib3 never raises some of these; they hold theirs as an argument."""
    seen = error
    while (below := seen.__cause__ or seen.__context__ or next(iter(seen.args), None)) is not None:
        if not isinstance(below, BaseException):
            break
        seen = below
    return seen
