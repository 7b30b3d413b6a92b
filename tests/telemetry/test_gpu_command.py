"""`ngcdl gpu` on a GeForce GTX 1050 Ti."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import pwd
import signal
import subprocess
import sys

from .stand_in import Host

RUN = "import json, sys; from ngcdl.cli.gpu import gpu; gpu(**json.loads(sys.argv[1]))"

GOLDEN = """\
Driver 535.104.05   CUDA 12.2   NVML 12.535.104.05

GPU 0  NVIDIA GeForce GTX 1050 Ti   compute capability 6.1
  GPU-5f1e2d3c-0a1b-4c2d-8e3f-105010501050
  use 87 %   memory 3000 / 4039 MiB   memory traffic 41 %
  power 61 / 75 W   clock 1620 / 1911 MHz   temperature 64 C
"""
MIG_GOLDEN = """\
GPU 1  NVIDIA A100-SXM4-40GB   compute capability 8.0
  GPU-6a2f3e4d-1b2c-4d3e-9f40-a100a100a100
  use 0 %   memory n/a   memory traffic 0 %
  power 53 / 400 W   clock 210 / 1410 MHz   temperature 31 C
  MIG is on: programs compute on its MIG devices
  1:2  NVIDIA A100-SXM4-40GB MIG 1g.5gb   memory 37 / 5120 MiB
    MIG-41b3
        PID  MEMORY  USER  NAME  CONTAINER
    4194303   0 MiB  n/a   n/a   -
"""
SECOND = {f"gpu1__{key}": None for key in ("name", "uuid")}


def show(host: Host, **options: object) -> str:
    done = host.python(RUN, json.dumps(options))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_seed_s_card_is_shown(card: Host) -> None:
    card.set(**SECOND)
    assert show(card) == GOLDEN


def test_why_a_version_is_missing_is_beside_the_others(card: Host) -> None:
    card.set(**SECOND, fail__SystemGetDriverVersion=999)
    head = "Driver n/a   CUDA 12.2   NVML 12.535.104.05   error: SystemGetDriverVersion: unknown error (999)"
    assert show(card).splitlines()[0] == head


def test_its_processes_are_shown(card: Host) -> None:
    card.set(**SECOND, gpu0__processes=f"{os.getpid()}:{1000 << 20},4194303:-")
    rows = [line.split() for line in show(card).removeprefix(GOLDEN).splitlines()]
    assert rows[0] == ["PID", "MEMORY", "USER", "NAME", "CONTAINER"]
    assert rows[1][:4] == [str(os.getpid()), "1000", "MiB", pwd.getpwuid(os.getuid()).pw_name]
    assert rows[2][:4] == ["4194303", "n/a", "n/a", "n/a"]


def test_what_the_driver_does_not_give_is_not_available(card: Host) -> None:
    card.set(
        **SECOND, **{f"gpu0__{key}": None for key in ("utilization", "power_mw", "power_limit_mw", "memory_used", "cc")}
    )
    text = show(card)
    assert "use n/a   memory n/a   memory traffic n/a" in text
    assert "power n/a   clock 1620 / 1911 MHz" in text
    assert "compute capability n/a" in text


def test_a_memory_that_is_the_machine_s_is_called_so(card: Host) -> None:
    spark = {**SECOND, "gpu0__name": "NVIDIA GB10", "gpu0__cc": "12.1", "gpu0__memory_used": None}
    card.set(**spark, gpu0__processes=f"4194303:{3000 << 20}")
    assert "use 87 %   memory 3000 MiB (the machine's)   memory traffic 41 %" in show(card)
    card.set(**spark, gpu0__processes=None)
    assert "memory n/a (the machine's)" in show(card)


def test_a_lost_card_says_so_and_the_others_go_on(card: Host) -> None:
    card.set(**{"fail__gpu0__DeviceGetUtilizationRates": 15})
    first, second = show(card).split("\n\n")[1:]
    assert first.endswith("error: GPU is lost: it fell off the bus; reboot the host (15)")
    assert "use 0 %" in second


def test_a_driver_without_a_card_says_so(card: Host) -> None:
    card.state.write_text("driver=535.104.05\ncuda=12020\n")
    assert show(card) == "Driver 535.104.05   CUDA 12.2   NVML n/a\n\nThe driver sees no GPU.\n"


def test_mig_devices_are_listed_below_their_card(card: Host) -> None:
    card.set(
        gpu1__mig=1, fail__gpu1__DeviceGetMemoryInfo=4, gpu1__mig2__uuid="MIG-41b3",
        gpu1__mig2__name="NVIDIA A100-SXM4-40GB MIG 1g.5gb", gpu1__mig2__memory_total=5 << 30,
        gpu1__mig2__memory_used=37 << 20, gpu1__mig2__processes="4194303:5",
    )  # fmt: skip
    _, first, second = show(card).split("\n\n")
    assert "MIG" not in first
    assert second == MIG_GOLDEN
    (process,) = json.loads(show(card, json=True))["gpus"][1]["mig_devices"][0]["processes"]
    assert process.keys() >= {"user", "container_name"}
    card.set(gpu1__mig=1)
    assert show(card).endswith("  MIG is on, but no MIG device is visible: nothing can compute on it\n")


def test_json_is_one_document_with_null(card: Host) -> None:
    card.set(gpu0__power_mw=None, gpu0__processes="4194303:5")
    document = json.loads(show(card, json=True))
    assert list(document) == ["driver", "cuda", "nvml", "error", "gpus"]
    assert document["cuda"] == "12.2"
    assert document["gpus"][0]["watts"] is None
    process = {"pid": 4194303, "memory_bytes": 5, "name": None, "container_id": None, "container_name": None}
    process |= {"draws": False, "computes": True, "lists_clients": False, "user": None}
    assert document["gpus"][0]["processes"] == [process]
    assert len(document["gpus"]) == 2


def test_a_watch_as_json_adds_a_line_for_each_reading_and_ctrl_c_ends_it_well(card: Host) -> None:
    argument = json.dumps({"watch": 0.1, "json": True})
    with subprocess.Popen(
        [sys.executable, "-c", RUN, argument], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=card.environment()
    ) as process:
        assert process.stdout is not None
        rows = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert errors == b""
    assert [row["gpus"][0]["gpu_percent"] for row in rows] == [87] * 3


def test_only_a_watch_says_how_much_of_a_card_worked(card: Host) -> None:
    card.set(gpu1__gpm=1, gpu1__gpm_sm=12.5, gpu1__gpm_occupancy=7, gpu1__gpm_tensor=3, gpu1__gpm_dram=20)
    assert "SMs" not in show(card)
    assert json.loads(show(card, json=True))["gpus"][1]["sm_active_percent"] is None
    argument = json.dumps({"watch": 0.1})
    with subprocess.Popen(
        [sys.executable, "-c", RUN, argument], stdout=subprocess.PIPE, text=True, env=card.environment()
    ) as process:
        assert process.stdout is not None
        said = next(line for line in process.stdout if "SMs" in line)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=240)
    assert said == "  SMs active 12 %, occupancy 7.0 %, tensor cores 3.0 %, DRAM 20 %\n"


def test_a_watch_on_a_terminal_redraws_and_ctrl_c_ends_it_well(card: Host) -> None:
    ours, theirs = pty.openpty()
    environment = {**card.environment(), "TERM": "xterm"}
    with subprocess.Popen(
        [sys.executable, "-c", RUN, json.dumps({"watch": 0.1})], stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        seen = b""
        while seen.count(b"GTX 1050 Ti") < 2:
            seen += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while data := os.read(ours, 4096):  # a terminal that nobody reads fills up, and the process could not end
                seen += data
        assert process.wait(timeout=240) == 0
    os.close(ours)
    assert b"Traceback" not in seen


def test_without_a_driver_the_error_is_raised(card: Host) -> None:
    card.state.unlink()
    code = "from ngcdl.errors import NvmlUnavailable\nfrom ngcdl.cli.gpu import gpu\ntry: gpu()\n"
    done = card.python(code + "except NvmlUnavailable as error: print(error.exit_code, error.message)")
    assert done.stdout == "125 The NVIDIA driver is installed but not loaded.\n"


def test_who_uses_a_card_is_not_available_where_the_driver_does_not_tell(card: Host) -> None:
    assert "processes" not in show(card)
    card.set(**{"fail__gpu0__DeviceGetComputeRunningProcesses_v3": 3})
    assert show(card).split("\n\n")[1].endswith("temperature 64 C\n  processes n/a")
