"""What every test may ask for: the lab, as scripts/lab describes it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# A shell starts what goes beside it deaf to Ctrl-C, and so would be all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Machines that are shared stutter: a slow example is no failure. What failed once is kept as a test.
hypothesis.settings.register_profile(
    "ngcdl", deadline=None, database=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("ngcdl")


@pytest.fixture(scope="session")
def lab() -> dict[str, Any]:
    """Give what lab.json says, which NGCDL_LAB_JSON names.

    Where CI is set a missing lab is a failure: what was not run did not pass.
    """
    path = Path(os.environ.get("NGCDL_LAB_JSON") or "/")
    if not path.is_file():
        text = 'NGCDL_LAB_JSON names no lab: scripts/lab up --floor --without-gpu && eval "$(scripts/lab env)"'
        if os.environ.get("CI"):
            pytest.fail(text)
        pytest.skip(text)
    status: dict[str, Any] = json.loads(path.read_text())
    return status


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take NVIDIA's driver away, where this host has one: neither its library nor its traces are found."""
    import pynvml

    from ngcdl.telemetry import driver

    def lacking(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file: No such file or directory")

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    for module in pynvml, driver.ctypes:
        monkeypatch.setattr(module, "CDLL", lacking)
    monkeypatch.setattr(driver, "has_driver", lambda: False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Where CI is set a skipped test is a failed one: what was not run did not pass.

    The one exception is a data set that can't be had: the real CIFAR-10 is not in the repository.
    """
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]  # pluggy's Result, which yield gives
    if os.environ.get("CI") and report.skipped and "CIFAR-10" not in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, which CI does not allow: {report.longrepr}"
