"""What doctor looks at: all probes run at once, each in a thread with a time limit; late probes are abandoned.

On a healthy host they take about a second. The limits are for hosts with faults: a probe that hangs delays no other.
"""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from ngcdl import settings
from ngcdl.doctor.hands import Hands
from ngcdl.doctor.sight import Sight, Trouble
from ngcdl.errors import BadOption, NgcdlError

# The engine's ping is given up after 10 s (engines/docker).
LIMITS = {"engine": 12.0, "registry": 5.0, "keys": 5.0, "dataset": 4.0, "wanted_bytes": 4.0}
_NEEDING = ("keys", "registry", "dataset", "wanted_bytes")  # ngcdl's settings
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")


def gather(hands: Hands | None = None) -> Sight:
    """Look at everything; if ngcdl's own settings can't be read, at everything that needs none of them."""
    from ngcdl.doctor.look import kernel, keys, programs
    from ngcdl.engines.docker.engine import address
    from ngcdl.telemetry.driver import patience_seconds
    from ngcdl.telemetry.gpu import probing

    hands = hands or Hands()
    needing, about = _by_settings(hands)
    with probing() as gpus:  # before there are threads
        seen = together(
            {"gpus": gpus, "engine": lambda: _look("engine", hands), **needing},
            LIMITS | {"gpus": patience_seconds() + 1.0},
        )
    return Sight(
        kernel=kernel.look(hands, platform.machine()),
        programs=programs.look(hands),
        shm=hands.space(hands.at("/dev/shm")),
        proxies={name: value for name in _PROXIES if (value := _variable(hands.environ, name))},
        context=keys.context(hands),
        address=address(),
        **about,
        **seen,
    )


def _by_settings(hands: Hands) -> tuple[dict[str, Callable[[], Any]], dict[str, Any]]:
    """Return the looks that need ngcdl's settings, and what the Sight has of these settings themselves. If they can't
    be read, the looks find out nothing."""
    from ngcdl.doctor.look import keys

    try:
        known = settings.load(hands.environ)
    except BadOption as error:
        return dict.fromkeys(_NEEDING, lambda: Trouble("needs settings")), {"settings_error": error}
    host = known.registry_host
    key = keys.finder(hands, host)
    looks: tuple[Callable[[], Any], ...] = (
        lambda: keys.look(hands, key),
        lambda: _look("registry", hands, host, key),
        lambda: _look("dataset", hands, known.cache),
        lambda: _look("image", hands, known),
    )
    return dict(zip(_NEEDING, looks, strict=True)), {"registry_host": host}


def _look(name: str, *about: object) -> Any:
    return import_module(f"{__name__}.{name}").look(*about)


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.upper()) or ""


def together(looks: Mapping[str, Callable[[], Any]], limits: Mapping[str, float]) -> dict[str, Any]:
    """Run all `looks` at once, and wait for each at most its limit. If a look fails or is late, return a Trouble."""
    seen: dict[str, Any] = {}

    def work(name: str) -> None:
        try:
            seen[name] = looks[name]()
        except NgcdlError as error:
            seen[name] = Trouble(error.message, error)
        except Exception as error:  # the end of a thread: a bug in one look must not hide the others
            seen[name] = Trouble(f"ngcdl could not look: {type(error).__name__}: {error}")

    threads = {name: threading.Thread(target=work, args=(name,), daemon=True) for name in looks}
    start = time.monotonic()
    for thread in threads.values():
        thread.start()
    for name, thread in threads.items():
        thread.join(max(0.0, limits[name] - (time.monotonic() - start)))
    return {name: seen.get(name, Trouble(f"no answer within {limits[name]:g} s", is_late=True)) for name in looks}
