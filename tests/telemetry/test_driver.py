"""What is reported when the driver can't be asked: a call that hangs, a missing library."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from ngcdl.errors import DriverHangs, LibraryMissing
from ngcdl.telemetry import container, driver
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
    assert "    ngcdl run --train cifar10 --gpus none" in error.hint, "a line that can be typed as it is"


def test_wsls_door_to_the_cards_is_no_nvidia_driver_but_its_library_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / driver.LIBRARY
    monkeypatch.setattr(driver, "DXG", tmp_path)
    monkeypatch.setattr(driver, "WSL_LIBRARY", library)
    assert driver.has_driver() is Path("/proc/driver/nvidia").exists()
    library.touch()
    assert driver.has_driver() is True


@pytest.mark.usefixtures("no_driver")
@pytest.mark.parametrize(("file", "text"), [("nv_tegra_release", "# R35"), ("family", "Tegra\n")])
def test_a_jetson_without_nvml_has_a_driver_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str
) -> None:
    monkeypatch.setattr(driver, "TEGRA_RELEASE", tmp_path / "nv_tegra_release")
    monkeypatch.setattr(driver, "SOC_FAMILY", tmp_path / "family")
    assert "no NVIDIA driver" in driver.unavailable(LIBRARY_NOT_FOUND).message
    (tmp_path / file).write_text(text)
    assert driver.unavailable(LIBRARY_NOT_FOUND).message.startswith("This Jetson has no NVML")
    monkeypatch.undo()
    monkeypatch.setattr(driver, "TEGRA_RELEASE", tmp_path / "nv_tegra_release")
    monkeypatch.setattr(driver, "SOC_FAMILY", tmp_path / "family")
    assert driver.has_driver(), "so it is not known to have no GPU"


def test_a_host_with_many_sleeping_cards_gets_more_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "CARDS", tmp_path / "gpus")
    assert driver.patience_seconds() == 20
    for bus in range(8):
        (tmp_path / "gpus" / f"0000:{bus:02x}:00.0").mkdir(parents=True)
    assert driver.patience_seconds() == 52


def test_a_driver_that_hangs_may_only_be_waking_its_cards() -> None:
    forever = threading.Event()
    with pytest.raises(DriverHangs) as found:
        driver.within(forever.wait, 0.05)
    forever.set()
    assert "nvidia-persistenced" in found.value.hint


def test_a_reset_is_of_one_card_never_of_all() -> None:
    assert driver.words(16, 3) == "the GPU needs a reset: sudo nvidia-smi --gpu-reset -i 3 (16)"
    assert "-i INDEX" in driver.words(16)


def test_a_remedy_s_sentence_is_left_to_the_terminal_to_wrap() -> None:
    for number in driver._STARTS:
        hint = driver.unavailable(number).hint
        assert not re.search(r"[a-z,]\n[a-z]", hint), hint


def test_cards_that_windows_keeps_from_wsl_may_be_in_the_wrong_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "DXG", tmp_path)
    error = driver.unavailable(driver.BLOCKED)
    assert error.message == "Windows lets WSL have no GPU: blocked by the operating system (17)."
    assert "no card in TCC mode" in error.hint
    assert error.hint.endswith("    wsl.exe --shutdown")
    monkeypatch.setattr(driver, "DXG", tmp_path / "none")
    assert "Windows" not in driver.unavailable(driver.BLOCKED).hint, "Linux' control groups block the driver, too"


@pytest.mark.parametrize("is_host", [True, False])
def test_a_card_that_cannot_be_opened_may_be_fallen_and_a_container_may_have_lost_it(
    monkeypatch: pytest.MonkeyPatch, is_host: bool
) -> None:
    monkeypatch.setattr(container, "pids_are_the_hosts", lambda: is_host)
    said = driver.no_handle(driver.UNKNOWN, 1)
    assert said.startswith("it may have fallen off the bus: sudo dmesg | grep -i xid")
    assert ("container" in said) is not is_host
    assert driver.no_handle(driver.GPU_LOST, 1) == driver.words(driver.GPU_LOST)
