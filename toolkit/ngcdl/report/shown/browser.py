"""Draws a page as an image, with this machine's Chromium, headless and controlled over a pipe.

It speaks the DevTools protocol (https://chromedevtools.github.io/devtools-protocol/): NUL-terminated JSON messages on
the browser's file descriptors 3 and 4. No port is opened, and no other program is needed.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from ngcdl.errors import NoBrowser
from ngcdl.frozen import dataclass
from ngcdl.settings import without_keys

NAMES = (
    "chromium", "chromium-browser", "chromium-headless-shell", "google-chrome", "google-chrome-stable",
    "microsoft-edge", "brave-browser", "chrome",
)  # fmt: skip
_SECONDS = 60.0
_WIDTH = 1100
_SCALE = 2.0
# In a picture nobody can scroll: long words are broken, as on paper, and what is wider all the same makes it wider.
_UNSCROLLED = (
    "<style>.wide { overflow: visible; background: none } "
    "th, td { min-width: 6rem; overflow-wrap: anywhere }</style></head>"
)
_MOST_PIXELS = 16_000  # the height limit of Chromium's screenshots
_LEAST_SCALE = 1.0  # a smaller scale is illegible: a page that is still too long is cut, which the caller reports


def found() -> str:
    """Return the browser's path: NGCDL_BROWSER, or the first of NAMES on PATH. Raise NoBrowser."""
    named = os.environ.get("NGCDL_BROWSER")
    program = shutil.which(named) if named else next(filter(None, map(shutil.which, NAMES)), None)
    if not program:
        raise NoBrowser(f"NGCDL_BROWSER={named} is not a program" if named else "no Chromium or Chrome is on PATH")
    return program


@dataclass(frozen=True)
class Picture:
    """A PNG of a page, and the share (0..1) of the page's height that it shows."""

    png: bytes
    share: float


def picture(page: str) -> Picture:
    """Draw `page`, an HTML document without scripts: scaled down if it is long, cut if it is too long for that. Raise
    NoBrowser."""
    with tempfile.TemporaryDirectory(prefix="ngcdl-") as folder, Browser.started(found(), Path(folder)) as browser:
        browser.sized(_WIDTH)
        # The page is not passed as a file: a browser in a snap has its own /tmp, and would draw a "not found" page.
        frame = browser.ask("Page.getFrameTree")["frameTree"]["frame"]["id"]
        browser.load("Page.setDocumentContent", {"frameId": frame, "html": unscrolled(page)})
        return browser.picture()


def unscrolled(page: str) -> str:
    return page.replace("</head>", _UNSCROLLED, 1)


class Browser:
    """One tab. `told` has the events received so far; `session` identifies the tab in the protocol."""

    def __init__(self, to: int, answers: int) -> None:
        self._to, self._answers = to, answers
        self._left, self._number, self.session = b"", 0, None
        self.told: list[dict[str, Any]] = []

    @classmethod
    @contextlib.contextmanager
    def started(cls, program: str, folder: Path, *more: str) -> Iterator[Self]:
        """Start `program` with a profile in `folder`, and kill it on exit, whatever happens."""
        pid, to, answers = _spawn(program, folder, more)
        browser = cls(to, answers)
        try:
            browser._attach()
            yield browser
        finally:
            for descriptor in (to, answers):
                os.close(descriptor)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _attach(self) -> None:
        target = self.ask("Target.createTarget", {"url": "about:blank"})["targetId"]
        self.session = self.ask("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        self.ask("Page.enable")

    def sized(self, width: int, scale: float = _SCALE) -> None:
        shape = {"width": width, "height": 900, "deviceScaleFactor": scale, "mobile": width < 600}
        self.ask("Emulation.setDeviceMetricsOverride", shape)

    def load(self, method: str, parameters: Mapping[str, Any]) -> None:
        """Load a page with `method` and wait for its load event. Raise NoBrowser."""
        self.told.clear()
        if error := self.ask(method, parameters).get("errorText"):  # else it would draw its error page
            raise NoBrowser(f"it can't load the page: {error}")
        while not any(event["method"] == "Page.loadEventFired" for event in self.told):
            self.told.append(self._next(time.monotonic() + _SECONDS))

    def picture(self) -> Picture:
        """Capture the page from its top, at its own size."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        scale = min(_SCALE, max(_LEAST_SCALE, _MOST_PIXELS / size["height"]))
        height = min(size["height"], _MOST_PIXELS // scale)
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height, "scale": scale / _SCALE}
        shot = self.ask("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True, "clip": clip})
        return Picture(base64.b64decode(shot["data"]), height / size["height"])

    def ask(self, method: str, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send one command and return its result; keep events that arrive meanwhile. Raise NoBrowser."""
        self._number += 1
        asked: dict[str, Any] = {"id": self._number, "method": method, "params": dict(parameters or {})}
        asked |= {"sessionId": self.session} if self.session else {}
        end = time.monotonic() + _SECONDS
        try:
            self._send(json.dumps(asked).encode() + b"\0", end)
        except OSError as error:
            raise NoBrowser(f"it ended at once ({error.strerror})") from error
        while (message := self._next(end)).get("id") != self._number:
            self.told.append(message)
        if "error" in message:
            raise NoBrowser(f"it refused {method}: {message['error'].get('message')}")
        result: dict[str, Any] = message["result"]
        return result

    def _send(self, data: bytes, end: float) -> None:
        left = memoryview(data)
        while left:
            if not select.select([], [self._to], [], max(0.0, end - time.monotonic()))[1]:
                raise NoBrowser(f"it did not answer within {_SECONDS:g} s")
            left = left[os.write(self._to, left[: select.PIPE_BUF]) :]  # a writable pipe takes this much at once

    def _next(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._left:
            if not select.select([self._answers], [], [], max(0.0, end - time.monotonic()))[0]:
                raise NoBrowser(f"it did not answer within {_SECONDS:g} s")
            data = os.read(self._answers, 1 << 16)
            if not data:
                raise NoBrowser("it ended before it had drawn the page")
            self._left += data
        one, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(one)
        return {"method": ""} | message


def _spawn(program: str, folder: Path, more: tuple[str, ...]) -> tuple[int, int, int]:
    """Start the browser with a pipe at its descriptors 3 and 4; return its pid and our ends."""
    words = [program, "--headless", "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}", *more]
    words += ["--no-first-run", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage", "--disable-extensions"]
    words += ["--disable-background-networking", "--disable-component-update", "--no-default-browser-check"]
    if os.geteuid() == 0:
        words.append("--no-sandbox")  # Chromium does not start as root with a sandbox; the page has no scripts
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    # Both ends are moved above 3 and 4 first, so that duplicating one into place never overwrites the other.
    high = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 10) for one in (theirs_in, theirs_out)]
    nowhere = os.open(os.devnull, os.O_RDWR)
    try:
        actions = [(os.POSIX_SPAWN_DUP2, nowhere, number) for number in (0, 1, 2)]
        actions += [(os.POSIX_SPAWN_DUP2, high[0], 3), (os.POSIX_SPAWN_DUP2, high[1], 4)]
        pid = os.posix_spawn(program, words, without_keys(os.environ), file_actions=actions, setpgroup=0)
    except OSError as error:
        for one in (ours_out, ours_in):
            os.close(one)
        raise NoBrowser(f"{program} does not start: {error.strerror}") from error
    finally:
        for one in (theirs_in, theirs_out, nowhere, *high):
            os.close(one)
    return pid, ours_out, ours_in
