"""The cache for programs in containers: it is planned, passed on to a watcher, and kept from runs of strangers."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from docker_socket import Daemon, serving
from fakes import FakeJob, ready
from house import House
from made_runs import Made

from ngcdl.cli.watch import _followed, hand_over
from ngcdl.errors import NgcdlError
from ngcdl.folder import IMPORTED
from ngcdl.record import Run
from ngcdl.running import launch
from ngcdl.running.prepare import Ready
from ngcdl.storing.store import Store

RUN = "20231114-221320-cifar10-cpu001"


def planned(house: House, *line: str) -> str:
    socket = house.home / "d.sock"
    socket.unlink(missing_ok=True)
    with serving(Daemon(socket)) as daemon:
        done = house.run(*line, env={"DOCKER_HOST": daemon.host})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("root", [(), ("--root",)])
def test_a_dry_run_shows_the_folder_of_the_caches_and_makes_none(house: House, root: tuple[str, ...]) -> None:
    plan = planned(house, "run", "tensorflow:18.01-py2", *root, "--dry-run", "--", "ls")
    folder = f"{house.home}/cache/ngcdl/inside/nvcr.io+nvidia+tensorflow"
    shown = (
        f"mkdir -p {house.home}/state/ngcdl/runs/dry-run/home {folder}\n" in plan,
        f"    --mount type=bind,source={folder},target=/ngcdl/cache \\\n" in plan,
        "    -e TRITON_CACHE_DIR=/ngcdl/cache/built/18.01-py2/triton \\\n" in plan,
    )
    assert shown == (not root,) * 3
    assert ("/ngcdl/cache" in plan) is not bool(root)
    assert not Path(folder).exists()


def test_a_replay_of_a_stranger_s_run_neither_reads_nor_changes_what_others_cached(house: House) -> None:
    spec = Made("cpu").run(RUN).spec or {}
    Made("cpu").keep(house.store, RUN, spec=spec | {"workload": None, "command": ["ls"], "user": "1:1"})
    assert "target=/ngcdl/cache" in planned(house, "runs", "replay", RUN, "--dry-run")
    (house.store.folder(RUN) / IMPORTED).touch()
    assert "/ngcdl/cache" not in planned(house, "runs", "replay", RUN, "--dry-run")


@pytest.mark.parametrize("cache", [Path("/home/me/.cache/ngcdl/inside/x"), None])
def test_a_watcher_is_told_the_folder_of_the_caches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path | None
) -> None:
    store, python, followed = Store(tmp_path / "runs"), tmp_path / "python", list[Ready]()
    python.write_text(f"#!/bin/sh\ncat > {tmp_path}/letter\nexit 3\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    begun, _ = ready(store, FakeJob())
    with pytest.raises(NgcdlError, match="ended with 3"):
        hand_over(replace(begun, order=replace(begun.order, cache=cache)), store)

    def follow(told: Ready, *_: object) -> Run:
        followed.append(told)
        return told.run

    monkeypatch.setattr(launch, "follow", follow)
    with serving(Daemon(tmp_path / "d.sock")) as daemon:
        monkeypatch.setenv("DOCKER_HOST", daemon.host)
        _followed(store, begun.run, json.loads((tmp_path / "letter").read_text()))
    assert followed[0].order.cache == cache
