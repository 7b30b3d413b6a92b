"""The kernel's messages about a run's cards are found if they may be read, and reading them holds up nobody."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest
from house import until

from ngcdl.telemetry import kernel_log
from ngcdl.telemetry.card import Card, Probe
from ngcdl.telemetry.kernel_log import CardError, KernelLog

LOST = "NVRM: Xid (PCI:0000:44:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
# As the driver 580.159.04 of an H100 logs an Xid.
FAULT = (
    "NVRM: Xid (PCI:0000:45:00): 31, pid=494, name=python3, channel 0x0000000a, intr 00000000. MMU Fault: "
    "ENGINE GRAPHICS GPC1 GPCCLIENT_T1_8 faulted @ 0x0_00001000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE"
)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is slow, but does not hang."""
    monkeypatch.setattr(kernel_log, "PATIENCE_SECONDS", 240.0)
    monkeypatch.setattr(kernel_log, "_JOURNAL_SECONDS", 240.0)


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    for address, uuid in (("0000:44:00.0", "GPU-a"), ("0000:45:00.0", "GPU-b")):
        folder = tmp_path / "gpus" / address
        folder.mkdir(parents=True)
        (folder / "information").write_text(
            f"Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid}\nBus Location: \t {address}\n"
        )
    return tmp_path / "gpus"


@pytest.fixture
def messages(tmp_path: Path) -> Path:
    path = tmp_path / "kmsg"
    path.write_text(f"4,1,100,-;{LOST}\n")
    return path


def logged(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.writelines(f"4,360,48276587,c;{line}\n SUBSYSTEM=pci\n" for line in lines)


def test_an_error_of_a_run_s_card_is_found_and_one_of_another_card_or_from_before_is_not(
    messages: Path, cards: Path
) -> None:
    with KernelLog(messages, cards) as log:
        assert log.errors_of(("GPU-a", "GPU-b")) == ()
        logged(messages, "usb 1-1: new device", FAULT, FAULT)
        assert log.errors_of(("GPU-a",)) == ()
        logged(messages, FAULT, FAULT)
        (error,) = log.errors_of(("GPU-b",))
    assert (error.card, error.xid, len(error.text)) == ("0000:45:00", 31, 120)
    assert str(error).startswith("Xid 31 of the card 0000:45:00: channel ")
    assert "NVRM: Xid" in error.kernel_line
    assert "python3" not in error.kernel_line, "the name of a program is its own text"


@pytest.mark.parametrize("line", [
    LOST,
    LOST.replace("0000:44", "00000000:44"),
    LOST.replace("PCI:", ""),
    LOST.replace("44:00)", "44:00 GPU-I:05)"),
    "NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus.",
])  # fmt: skip
def test_every_driver_s_way_to_write_it_is_read(line: str, messages: Path, cards: Path) -> None:
    with KernelLog(messages, cards) as log:
        logged(messages, line)
        assert log.errors_of(("GPU-a",)) == (CardError("0000:44:00", 79, "GPU has fallen off the bus."),)


def test_the_errors_of_a_mig_device_are_those_of_its_card_also_once_the_driver_lists_it_no_more(
    messages: Path, cards: Path
) -> None:
    seen = [Probe((Card(0, "GPU-a", mig_devices=(Card(0, "MIG-a"),)), Card(1, "GPU-b")))]
    with KernelLog(messages, cards, probe=seen.pop) as log:
        assert log.whole(("GPU-b",)) == ("GPU-b",)
        whole = log.whole(("MIG-a", "MIG-unseen"))
        logged(messages, LOST, FAULT)
        assert [error.xid for error in log.errors_of(whole)] == [79]


def test_where_the_kernel_s_messages_may_not_be_read_the_journal_is_asked(tmp_path: Path, cards: Path) -> None:
    journal = tmp_path / "journalctl"
    journal.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\necho "{LOST}"\n')
    journal.chmod(0o755)
    before = time.time()
    with KernelLog(tmp_path / "missing", cards, str(journal)) as log:
        assert [error.xid for error in log.errors_of(("GPU-a",))] == [79]
    since = int((tmp_path / "asked").read_text().partition("--since=@")[2].split()[0])
    assert before - 1 < since < time.time() + 1, "whole seconds"


def test_where_nothing_can_be_read_nothing_is_known(tmp_path: Path, cards: Path, messages: Path) -> None:
    missing = tmp_path / "missing"
    with KernelLog(missing, cards, str(missing)) as log:
        assert log.errors_of(("GPU-a",)) == ()
    with KernelLog(messages, missing) as log:
        logged(messages, LOST)
        assert log.errors_of(("GPU-a",)) == ()


def test_a_driver_that_hangs_holds_up_nobody(messages: Path, cards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ends() -> bool:
        with contextlib.suppress(OSError):  # it has not opened it yet
            os.close(os.open(information, os.O_WRONLY | os.O_NONBLOCK))
            return True
        return False

    monkeypatch.setattr(kernel_log, "PATIENCE_SECONDS", 0.1)
    information = cards / "0000:44:00.0" / "information"
    information.unlink()
    os.mkfifo(information)  # whoever opens it waits for a writer
    with KernelLog(messages, cards) as log:
        assert log.errors_of(("GPU-a",)) == ()
    until(ends, "the thread that waits")
