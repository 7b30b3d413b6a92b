"""Engines that are slow to create or start a container: ngcdl says so, and Ctrl-C cancels at once, leaving nothing."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from house import until
from ngcdl_child import Started, User, user_in
from own_engine import engine_of_ones_own
from socket_relay import relay_to

pytestmark = pytest.mark.lab

# Acts like a hook that waits for a driver: containerd calls this script in place of runc to create a container.
SLOW = """#!/bin/sh
case " $* " in *" create "*) while [ -e {hold} ]; do sleep 0.1; done ;; esac
exec runc "$@"
"""
AT_ONCE_SECONDS = 30.0  # far less than the minute that an engine has to answer; each call after Ctrl-C has 3 s


class SlowUser:
    """A user of an engine that does not finish creating containers before `go`."""

    def __init__(self, user: User, hold: Path) -> None:
        self.user, self._hold = user, hold

    def go(self) -> None:
        self._hold.unlink(missing_ok=True)


@pytest.fixture
def slow(lab: dict[str, Any], tmp_path: Path) -> Iterator[SlowUser]:
    runtime, hold = tmp_path / "slow", tmp_path / "hold"
    runtime.write_text(SLOW.format(hold=hold))
    runtime.chmod(0o755)
    hold.touch()
    how = {"runtimes": {"slow": {"path": str(runtime)}}, "default-runtime": "slow"}
    with engine_of_ones_own(lab, **how) as engine, user_in(tmp_path, lab, engine.host) as user:
        one = SlowUser(user, hold)
        try:
            yield one
        finally:
            one.go()


def _told(child: Started, what: str) -> None:
    """Wait until ngcdl says that it waits for `what`: after 10 s, or a little later on a busy machine."""
    child.until_err(f"waiting for {what} (1")
    assert re.search(rf"waiting for {what} \(1\d s so far\); Ctrl-C cancels\n", child.err)


def _given_up(child: Started) -> str:
    """Send Ctrl-C, check that the child ends at once with 130, and return what it printed to stderr."""
    began = time.monotonic()
    child.signal(signal.SIGINT)
    done = child.done()
    assert time.monotonic() - began < AT_ONCE_SECONDS
    assert done.code == 130, done
    return done.err


@pytest.mark.parametrize("words", [(), ("--detach",)])
def test_a_start_that_hangs_is_told_and_given_up_and_its_container_does_not_stay(
    slow: SlowUser, words: tuple[str, ...]
) -> None:
    user = slow.user
    child = user.start("run", "busybox:1", *words, "--", "sleep", "600")
    what = "the run to start" if words else "the Docker engine to start the container"
    _told(child, what)
    said = _given_up(child)
    record = user.record()
    assert (record["status"], record["owner"] is None) == ("interrupted", False)
    assert words or "the next ngcdl run or runs removes it" in said
    slow.go()
    until(lambda: user.shown()["owner"] is None, "the clean-up")
    assert user.containers() == []
    assert user.record()["status"] == "interrupted"


def test_a_container_that_comes_after_its_run_was_given_up_is_removed_by_the_next_command(
    user: User, tmp_path: Path
) -> None:
    with relay_to(user.environment["DOCKER_HOST"], tmp_path) as relay:
        relay.hold(rb"^POST /[^ ]*/containers/create")
        child = user.start("run", "busybox:1", "--", "sleep", "600", DOCKER_HOST=relay.address)
        _told(child, "the Docker engine to create the container")
        assert "the next ngcdl run or runs removes it" in _given_up(child)
    record = user.shown()
    assert (record["status"], record["exit_code"], record["owner"] is None) == ("interrupted", 130, False)
    registry = user.lab["registry"]["host"]
    user.docker("create", "--label", f"ngcdl.run={record['id']}", f"{registry}/nvidia/busybox:1", "sleep", "600")
    assert len(user.containers()) == 1
    assert user.run("run", "busybox:1", "--", "true").code == 0
    assert user.containers() == []
    assert user.run("show", record["id"], "--json").out.count('"owner": null') == 1
