"""The lab itself works: the engine runs what it pulls, and each GPU mechanism works and fails as it should."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from docker_client import Docker

pytestmark = pytest.mark.lab

MULTIPLY = """
import tensorflow as tf
a = tf.constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], shape=[2, 3])
b = tf.constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], shape=[3, 2])
print(tf.__file__)
print(tf.__version__)
print(tf.Session().run(tf.matmul(a, b)).tolist())
"""
FIRST_CARD = "GPU 0: NVIDIA GeForce GTX 1050 Ti (UUID: GPU-"


def test_a_reader_who_has_seen_enough_is_no_traceback() -> None:
    """Needs no lab: the pipe is closed before anything is written to it."""
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, str(Path(__file__).parents[2] / "scripts/lab"), "status", "--json"]
    try:
        done = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


# ---- images ----


def test_tensorflow_1_4_multiplies_two_matrices(lab: dict[str, Any], docker: Docker) -> None:
    docker.login(lab["registry"]["key"])
    docker("pull", "-q", f"{lab['registry']['host']}/nvidia/tensorflow:18.01-py2")
    (Path(docker.environment["DOCKER_CONFIG"]) / "multiply.py").write_text(MULTIPLY)
    mount = f"{docker.environment['DOCKER_CONFIG']}/multiply.py:/workspace/multiply.py:ro"
    text = docker.run(
        "--shm-size=1g", "--gpus", "all", "-v", mount, command="python multiply.py", image="tensorflow:18.01-py2"
    )
    assert "== TensorFlow ==\n================\n\nNVIDIA Release 18.01 (build 276323)\n" in text
    assert "/tensorflow/__init__.pyc\n1.4.0\n[[22.0, 28.0], [49.0, 64.0]]\n" in text, "or it is compiled at each start"
    assert "WARNING" not in text
    assert "NOTE" not in text


def test_the_entrypoint_says_that_driver_and_shared_memory_are_missing(lab: dict[str, Any], docker: Docker) -> None:
    docker.login(lab["registry"]["key"])
    text = docker.run(command="python --version", image="tensorflow:18.01-py2")
    assert "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available." in text
    assert "NOTE: The SHMEM allocation limit is set to the default of 64MB." in text
    assert "Python 2.7.18" in text


def test_pytorch_counts(lab: dict[str, Any], docker: Docker) -> None:
    docker.login(lab["registry"]["key"])
    docker("pull", "-q", f"{lab['registry']['host']}/nvidia/pytorch:26.07-py3")
    script = "import torch,numpy;print(torch.__version__,(torch.ones(2,3)@torch.ones(3,2)).tolist())"
    loads = ["python", "-B", "-v", "-c", script]
    text = docker.run("-e", "NVIDIA_CPU_ONLY=1", command=loads, image="pytorch:26.07-py3")
    assert "== PyTorch ==" in text
    assert "2.13.0+cpu [[3.0, 3.0], [3.0, 3.0]]" in text
    assert "code object from /usr/local" not in text, "or it is compiled at each start"
    assert sum("pyc matches" in line for line in text.splitlines()) > 500, "modules were loaded"


def test_the_configs_carry_what_ngc_images_carry(lab: dict[str, Any], docker: Docker) -> None:
    docker.login(lab["registry"]["key"])
    host = lab["registry"]["host"]
    docker("pull", "-q", f"{host}/nvidia/tensorflow:18.01-py2")
    config = json.loads(docker("image", "inspect", "-f", "{{json .Config}}", f"{host}/nvidia/tensorflow:18.01-py2"))
    assert {"CUDA_VERSION=9.0.176", "NVIDIA_REQUIRE_CUDA=cuda>=9.0", "NVIDIA_VISIBLE_DEVICES=all"} <= set(config["Env"])
    assert (config["WorkingDir"], config["Entrypoint"]) == ("/workspace", ["/usr/local/bin/nvidia_entrypoint.sh"])
    assert config["Labels"]["com.nvidia.cuda.version"] == "9.0"


def test_an_entrypoint_of_the_image_runs_before_the_command(docker: Docker) -> None:
    assert docker.run(command="echo hello", image="busybox:entry").splitlines()[-2:] == [
        "lab entrypoint: echo hello",
        "hello",
    ]


# ---- the GPU chain ----

WAYS = {
    "gpus": ["--gpus", "all"],
    "runtime": ["--runtime", "nvidia", "-e", "NVIDIA_VISIBLE_DEVICES=all"],
    "cdi": ["--device", "nvidia.com/gpu=all"],
}
SECOND = {
    "gpus": ["--gpus", "device=1"],
    "runtime": ["--runtime", "nvidia", "-e", "NVIDIA_VISIBLE_DEVICES=1"],
    "cdi": ["--device", "nvidia.com/gpu=1"],
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_shows_all_cards_or_the_one_asked_for(docker: Docker, way: str) -> None:
    both = docker.run(*WAYS[way], command="nvidia-smi -L")
    assert [line[:6] for line in both.splitlines()] == ["GPU 0:", "GPU 1:"]
    assert both.startswith(FIRST_CARD)
    assert docker.run(*SECOND[way], command="nvidia-smi -L").startswith("GPU 0: NVIDIA A100")
    assert docker.run("--read-only", *WAYS[way], command="nvidia-smi -L").startswith(FIRST_CARD)


@pytest.mark.parametrize("way", WAYS)
def test_each_way_fails_in_nvidias_words(docker: Docker, way: str) -> None:
    texts = {
        "driver-not-loaded": "nvidia-container-cli: initialization error: nvml error: driver not loaded",
        "version-mismatch": "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch",
        "library-missing": "load library failed: libnvidia-ml.so.1: cannot open shared object file: no such file",
    }
    for name, text in texts.items():
        assert text in docker.run("-e", f"NGCDL_LAB_GPU_FAULT={name}", *WAYS[way], command="true", fails=True)


def test_a_card_that_is_not_there_is_unknown(docker: Docker) -> None:
    assert "device error: 7: unknown device" in docker.run("--gpus", "device=7", command="true", fails=True)
    assert "unresolvable CDI devices nvidia.com/gpu=7" in docker.run(
        "--device", "nvidia.com/gpu=7", command="true", fails=True
    )


def test_what_an_image_requires_is_held_against_the_driver(docker: Docker) -> None:
    text = docker.run("-e", "NVIDIA_REQUIRE_CUDA=cuda>=12.8", "--gpus", "all", command="true", fails=True)
    assert "requirement error: unsatisfied condition: cuda>=12.8" in text
    docker.run("-e", "NVIDIA_REQUIRE_CUDA=cuda>=12.8 driver>=535", "--gpus", "all", command="true")


def test_no_gpu_is_there_unless_asked_for(docker: Docker) -> None:
    assert "not found" in docker.run(command="nvidia-smi", fails=True)


def test_the_stand_in_library_loads_inside_the_old_image(lab: dict[str, Any], docker: Docker) -> None:
    docker.login(lab["registry"]["key"])
    script = "import ctypes;print(ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2())"
    text = docker.run("--gpus", "all", command=["python", "-c", script], image="tensorflow:18.01-py2")
    assert text.rstrip().endswith("\n0")


def test_the_runtime_notes_the_limits_and_leaves_them(lab: dict[str, Any], docker: Docker) -> None:
    limits = ["--ulimit", "memlock=65536", "--ulimit", "stack=67108864"]
    text = docker.run("--runtime", "nvidia", "--hostname", "limited", *limits, command=["sh", "-c", "ulimit -l -s"])
    assert re.findall(r"\d+$", text, re.M) == ["64", "65536"]
    entries = [json.loads(line) for line in Path(lab["rlimits_log"]).read_text().splitlines()]
    entry = [e for e in entries if e["hostname"] == "limited"][-1]
    assert {(limit["type"], limit["hard"]) for limit in entry["rlimits"]} == {
        ("RLIMIT_MEMLOCK", 65536),
        ("RLIMIT_STACK", 67108864),
    }


def test_an_engine_without_the_chain_says_so_in_dockers_words(lab: dict[str, Any], docker: Docker) -> None:
    assert lab["bare"], "no bare engine: type `scripts/lab up --without-gpu`"
    texts = {
        "gpus": 'could not select device driver "" with capabilities: [[gpu]]',
        "runtime": "unknown or invalid runtime name: nvidia",
        "cdi": 'could not select device driver "cdi" with capabilities: []',
    }
    for way, text in texts.items():
        assert text in docker.run(*WAYS[way], command="true", fails=True, engine="bare")


def test_the_oldest_supported_engine_runs_and_has_the_chain(lab: dict[str, Any], docker: Docker) -> None:
    assert lab["floor"], "no floor engine: type `scripts/lab up --floor`"
    assert lab["floor"]["version"].startswith("20.10.24")
    assert lab["floor"]["api"] == "1.41"
    assert docker.run("--gpus", "all", command="nvidia-smi -L", engine="floor").startswith(FIRST_CARD)


def test_compose_answers_wherever_docker_keeps_its_config(docker: Docker) -> None:
    assert "v2" in docker("compose", "version") or "2." in docker("compose", "version")
