"""Hosts that forbid the documented `--ulimit memlock=-1`: the run gets what they allow, and its record says so.

Root may lack CAP_SYS_RESOURCE (rootless Docker, LXC, some virtual machines); then runc can't raise the hard limit:
https://github.com/containerd/nerdctl/issues/1937. Finding this out costs a failed start, so the result is remembered
until the host reboots.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ngcdl import processes, settings
from ngcdl.engines.values import Order


def is_refusal(text: str) -> bool:
    """Whether `text` refuses the memlock limit. runc numbers the limits as setrlimit does: memlock is 8."""
    return bool(re.search(r"rlimit type 8\b|RLIMIT_MEMLOCK", text))


def without(order: Order) -> Order:
    """Return `order` without a memlock limit, so that the engine's own applies; `order` itself if it has none."""
    limits = tuple(limit for limit in order.spec.ulimits if limit[0] != "memlock")
    return order if limits == order.spec.ulimits else replace(order, spec=replace(order.spec, ulimits=limits))


def note(pid: int) -> str:
    """Say which limit the container whose first process is `pid` (0: unknown) has instead."""
    allowed = "the engine's own limit"
    with contextlib.suppress(OSError, IndexError, ValueError):
        for line in Path(f"/proc/{pid}/limits").read_text().splitlines():
            if line.startswith("Max locked memory"):
                allowed = f"{int(line.split()[3]) >> 10} KiB"  # as `ulimit -l` counts
    return f"This host forbids --ulimit memlock=-1; the container runs with {allowed}."


def _mark(info: Mapping[str, Any], boot: str) -> Path:
    engine = re.sub(r"[^0-9A-Za-z]+", "-", str(info.get("ID", "")))
    return settings.load().cache / f"memlock-forbidden-{engine}-{boot}"


def is_known_forbidden(info: Mapping[str, Any]) -> bool:
    boot = processes.boot_id()
    return boot is not None and os.path.lexists(_mark(info, boot))  # Path.exists raises where this user may not look


def remember_forbidden(info: Mapping[str, Any]) -> None:
    """Remember it of this engine until the next boot, and forget what was remembered of its earlier boots. What is
    remembered of others stays: a user may have several engines, and hosts that share a home."""
    boot = processes.boot_id()
    if boot is not None:
        mark = _mark(info, boot)
        with contextlib.suppress(OSError):
            mark.parent.mkdir(parents=True, exist_ok=True)
            for old in mark.parent.glob(_mark(info, len(boot) * "?").name):
                old.unlink(missing_ok=True)
            mark.touch()
