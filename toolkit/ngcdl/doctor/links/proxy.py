"""Proxies: do this shell and the engine, which each connect to the registry, use the same one?"""

from __future__ import annotations

from ngcdl.doctor.chain import Finding, Link, Step, ok, unchecked, warning
from ngcdl.doctor.sight import Sight, Trouble
from ngcdl.engines.docker.host import without_password
from ngcdl.registry import challenge

NAME = "proxy"
_URL = "https://docs.docker.com/engine/daemon/proxy/"


def judge(sight: Sight) -> Finding:
    if sight.settings_error is not None:  # the registry is not known
        return unchecked(NAME, "needs settings")
    address = sight.proxies.get("https_proxy") or sight.proxies.get("all_proxy")
    mine = address and without_password(address)
    if _is_direct(sight):
        return ok(NAME, f"{sight.registry_host} needs none")
    if isinstance(sight.engine, Trouble):
        return unchecked(NAME, "needs engine")
    its = sight.engine.facts.https_proxy or sight.engine.facts.http_proxy
    if mine and not its:
        cause = f"ngcdl uses {mine} for the registry, but the engine pulls without: behind a firewall it can't"
        edit = 'sudoedit /etc/docker/daemon.json    # {"proxies": {"https-proxy": "http://PROXY:PORT"}}'
        return warning(NAME, "only this shell has one", cause, Step(edit, by_hand=True), source=_URL)
    if its and not mine:
        cause = f"The engine pulls through {its}, but ngcdl queries without: behind a firewall it can't"
        return warning(
            NAME, "only the engine has one", cause, Step(f"export HTTPS_PROXY={its}", by_hand=True), source=_URL
        )
    return ok(NAME, f"{mine} here, {its} for the engine" if mine and its else "none")


def _is_direct(sight: Sight) -> bool:
    """Return whether the registry needs no proxy: it is on this machine, or named by NO_PROXY."""
    address = challenge.address(challenge.base_url(sight.registry_host))
    host = address.host if address else sight.registry_host
    if challenge.is_loopback(host):
        return True
    named = [one.strip().lstrip(".").lower() for one in sight.proxies.get("no_proxy", "").split(",") if one.strip()]
    return any(one == "*" or host == one or host.endswith(f".{one}") for one in named)


LINKS = (Link(240, NAME, judge),)
