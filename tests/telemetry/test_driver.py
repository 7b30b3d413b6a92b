"""What is reported when the driver can't be asked: a call that hangs, a missing library."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ngcdl.errors import DriverHangs, LibraryMissing
from ngcdl.telemetry import driver
from ngcdl.telemetry.driver import LIBRARY_NOT_FOUND


def test_a_call_that_does_not_come_back_is_told_from_other_errors() -> None:
    forever = threading.Event()
    with pytest.raises(DriverHangs, match="no answer within"):
        driver.within(forever.wait, 0.05)
    forever.set()


@pytest.mark.usefixtures("no_driver")
@pytest.mark.parametrize(("is_wsl", "what", "source"), [
    (False, "There is no NVIDIA driver on this host.", driver.INSTALL),
    (True, "Windows has no NVIDIA driver for WSL to use, and probably no NVIDIA card.", driver.WSL_GUIDE),
])  # fmt: skip
def test_without_its_library_there_is_no_driver_and_under_wsl_it_is_windows_that_lacks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_wsl: bool, what: str, source: str
) -> None:
    monkeypatch.setattr(driver, "DXG", tmp_path if is_wsl else tmp_path / "none")
    error = driver.unavailable(LIBRARY_NOT_FOUND)
    assert isinstance(error, LibraryMissing)
    assert error.message == what
    assert source in error.hint
    assert "--gpus none" in error.hint


def test_wsls_door_to_the_cards_is_no_nvidia_driver_but_its_library_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / driver.LIBRARY
    monkeypatch.setattr(driver, "DXG", tmp_path)
    monkeypatch.setattr(driver, "WSL_LIBRARY", library)
    assert driver.has_driver() is Path("/proc/driver/nvidia").exists()
    library.touch()
    assert driver.has_driver() is True
