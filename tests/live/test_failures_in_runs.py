"""A container that ends with a well-known failure: cause and remedy on stderr, in the record and in `ngcdl show`."""

from __future__ import annotations

import json
import signal

import pytest
from house import until
from ngcdl_child import User

from ngcdl.catalog import failures

pytestmark = pytest.mark.lab

# As they are told of a command in a container of this machine.
ABOUT = frozenset(("command", "image", "here", "folders"))
ROWS = {row.name: row.about(ABOUT) for row in failures.table()}
# name, what a container writes
TEXTS = (
    ("no-kernel-image", "RuntimeError: CUDA error: no kernel image is available for execution on the device"),
    ("shm-too-small", "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that "
     "dataloader's workers are out of shared memory."),
    ("ptx-unsupported", "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain."),
    ("driver-insufficient", "(35 vs. 0)  CUDA driver version is insufficient for CUDA runtime version"),
    ("gpu-out-of-memory", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."),
    ("driver-mismatch", "Failed to initialize NVML: Driver/library version mismatch"),
    ("wrong-processor", "exec /opt/nvidia/nvidia_entrypoint.sh: exec format error"),
)  # fmt: skip
BANNER = "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available."


@pytest.mark.parametrize(("stream", "name", "text"), [(1 + at % 2, *one) for at, one in enumerate(TEXTS)])
def test_a_run_that_fails_of_it_says_cause_and_remedy_and_keeps_its_code(
    user: User, stream: int, name: str, text: str
) -> None:
    done = user.run("run", "busybox:1", "--", "sh", "-c", f'echo "$0" >&{stream}; exit 7', text)
    assert done.code == 7, done
    row = ROWS[name]
    assert row.cause in done.err
    for line in row.remedy.splitlines():
        assert line.replace("ngcdl run ...", "ngcdl run busybox:1") in done.err, "the line to type, with what was typed"
    assert done.out == (f"{text}\n" if stream == 1 else ""), "stdout is the container's alone"
    record = user.record()
    assert (record["status"], record["exit_code"]) == ("failed", 7)
    assert record["diagnosis"] == user.shown()["diagnosis"]
    assert {key: record["diagnosis"][key] for key in ("name", "cause", "remedy", "source", "confidence")} == {
        "name": name, "cause": row.cause, "remedy": row.remedy, "source": row.source, "confidence": row.confidence,
    }  # fmt: skip
    assert row.cause in user.run("show").out


def test_json_of_the_run_has_it_and_stderr_too(user: User) -> None:
    name, text = TEXTS[0]
    done = user.run("run", "busybox:1", "--json", "--", "sh", "-c", f"echo '{text}'; exit 1")
    assert json.loads(done.out)["diagnosis"]["name"] == name
    assert ROWS[name].cause in done.err


def test_a_run_that_ends_well_or_fails_of_something_else_is_not_told_anything(user: User) -> None:
    for script, code in ((f"echo '{TEXTS[4][1]}'", 0), ("echo epoch 1: error 0.5; exit 4", 4)):
        done = user.run("run", "busybox:1", "--", "sh", "-c", script)
        assert done.code == code, done
        assert "recognised" not in done.err
        assert user.record()["diagnosis"] is None


def test_a_banner_without_driver_is_told_where_a_gpu_was_asked_for_and_only_there(user: User) -> None:
    user.has_gpus()
    done = user.run("run", "busybox:1", "--gpus", "all", "--", "echo", BANNER)
    assert done.code == 0, done
    assert ROWS["driver-not-detected"].cause in done.err
    done = user.run("run", "busybox:1", "--gpus", "none", "--", "echo", BANNER)
    assert (done.code, user.record()["diagnosis"]) == (0, None)
    assert "recognised" not in done.err


def test_a_detached_run_is_diagnosed_by_its_watcher(user: User) -> None:
    name, text = TEXTS[1]
    done = user.run("run", "busybox:1", "--detach", "--", "sh", "-c", f'echo "{text}"; exit 1')
    assert done.code == 0, done
    until(lambda: user.record()["status"] != "running", "its end")
    assert user.record()["diagnosis"]["name"] == name


def test_a_run_whose_ngcdl_was_killed_is_diagnosed_when_its_record_is_closed(user: User) -> None:
    name, text = TEXTS[0]
    script = f"echo '{text}'; echo up; until [ -e over ]; do sleep 0.2; done; exit 5"
    child = user.start("run", "busybox:1", "--", "sh", "-c", script)
    child.until_out("up")
    until(lambda: text in user.log(), "the log")
    child.signal(signal.SIGKILL)
    assert child.done().code == -9
    (user.here / "over").touch()
    record = until(lambda: (it := user.shown())["status"] != "running" and it, "its end")
    assert (record["status"], record["exit_code"]) == ("failed", 5)
    assert record["diagnosis"]["name"] == name


@pytest.mark.parametrize("way", ["runtime", "cdi", "device-request"])
@pytest.mark.parametrize(("fault", "name", "remedy"), [
    ("driver-not-loaded", "no-driver-at-the-engine", "docker context ls"),
    ("library-missing", "no-driver-at-the-engine", "No NVIDIA driver is loaded"),
    ("version-mismatch", "driver-mismatch", "restart the machine"), ("timed-out", "driver-times-out", ""),
])  # fmt: skip
def test_a_fault_of_the_gpu_s_chain_is_told_in_nvidias_words_with_the_catalogue_s_remedy_once(
    user: User, way: str, fault: str, name: str, remedy: str
) -> None:
    user.has_gpus()
    words = ("--gpus", "all", "-e", f"NGCDL_LAB_GPU_FAULT={fault}", "--", "true")
    done = user.run("run", "busybox:1", *words, NGCDL_GPU_WAY=way)
    assert done.code == 125, done
    assert "NVIDIA's container runtime failed:" in done.err
    assert done.err.count(ROWS[name].cause) == 1
    assert all(line in done.err for line in (remedy, *ROWS[name].remedy.splitlines()))
    record = user.record()
    assert (record["status"], record["exit_code"], record["container"]) == ("failed", 125, None)
    assert "nvidia-container-cli" in record["reason"]
    assert record["diagnosis"]["name"] == name
    assert ROWS[name].cause in user.run("show").out


def test_a_hook_that_is_set_to_cdi_is_answered_with_the_other_way(user: User) -> None:
    user.has_gpus()
    fault = "NGCDL_LAB_GPU_FAULT=invoking the NVIDIA Container Runtime Hook directly"
    done = user.run("run", "busybox:1", "--gpus", "all", "-e", fault, "--", "true", NGCDL_GPU_WAY="device-request")
    assert done.code == 125, done
    assert ROWS["hook-called-directly"].cause in done.err
