"""One request to a registry over HTTP: retried if that helps, redirected without the key, read up to a limit."""

from __future__ import annotations

import email.utils
import math
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import urljoin, urlsplit

import requests
from requests.auth import AuthBase

from ngcdl import __version__
from ngcdl.errors import NgcdlError, RateLimited, RegistryAnswer, RegistryUnreachable
from ngcdl.excerpt import excerpt
from ngcdl.frozen import dataclass
from ngcdl.registry import challenge, trust
from ngcdl.registry.key import Secret
from ngcdl.registry.line_trouble import FOREIGN, translated

TRIES = 3
PAUSE_SECONDS = 0.5  # before the second try, give or take half; twice that before the third
TIMEOUT_SECONDS = (5.0, 15.0)  # for a connection, and for each part of an answer
RETRY_AFTER_LIMIT_SECONDS = 30.0
BODY_SECONDS = 120.0
_RETRIED = frozenset({429, 500, 502, 503, 504})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HOPS = 5
_RANGE = re.compile(r"\s*bytes\s+(\d{1,18})-(?:\d+/(\d{1,18}))?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class Request:
    """One request. `authorization` is the whole header; `form` makes it a POST."""

    url: str
    accept: str = "*/*"
    authorization: Secret | None = None
    form: tuple[tuple[str, Secret], ...] | None = None
    follow: bool = True
    limit_bytes: int = 4 << 20
    start: int = 0  # the first byte of the body to send; the earlier ones are here already

    @property
    def host(self) -> str:
        """The host as the URL writes it, for messages."""
        return urlsplit(self.url).netloc


@dataclass(frozen=True)
class Response:
    """One response, whatever its status. `headers` is case-insensitive; `host` is the last one of all redirects."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)  # not shown, because it may hold a token
    host: str

    @property
    def told(self) -> str:
        """The answer in one line: its status in words and the beginning of the body."""
        try:
            phrase = f"{self.status} {HTTPStatus(self.status).phrase}"
        except ValueError:
            phrase = str(self.status)
        return f"{phrase}: {text}" if (text := excerpt(self.body)) else f"{phrase} with an empty body."


class Stream:
    """A body that is read in pieces, as a layer may be too big for memory. `start` is the offset of its first byte;
    `whole_bytes` is the length from byte 0 on, None if the answer does not tell.

    The caller has to close it."""

    def __init__(self, response: requests.Response, question: Request, timeout_seconds: tuple[float, float]) -> None:
        self.status, self.host = response.status_code, question.host
        length, about = (response.headers.get(name, "") for name in ("Content-Length", "Content-Range"))
        found, is_part = _RANGE.match(about), self.status == 206
        self.start = 0 if not is_part else int(found[1]) if found else question.start
        told = (found[2] if found else None) if is_part else length
        self.whole_bytes = int(told) if told and re.fullmatch(r"\d{1,18}", told, re.ASCII) else None
        self._response, self._timeout_seconds = response, timeout_seconds
        self._read = _reader(response)

    def read(self, limit_bytes: int) -> bytes:
        """Return what has arrived, b"" at the end. Raise RegistryUnreachable if the connection is cut or stalls."""
        try:
            return self._read(limit_bytes)
        except FOREIGN as error:
            raise translated(self.host, error, self._timeout_seconds)[0] from error

    def close(self) -> None:
        self._response.close()


R = TypeVar("R", bound=Response | Stream)


class OwnAuth(AuthBase):
    """Keep requests from adding credentials from ~/.netrc or a URL, so that keys go only to the intended hosts."""

    def __init__(self, header: Secret | None) -> None:
        self.header = header

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers.pop("Authorization", None)
        if self.header is not None:
            request.headers["Authorization"] = self.header.reveal()
        return request


class Wire:
    """A pool of connections. Errors name the host of the request, which may be the token server.

    `asked_requests` counts the requests sent, `asked_bytes` the bytes of the bodies received, but not those of streams.
    """

    def __init__(
        self,
        timeout_seconds: tuple[float, float] = TIMEOUT_SECONDS,
        sleep: Callable[[float], object] = time.sleep,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._sleep = sleep
        self._given_seconds, self._until = math.inf, math.inf
        self.asked_requests, self.asked_bytes = 0, 0
        self._session = trust.session(environ)
        self._session.headers["User-Agent"] = f"ngcdl/{__version__}"

    def close(self) -> None:
        """Close the connections; harmless twice."""
        self._session.close()

    def give(self, seconds: float) -> None:
        """Limit everything from now on, including retries and waits, to `seconds` in total."""
        self._given_seconds, self._until = seconds, time.monotonic() + seconds

    def ask(self, question: Request) -> Response:
        """Send a request and return the answer. Raise RegistryUnreachable, RateLimited or RegistryAnswer."""
        return self._follow(question, self._once)

    def open(self, question: Request) -> Response | Stream:
        """Send a request and return the body as a Stream, or a Response if the request failed. Raise as `ask` does."""
        return self._follow(question, self._opened)

    def _follow(self, question: Request, send: Callable[[Request, tuple[float, float]], R]) -> R:
        for _hop in range(_HOPS):
            answer = self._persist(question, send)
            if isinstance(answer, Stream) or answer.status not in _REDIRECTS:
                return answer
            if not question.follow:
                raise RegistryAnswer(question.host, f"{answer.status}, it redirects a request that may carry a key.")
            question = _redirected(question, answer)
        raise RegistryAnswer(question.host, f"it redirects more than {_HOPS} times.")

    def _persist(self, question: Request, send: Callable[[Request, tuple[float, float]], R]) -> R:
        waits = _waits()
        while True:
            wait = next(waits, None)
            timeout_seconds = self._patience(question.host)
            try:
                answer = send(question, timeout_seconds)
            except FOREIGN as error:
                failure, transient = translated(question.host, error, timeout_seconds)
                if wait is None or not transient or self._is_too_late(wait):
                    raise failure from error
            else:
                if isinstance(answer, Stream) or answer.status not in _RETRIED:
                    return answer
                asked = _retry_after(answer.headers)
                if wait is None or (asked or 0.0) > RETRY_AFTER_LIMIT_SECONDS:
                    raise _tired(question.host, answer, asked)
                wait = max(wait, asked or 0.0)
                if self._is_too_late(wait):
                    raise _tired(question.host, answer, asked)
            self._sleep(wait)

    def _patience(self, host: str) -> tuple[float, float]:
        """Return the seconds to wait for a connection and for an answer, within the total time that is left."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise RegistryUnreachable(host, f"no answer within {self._given_seconds:g} s")
        connection, answer = self._timeout_seconds
        left = max(round(left, 1), 0.1)
        return min(connection, left), min(answer, left)

    def _is_too_late(self, wait_seconds: float) -> bool:
        return time.monotonic() + wait_seconds >= self._until

    def _once(self, question: Request, timeout_seconds: tuple[float, float]) -> Response:
        with self._send(question, timeout_seconds) as response:
            return self._answer(response, question)

    def _opened(self, question: Request, timeout_seconds: tuple[float, float]) -> Response | Stream:
        response = self._send(question, timeout_seconds)
        if response.status_code in (200, 206):
            return Stream(response, question, timeout_seconds)
        with response:
            return self._answer(response, question)

    def _answer(self, response: requests.Response, question: Request) -> Response:
        return Response(response.status_code, response.headers, self._body(response, question), host_of(question.url))

    def _send(self, question: Request, timeout_seconds: tuple[float, float]) -> requests.Response:
        parts = challenge.address(question.url)
        if parts is None or not parts.is_safe:
            raise RegistryAnswer(question.host[:100], "it names an address that ngcdl does not go to.")
        # Never reach this machine through a proxy: plain http that carries a key must not leave it.
        self._session.trust_env = not challenge.is_loopback(parts.host)
        self.asked_requests += 1
        headers = {"Accept": question.accept, "Accept-Encoding": "identity"}
        if question.start:
            headers["Range"] = f"bytes={question.start}-"
        return self._session.request(
            "POST" if question.form is not None else "GET",
            question.url,
            data={name: value.reveal() for name, value in question.form} if question.form is not None else None,
            headers=headers,
            auth=OwnAuth(question.authorization),
            timeout=timeout_seconds,
            allow_redirects=False,
            stream=True,
        )

    def _body(self, response: requests.Response, question: Request) -> bytes:
        read, host = _reader(response), question.host
        given = min(BODY_SECONDS, self._given_seconds)
        body, deadline = bytearray(), min(time.monotonic() + BODY_SECONDS, self._until)
        while chunk := read(65536):
            body += chunk
            self.asked_bytes += len(chunk)
            if len(body) > question.limit_bytes:
                raise RegistryAnswer(host, f"more than {question.limit_bytes} bytes where a few thousand are expected.")
            if time.monotonic() > deadline:
                raise RegistryUnreachable(host, f"its answer was not complete after {given:g} s")
        return bytes(body)


def _reader(response: requests.Response) -> Callable[[int], bytes]:
    # urllib3's read1 (2.x) returns what has arrived; with a slow server, read would wait for a whole block.
    read: Callable[[int], bytes] = getattr(response.raw, "read1", response.raw.read)
    return read


def host_of(url: str) -> str:
    """Return the host of a URL in one spelling, with its port unless that is the usual one."""
    parts = challenge.address(url)
    return parts.netloc if parts else ""


def _redirected(question: Request, answer: Response) -> Request:
    target = urljoin(question.url, answer.headers.get("Location", ""))
    here, there = challenge.address(question.url), challenge.address(target)
    if here is None or there is None or (there.scheme == "http" and here.scheme == "https"):
        raise RegistryAnswer(question.host, f"{answer.status}, it redirects to an address that ngcdl does not go to.")
    # The registry redirects blobs to a CDN, with a signature in the URL: the CDN must not get the key.
    is_own = (here.scheme, here.netloc) == (there.scheme, there.netloc)
    return replace(question, url=target, authorization=question.authorization if is_own else None)


def _waits() -> Iterator[float]:
    """Yield the pauses between tries, in seconds, with jitter so that many clients do not come back at once."""
    for attempt in range(TRIES - 1):
        yield PAUSE_SECONDS * 2**attempt * random.uniform(0.5, 1.5)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Read Retry-After, a number of seconds or a date. https://www.rfc-editor.org/rfc/rfc9110#field.retry-after"""
    text = headers.get("Retry-After", "").strip()[:64]
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _tired(host: str, answer: Response, asked_seconds: float | None) -> NgcdlError:
    if answer.status == 429:
        return RateLimited(host, asked_seconds)
    return RegistryAnswer(host, answer.told, asked_seconds)
