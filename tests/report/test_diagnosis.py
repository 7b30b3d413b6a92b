"""The reason why a run failed is read from its output, and only failures that the table lists are kept."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ngcdl.record import Diagnosis, Gpu, Machine, Run
from ngcdl.report.measured.diagnosis import HEAD_BYTES, TAIL_BYTES, as_text, diagnosed

RUN = Run("x", "failed", 1.0, exit_code=1)
WITH_GPU = replace(RUN, gpu_way="runtime")
MEMORY = "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB\n"
NO_DRIVER = "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.\n"


def name(run: Run, path: Path, text: str | bytes | None = None, error: str = "") -> str | None:
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    known = diagnosed(run, path, error).diagnosis
    return known.name if known else None


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.txt"


TRAINING = replace(RUN, spec={"workload": {"name": "cifar10"}})


def remedy(run: Run, path: Path, text: str) -> str:
    path.write_text(text)
    known = diagnosed(run, path).diagnosis
    return f"{known.cause}\n{known.remedy}" if known else ""


def test_a_failed_run_gets_the_row_and_nothing_of_its_log(log: Path) -> None:
    log.write_text("password=hush " + MEMORY)
    known = diagnosed(TRAINING, log).diagnosis
    assert known
    assert (known.name, known.text, known.confidence) == ("gpu-out-of-memory", "CUDA out of memory", "seen")
    assert known.cause
    assert "--batch" in (known.remedy or "")
    assert (known.source or "").startswith("https://")
    assert "hush" not in str(known)


@pytest.mark.parametrize("status", ["failed", "interrupted", "lost"])
def test_however_it_failed_it_is_told(log: Path, status: str) -> None:
    assert name(replace(RUN, status=status, exit_code=None), log, MEMORY) == "gpu-out-of-memory"


def test_a_limit_that_was_refused_and_then_left_out_is_no_cause_and_another_one_is(log: Path) -> None:
    refused = "docker: error setting rlimit type 8: operation not permitted\n"
    settled = "ngcdl: n1 forbids --ulimit memlock=-1 (see above); the container now starts without it\n"
    assert name(RUN, log, refused) == "rlimit-forbidden"
    assert name(RUN, log, refused + settled) is None
    assert name(RUN, log, "setrlimit `RLIMIT_MEMLOCK`: not permitted\n" + settled) is None
    assert name(RUN, log, refused + settled + refused.replace("8", "3")) == "rlimit-forbidden"
    assert name(RUN, log, refused + settled + MEMORY) == "gpu-out-of-memory"


def test_a_run_that_ended_well_is_told_only_what_matters_then_and_only_if_it_asked_for_a_gpu(log: Path) -> None:
    well = replace(WITH_GPU, status="finished", exit_code=0)
    assert name(well, log, MEMORY) is None
    assert name(well, log, NO_DRIVER) == "driver-not-detected"
    assert name(replace(well, gpu_way="none"), log) is None
    torch = "GPU with CUDA capability sm_120 is not compatible with the current PyTorch installation.\n" + MEMORY
    assert name(well, log, torch) == "gpu-not-for-this-pytorch"


def test_a_driver_that_is_missing_where_no_gpu_was_asked_for_is_no_cause(log: Path) -> None:
    tf = "Could not load dynamic library 'libcuda.so.1'\nfailed call to cuInit: no CUDA-capable device is detected\n"
    assert name(replace(RUN, gpu_way="none"), log, NO_DRIVER + tf) is None
    assert name(WITH_GPU, log) == "libcuda-missing"
    assert name(replace(RUN, gpus=("GPU-1",)), log) == "libcuda-missing", "of the local engine"
    warned = "UserWarning: CUDA initialization: Found no NVIDIA driver on your system. Please check that you have an\n"
    assert name(replace(RUN, gpu_way="none"), log, warned + "KeyError: 'labels'\n") is None
    wanted = "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU\n"
    assert name(replace(RUN, gpu_way="none"), log, wanted) == "no-driver-in-container"
    assert name(WITH_GPU, log, warned) == "libcuda-missing"
    missing = "exec: nvidia-smi: not found\n"
    assert name(replace(RUN, gpu_way="none", engine="docker"), log, missing) == "nvidia-smi-missing"
    assert "--gpus all" in remedy(replace(RUN, gpu_way="none", engine="docker"), log, missing)
    its = remedy(replace(WITH_GPU, engine="docker"), log, missing)
    assert "--gpus" not in its, "it has them"
    assert "-e NVIDIA_DRIVER_CAPABILITIES=compute,utility" in its


def test_what_only_an_image_can_cause_is_no_cause_without_one(log: Path) -> None:
    said = "./train.sh: line 1: ./tool: cannot execute binary file: exec format error\n"
    assert name(replace(RUN, engine="docker"), log, said) == "wrong-processor"
    assert name(replace(RUN, engine="local"), log, said) is None


def test_a_remedy_is_for_what_ran_and_where(log: Path) -> None:
    assert "--batch largest" in remedy(TRAINING, log, MEMORY)
    assert "--batch" not in remedy(RUN, log, MEMORY)
    few = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.\n"
    assert "--shm-size" in remedy(RUN, log, few)
    here = remedy(replace(RUN, engine="local"), log, few)
    assert "remount,size=8g /dev/shm" in here
    assert "container" not in here


def test_a_memory_that_a_gpu_shares_with_the_file_cache_is_told_with_what_frees_it(log: Path) -> None:
    spark = replace(WITH_GPU, machine=Machine(gpus=(Gpu(0, "NVIDIA GB10", compute_capability="12.1"),)))
    assert "drop_caches" in remedy(spark, log, MEMORY)
    assert "drop_caches" not in remedy(replace(spark, engine="slurm"), log, MEMORY), "that machine is another one"
    assert "drop_caches" not in remedy(WITH_GPU, log, MEMORY)
    assert "drop_caches" not in remedy(replace(spark, gpu_way="none"), log, MEMORY), "the kernel frees it by itself"


def test_a_missing_python_module_is_told_of_a_command_in_an_image_with_what_installs_it(log: Path) -> None:
    missing = "ModuleNotFoundError: No module named 'transformers'\n"
    assert "--pip requirements.txt" in remedy(replace(RUN, engine="docker"), log, missing)
    assert "--pip" not in remedy(replace(RUN, engine="slurm"), log, missing), "nothing is installed beforehand there"
    assert remedy(replace(RUN, engine="local"), log, missing) == ""
    assert remedy(TRAINING, log, missing) == ""


def test_a_path_that_a_container_does_not_have_is_told_with_what_mounts_it(log: Path) -> None:
    missing = "FileNotFoundError: [Errno 2] No such file or directory: '/home/me/data/train.csv'\n"
    assert "-v /my/data:/my/data:ro" in remedy(replace(RUN, engine="docker"), log, missing)
    assert "../data is /data" in remedy(replace(RUN, engine="docker"), log, missing.replace("/home/me", ".."))
    assert "-v CLAIM:/data" in remedy(replace(RUN, engine="kubernetes"), log, missing)
    assert remedy(replace(RUN, engine="local"), log, missing) == "", "all of this host's files are there"
    assert remedy(TRAINING, log, missing) == ""
    assert name(replace(RUN, engine="docker"), log, "ls: cannot access '/x': No such file or directory\n") is None


def test_what_does_no_harm_is_not_told(log: Path) -> None:
    assert name(RUN, log, "groups: cannot find name for group ID 993\n") is None


def test_the_error_that_ended_the_run_is_read_with_its_log(log: Path) -> None:
    error = "A GPU was asked for, but the run sees none: Failed to initialize NVML: Unknown Error."
    assert name(WITH_GPU, log, error=error) == "gpu-taken-away"
    assert name(WITH_GPU, log, NO_DRIVER, error=error) == "gpu-taken-away"


def test_a_command_that_the_kernel_killed_is_told_what_gives_it_more_memory(log: Path) -> None:
    killed = replace(RUN, engine="docker", exit_code=137, reason="out of memory: the kernel killed it")
    assert "--memory" in remedy(killed, log, "epoch 1:   6%|")
    assert "What this machine has:\n    free -h\n" in remedy(killed, log, "")
    pod = replace(killed, engine="kubernetes")
    assert "Or give the run more:\n    ngcdl run ... --memory 64g" in remedy(pod, log, "")
    training = replace(killed, spec=TRAINING.spec)
    assert name(training, log, "") is None, "its findings say which batch would fit"


def test_an_exit_code_tells_where_no_word_does(log: Path) -> None:
    known = diagnosed(replace(RUN, exit_code=132), log).diagnosis
    assert known
    assert (known.name, known.text) == ("no-avx", "exit code 132")
    assert name(replace(RUN, exit_code=132), log, MEMORY) == "gpu-out-of-memory"
    assert name(replace(RUN, exit_code=135), log, "") == "bus-error"
    assert "--shm-size" in remedy(replace(RUN, exit_code=135), log, "Bus error (core dumped)\n")
    assert name(replace(RUN, exit_code=139), log, "") == "segmentation-fault"
    assert name(replace(RUN, exit_code=1), log, "x") is None


def test_head_and_tail_of_a_long_log_are_read(log: Path) -> None:
    head, tail, filling = HEAD_BYTES, TAIL_BYTES, b"step 0, loss = 4.68\n" * 100_000
    assert len(filling) > head + tail + 1000
    words = MEMORY.encode()
    assert name(RUN, log, words + filling) == "gpu-out-of-memory"
    assert name(RUN, log, filling[: head - len(words)] + words + filling) == "gpu-out-of-memory"
    assert name(RUN, log, filling + words) == "gpu-out-of-memory"
    assert name(RUN, log, filling + words + filling[: tail - len(words)]) == "gpu-out-of-memory"
    assert name(RUN, log, filling[:head] + words + filling[:tail]) is None
    assert name(RUN, log, filling[: head - 20] + words) == "gpu-out-of-memory", "across the end of the head"
    apart = filling[: head - 20] + words[:20] + filling[:tail] + words[20:] + filling[: tail - len(words) + 20]
    assert name(RUN, log, apart) is None, "head and tail are not one text"


def test_a_log_of_bytes_that_are_no_text_is_read(log: Path) -> None:
    assert name(RUN, log, b"\xff\xfe\x00\x80" + MEMORY.encode() + b"\xc3") == "gpu-out-of-memory"


def test_what_is_no_log_tells_nothing_and_holds_up_nobody(tmp_path: Path) -> None:
    pipe, folder, endless = tmp_path / "pipe", tmp_path / "folder", tmp_path / "endless"
    os.mkfifo(pipe)
    folder.mkdir()
    endless.symlink_to("/dev/zero")
    for path in (pipe, folder, endless, tmp_path / "missing"):
        assert name(RUN, path) is None


def test_it_is_said_with_its_remedy_below_and_what_is_only_remembered_is_said_to_be_so() -> None:
    known = Diagnosis("x", "words", "The cause.", "Do this:\n    ngcdl gpu", "https://x", "seen")
    assert as_text(known) == 'recognised "words": The cause.\n  Do this:\n      ngcdl gpu'
    assert "from memory" in as_text(replace(known, confidence="recalled"))
    assert as_text(Diagnosis("x", "words", "The cause.")) == 'recognised "words": The cause.'
