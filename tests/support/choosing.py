"""What choice.choose answers on hosts with and without cards and Docker, each simulated in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker_socket import Daemon, serving
from telemetry.stand_in import Host

CODE = """
import json, os, sys
SECONDS = 3600.0
engine, image, gpus, host = sys.argv[1:]
os.environ["DOCKER_HOST"] = host
from ngcdl.engines.docker import engine as docker_s
from ngcdl.telemetry import driver
# both answer at once: only a machine that is busy, or frozen for a while, makes them late
driver.patience_seconds = lambda: SECONDS
docker_s._PING_SECONDS = docker_s._LOOK_SECONDS = SECONDS
exec(os.environ.get("BEFORE", ""))
from ngcdl.choice import DEFAULT_FRAMEWORKS, Wanted, choose
from ngcdl.errors import NgcdlError
from ngcdl.preflight import meant
from ngcdl.spec import GpuRequest
try:
    training = bool(os.environ.get("TRAINING", "" if image else "yes"))
    named = meant.named(image, "nvcr.io") if image else None
    unfit = lambda *_: os.environ.get("UNFIT", "").split()
    usual = os.environ.get("USUAL", "").split() or DEFAULT_FRAMEWORKS
    waits = "WAITS" in os.environ
    it = choose(Wanted(engine, named, GpuRequest.parse(gpus), "nvcr.io", training, unfit, usual=usual, waits=waits))
    print(json.dumps({"engine": it.engine.name, "image": str(it.image), "way": it.way.name, "gpus": str(it.gpus),
                      "device": it.device, "uuids": it.uuids, "why": it.why, "loud": list(it.loud),
                      "shares": it.shares, "has_gpu": it.has_gpu,
                      "awaits": it.awaits and [it.awaits.count, dict(it.awaits.names)]}))
except NgcdlError as error:
    print(json.dumps({"error": type(error).__name__, "code": error.exit_code, "message": error.message}))
"""
FIRST, SECOND = "GPU-5f1e2d3c-0a1b-4c2d-8e3f-105010501050", "GPU-"
# The second card has MIG on, with two devices, one of which a program uses.
MIG = {"gpu1__mig": 1, "gpu1__mig0__uuid": "MIG-41b3", "gpu1__mig2__uuid": "MIG-6f20", "gpu1__mig2__processes": "7:5"}
NVIDIA: dict[str, Any] = {"Runtimes": {"runc": {}, "nvidia": {}}}


@pytest.fixture
def cards(library: Path, tmp_path: Path) -> Host:
    host = Host(library, tmp_path / "nvml.state", forks=True)
    host.set()
    return host


@pytest.fixture
def bare(library: Path, tmp_path: Path) -> Host:
    """A host without a driver."""
    return Host(tmp_path, tmp_path / "none")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with serving(Daemon(tmp_path / "d.sock")) as one:
        yield one


def choose(host: Host, engine: str = "auto", image: str = "", gpus: str = "auto", docker: str = "") -> dict[str, Any]:
    found = host.python(
        f"import warnings; warnings.simplefilter('ignore', ResourceWarning)\n{CODE}",
        engine, image, gpus,
        docker or f"unix://{host.state.parent}/none.sock",
        timeout=3600,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    answer: dict[str, Any] = json.loads(found.stdout)
    return answer
