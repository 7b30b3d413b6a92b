"""What `--autotune` chose for a run, from its start event (containers/trainer/events.py)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ngcdl.figures import measured
from ngcdl.report.measured import lines


def chosen(start: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a trial chose other than the defaults; {} if nothing."""
    found = _trial(start).get("chosen")
    return found if isinstance(found, Mapping) else {}


def onednn(start: Mapping[str, Any]) -> str | None:
    """Return "off" if a trial chose to compute without oneDNN."""
    return "off" if chosen(start).get("onednn") is False else None


def has_failed(start: Mapping[str, Any]) -> bool:
    """Return whether a candidate failed in this run's own trial: the kernel may have OOM-killed it."""
    it = _trial(start)
    return it.get("remembered") is False and any(bool(one.get("failed")) for one in lines.lines_in(it.get("tries")))


def in_words(start: Mapping[str, Any]) -> str | None:
    """Say what was chosen, among what, and by what margin; None if there was nothing to choose."""
    it = _trial(start)
    if not it:
        return None
    if it.get("skipped"):
        return f"nothing: {it['skipped']}"
    tries = lines.lines_in(it.get("tries"))
    best = next((one for one in tries if one.get("way") == chosen(start)), None)
    default = next((one for one in tries if one.get("way") == {}), None)
    if best is None or default is None:
        return None
    beside = f", against {_rate(default)}" if best is not default else ""
    others = [_rate(one) for one in tries if one is not best and one is not default]
    return f"{_rate(best)}{beside}; {_when(it)}" + (f"; also tried: {'; '.join(others)}" if others else "")


def _trial(start: Mapping[str, Any]) -> Mapping[str, Any]:
    found = start.get("autotune")
    return found if isinstance(found, Mapping) else {}


def _rate(one: Mapping[str, Any]) -> str:
    rate, least, most = (lines.number(one.get(name)) for name in ("examples_per_second", "least", "most"))
    if one.get("failed") or rate is None or least is None or most is None:
        return f"{one.get('name')} ({one.get('failed') or 'there was no time left'})"
    among = f"{measured(least)} to {measured(most)} in {one.get('trials')}"
    return f"{one.get('name')} ({measured(rate)} examples/s, {among})"


def _when(it: Mapping[str, Any]) -> str:
    seconds, then = lines.number(it.get("seconds")), lines.number(it.get("measured"))
    took = f"a trial of {seconds:.0f} s" if seconds is not None else "a trial"
    if not it.get("remembered"):
        return f"{took}, {'remembered' if it.get('kept') else 'not remembered'}"
    day = time.strftime("%Y-%m-%d", time.gmtime(then)) if then is not None and 0 <= then < 2e11 else "n/a"
    return f"remembered since {day}"
