"""Fixtures for all tests, such as the lab as described by scripts/lab.

The frameworks' Python loads this file, too, and has no ngcdl: a fixture imports what it needs of it.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

if TYPE_CHECKING:
    from faulty_front import Front
    from telemetry.stand_in import Host

    from ngcdl.storing.store import Store

# Background jobs start with SIGINT and SIGQUIT ignored, under nohup with SIGHUP ignored: what the tests start would
# inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Shared machines stutter: a slow example is not a failure. No database: an example that failed once becomes a test. The
# examples are others each time, so over many runs a few are as good as many.
hypothesis.settings.register_profile(
    "ngcdl", max_examples=60, deadline=None, database=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("ngcdl")


@pytest.fixture(scope="session", autouse=True)
def stopped_forking() -> Iterator[None]:
    """At the end, stop the processes that have loaded ngcdl."""
    import forking

    yield
    forking.close()


@pytest.fixture(scope="session")
def lab() -> dict[str, Any]:
    """The content of lab.json, whose path is in NGCDL_LAB_JSON."""
    path = Path(os.environ.get("NGCDL_LAB_JSON") or "/")
    if not path.is_file():
        pytest.skip('NGCDL_LAB_JSON names no lab: scripts/lab up --floor --without-gpu && eval "$(scripts/lab env)"')
    status: dict[str, Any] = json.loads(path.read_text())
    return status


@pytest.fixture
def front(lab: dict[str, Any], tmp_path: Path) -> Iterator[Front]:
    """A registry front for this test alone, so its faults affect no other test."""
    from faulty_front import front_in

    with front_in(tmp_path / "front", lab) as one:
        yield one


@pytest.fixture
def store(tmp_path: Path) -> Store:
    from ngcdl.storing.store import Store

    return Store(tmp_path / "runs")


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide this host's NVIDIA driver, if any: neither its library nor its traces are found."""
    import pynvml

    from ngcdl.telemetry import driver

    def lacking(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file: No such file or directory")

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    for module in pynvml, driver.ctypes:
        monkeypatch.setattr(module, "CDLL", lacking)
    monkeypatch.setattr(driver, "has_driver", lambda: False)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stand-in NVML library, compiled once."""
    from telemetry.stand_in import compiled

    return compiled(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def card(library: Path, tmp_path: Path) -> Host:
    """A host with the two cards of nvml.state."""
    from telemetry.stand_in import Host

    host = Host(library, tmp_path / "nvml.state")
    host.set()
    return host


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """If CI is set, report skipped tests as failed: a test that was not run did not pass.

    The one exception is a missing data set: the real CIFAR-10 is not in the repository.
    """
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]  # pluggy's Result
    if os.environ.get("CI") and report.skipped and "CIFAR-10" not in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, which CI does not allow: {report.longrepr}"


@pytest.fixture(scope="module")
def own_threads() -> Iterator[None]:
    """Count only threads started here: those left by other tests wait for nothing here, and may end."""
    left = set(threading.enumerate()) - {threading.current_thread()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "active_count", lambda: len(set(threading.enumerate()) - left))
        yield
