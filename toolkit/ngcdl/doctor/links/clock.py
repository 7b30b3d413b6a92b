"""The clock: does it agree with the registry's? TLS and tokens fail if it is minutes off."""

from __future__ import annotations

from ngcdl.doctor.chain import Finding, Link, Step, broken, ok, unchecked
from ngcdl.doctor.sight import Sight, Trouble
from ngcdl.errors import RegistryUnreachable

NAME = "clock"
_MOST_SECONDS = 300  # what tokens and proxies commonly tolerate


def judge(sight: Sight) -> Finding:
    seen = sight.registry
    if isinstance(seen, Trouble):
        return unchecked(NAME, "needs registry")
    if isinstance(seen.error, RegistryUnreachable) and seen.error.by_clock:
        cause = "A certificate that is expired or not yet valid often means that the clock is wrong"
        return broken(NAME, "the registry's certificate is not valid on this host's date", cause, *_steps(sight))
    if seen.skew_seconds is None:
        return unchecked(NAME, "needs registry" if seen.error else f"{sight.registry_host} does not report its time")
    if abs(seen.skew_seconds) <= _MOST_SECONDS:
        return ok(NAME, f"within {_MOST_SECONDS // 60} minutes of {sight.registry_host}")
    side = "ahead of" if seen.skew_seconds > 0 else "behind"
    found = f"{_duration(abs(seen.skew_seconds))} {side} {sight.registry_host}"
    return broken(NAME, found, "Certificates and tokens are refused when the clock is that far off", *_steps(sight))


def _steps(sight: Sight) -> tuple[Step, ...]:
    if "systemctl" in sight.programs.names:
        return (Step("sudo timedatectl set-ntp true"),)
    return (Step("date -u", by_hand=True),)


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"


LINKS = (Link(230, NAME, judge),)
