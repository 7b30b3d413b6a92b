"""A known failure is shown with its remedy, once, and recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import FakeJob, FakeShow, ready
from followed import follow, recorded

from ngcdl.catalog import failures
from ngcdl.engines.values import Exit
from ngcdl.errors import GpuHookFailed, GpuNotInside
from ngcdl.running import launch
from ngcdl.storing.store import Store
from ngcdl.telemetry.card import Card, Probe
from ngcdl.telemetry.kernel_log import KernelLog

NO_KERNEL = b"RuntimeError: CUDA error: no kernel image is available for execution on the device\n"


def test_a_famous_failure_is_said_with_its_remedy_and_recorded_and_the_exit_code_stays(store: Store) -> None:
    run, show = follow(store, FakeJob((b"step 0\n", NO_KERNEL), exit=Exit(3, False)), train=False)
    assert (run.status, run.exit_code, run.reason) == ("failed", 3, None)
    assert run.diagnosis
    assert run.diagnosis.name == "no-kernel-image"
    assert [
        said for said in show.said if "no code for this GPU" in said and "\n      ngcdl images" in said
    ] == show.said


def test_a_failure_that_is_not_famous_and_a_run_that_ended_well_have_no_diagnosis(store: Store) -> None:
    run, show = follow(store, FakeJob((b"KeyError: 'labels'\n",), exit=Exit(1, False)))
    assert (run.diagnosis, show.said) == (None, [])
    run, show = follow(Store(store.root / "well"), FakeJob((NO_KERNEL,)))
    assert (run.status, run.diagnosis, show.said) == ("finished", None, [])


def test_a_run_that_ended_well_on_the_cpu_though_it_asked_for_a_gpu_is_told_why(store: Store) -> None:
    banner = b"WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.\n"
    for gpu_way, name in (("runtime", "driver-not-detected"), ("none", None)):
        prepared, _ = ready(Store(store.root / gpu_way), FakeJob((banner,)), train=False)
        prepared = replace(prepared, run=replace(prepared.run, gpu_way=gpu_way))
        show = FakeShow()
        run = launch.follow(prepared, Store(store.root / gpu_way), show)
        assert (run.status, run.exit_code) == ("finished", 0)
        assert (run.diagnosis.name if run.diagnosis else None) == name
        assert len(show.said) == (name is not None)


def test_what_the_error_s_own_hint_says_is_recorded_and_not_said_twice(store: Store) -> None:
    advice = next(row.advice for row in failures.table() if row.name == "driver-mismatch")
    error = GpuHookFailed("nvidia-container-cli: nvml error: driver/library version mismatch", advice)
    prepared, _ = ready(store, error)
    show = FakeShow()
    with pytest.raises(GpuHookFailed):
        launch.follow(prepared, store, show)
    known = recorded(store).diagnosis
    assert known
    assert (known.name, show.said) == ("driver-mismatch", [])


def test_what_the_error_s_own_hint_does_not_say_is_said(store: Store) -> None:
    job = FakeJob(gpus=GpuNotInside("Failed to initialize NVML: Unknown Error"), until_stopped=True)
    prepared, _ = ready(store, job, gpus="all")
    show = FakeShow()
    with pytest.raises(GpuNotInside):
        launch.follow(prepared, store, show)
    assert "systemctl daemon-reload" in show.said[-1]


@pytest.mark.parametrize(("code", "gpu"), [(0, "GPU-1"), (139, "GPU-1"), (139, "MIG-1")])
def test_what_the_kernel_logs_of_a_failed_run_s_card_is_told_and_recorded_with_its_remedy(
    code: int, gpu: str, store: Store, tmp_path: Path
) -> None:
    messages, information = tmp_path / "kmsg", tmp_path / "gpus/0000:44:00.0/information"
    messages.touch()
    information.parent.mkdir(parents=True)
    information.write_text("GPU UUID: GPU-1\n")
    fault = "4,7,1,-;NVRM: Xid (PCI:0000:44:00): 31, pid=4711, name=python, Ch 8, MMU Fault: ENGINE GRAPHICS\n"

    def computes() -> None:
        messages.write_text(fault)

    job = FakeJob((computes,), exit=Exit(code, False), gpus=(gpu,))
    prepared, _ = ready(store, job, train=False, gpus="all")
    show = FakeShow()
    probe = Probe((Card(0, "GPU-1", mig_devices=(Card(0, "MIG-1"),)),))
    kernel = KernelLog(messages, tmp_path / "gpus", probe=lambda: probe)
    run = launch.follow(prepared, store, show, kernel=kernel)
    told = [note for note in run.notes if "Xid 31 of the card 0000:44:00: Ch 8, MMU Fault" in note]
    if code == 0:
        assert (told, run.diagnosis, show.said) == ([], None, [])
        return
    assert len(told) == 1
    assert told[0] in show.said
    assert run.diagnosis
    assert run.diagnosis.name == "xid"
    assert "https://docs.nvidia.com/deploy/xid-errors/" in (run.diagnosis.remedy or "")
