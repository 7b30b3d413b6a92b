"""The chain: its links in order, and a finding about each from one look at the host.

Every file in links/ with a `LINKS` is found automatically. A link judges what was seen (sight.Sight) and touches
nothing itself. It returns None if it does not exist on this host (SELinux on Debian, CDI without a GPU).
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Literal

from ngcdl.doctor.sight import Sight, Trouble
from ngcdl.errors import BadOption, NgcdlError
from ngcdl.frozen import dataclass

# warning: the link works, at least in part; broken: the link fails its purpose; unchecked: `found` says why.
State = Literal["ok", "warning", "broken", "unchecked"]


@dataclass(frozen=True)
class Step:
    """One command to type. `by_hand`: only shown, never run (a reboot, something to inspect, another shell's state)."""

    command: str
    by_hand: bool = False


@dataclass(frozen=True)
class Finding:
    """The state of a link. If that is ok, `cause` is a hint and `remedy` an improvement."""

    name: str
    state: State
    found: str
    cause: str | None = None
    remedy: tuple[Step, ...] = ()
    source: str | None = None


@dataclass(frozen=True)
class Link:
    """`place` orders the links, from the hardware up, and is unique."""

    place: int
    name: str
    judge: Callable[[Sight], Finding | None]


def links() -> tuple[Link, ...]:
    """Return every link, in order."""
    from ngcdl.doctor import links as package

    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    return tuple(sorted((link for module in modules for link in module.LINKS), key=lambda link: link.place))


def examine(sight: Sight) -> tuple[Finding, ...]:
    """Judge every link that exists on this host."""
    found = (link.judge(sight) for link in links())
    return tuple(finding for finding in found if finding is not None)


def document(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return what --json prints."""
    return {
        "links": [asdict(finding) for finding in findings],
        "broken": sum(finding.state == "broken" for finding in findings),
        "warnings": sum(finding.state == "warning" for finding in findings),
    }


# -- how links say it ------------------------------------------------------------------------------------------------


def ok(name: str, found: str, hint: str | None = None, *remedy: Step, source: str | None = None) -> Finding:
    return Finding(name, "ok", found, hint, remedy, source)


def warning(name: str, found: str, cause: str, *remedy: Step, source: str | None = None) -> Finding:
    return Finding(name, "warning", found, cause, remedy, source)


def broken(name: str, found: str, cause: str, *remedy: Step, source: str | None = None) -> Finding:
    return Finding(name, "broken", found, cause, remedy, source)


def unchecked(name: str, why: str) -> Finding:
    return Finding(name, "unchecked", why)


def not_seen(name: str, trouble: Trouble, of: str | None = None) -> Finding:
    """Report that a link could not be judged: because the link `of` failed, or else because of `trouble`."""
    variable = re.match(r"([A-Z_]+)=", trouble.why)
    if of is None and isinstance(trouble.error, BadOption) and variable is not None:
        cause = "A variable of this shell has an invalid value, and a run fails with it"
        return broken(name, trouble.why, cause, Step(f"unset {variable[1]}", by_hand=True))
    if of is None and trouble.error is not None:
        return from_error(name, trouble.error)
    return unchecked(name, f"needs {of}" if of else trouble.why)


# Commands that the user has to type: they only inspect, change this very shell, or have a placeholder to fill in.
_BY_HAND = re.compile(
    r"\breboot\b|\bdmesg\b|\bjournalctl\b|^(unset|export|ls|df|curl)\b|dkms status|docker (info|context|system df)|"
    r"^nvidia-smi$|\.\.\.|\b(DIR|FILE|RUN)\b|=\.\.|ngcdl run"
)


def from_error(name: str, error: NgcdlError, cause: str | None = None) -> Finding:
    """Turn an error of errors/ into the finding of a broken link: its message, the prose of its hint, and its commands
    as the remedy."""
    urls = [text for line in error.hint.splitlines() if (text := line.strip()).startswith("https://")]
    steps = [Step(line, by_hand=bool(_BY_HAND.search(line))) for line in error.commands if line not in urls]
    prose = [line for line in error.prose if line not in urls]
    # the commands that follow a colon in the hint are shown separately
    told = " ".join([re.sub(":$", ".", line) for line in prose[:-1]] + prose[-1:]).rstrip(":")
    return Finding(name, "broken", error.message, cause or told or None, tuple(steps), next(iter(urls), None))
